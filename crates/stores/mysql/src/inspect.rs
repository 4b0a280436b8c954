//! The statement that lists names in use.

use clinch_table::{Row, Sent};

use crate::columns::{COLUMNS, named_row};
use crate::dialect::MySql;
use crate::sql::{NOW, Sql};

pub(crate) async fn in_use(
    mysql: &MySql,
    from: &[u8],
    past: bool,
    limit: u64,
) -> Sent<Vec<(Vec<u8>, Option<Row>)>> {
    let more = if past { ">" } else { ">=" };
    let sql = Sql::new(format!(
        "SELECT name,{COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name{more}? \
         AND (request<>'' OR state IS NOT NULL) ORDER BY name LIMIT ?"
    ))
    .bytes(&mysql.ns)
    .bytes(from)
    .with(limit);
    let response = mysql.query(&sql).await?;
    let slack = response.took;
    let rows = response.into_rows().into_iter();
    Ok(rows.filter_map(|row| named_row(row, slack)).collect())
}
