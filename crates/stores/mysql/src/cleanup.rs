//! The statements that delete idle rows. The watermark is the column `floor` of `clinch_meta`.

use clinch_table::{Scanned, Sent};
use mysql_async::Value;

use crate::columns::{bytes, next_number};
use crate::dialect::MySql;
use crate::sql::{NOW, Sql};

pub(crate) async fn begin(mysql: &MySql, interval: u64) -> Sent<Option<u64>> {
    let make = Sql::new("INSERT IGNORE INTO clinch_meta (ns) VALUES (?)").bytes(&mysql.ns);
    mysql.query(&make).await?;
    let take = Sql::new(format!(
        "UPDATE clinch_meta SET reaped={NOW} WHERE ns=? AND reaped NOT BETWEEN {NOW}-? AND {NOW}"
    ))
    .bytes(&mysql.ns)
    .with(interval);
    if mysql.query(&take).await?.affected(0) != Some(1) {
        return Ok(None);
    }
    let read = Sql::new("SELECT floor FROM clinch_meta WHERE ns=?").bytes(&mysql.ns);
    let row = mysql.query(&read).await?.into_first_row();
    Ok(next_number(&mut row.unwrap_or_default().into_iter()))
}

pub(crate) async fn scan(
    mysql: &MySql,
    from: &[u8],
    age: u64,
    watermark: u64,
    limit: u64,
) -> Sent<Vec<Scanned>> {
    let sql = Sql::new(format!(
        "SELECT name,seq,seq<{NOW}-? AND seq<=?,request='' AND state IS NULL,until<{NOW} \
         FROM clinch_names WHERE ns=? AND name>? ORDER BY name LIMIT ?"
    ))
    .with(age)
    .with(watermark)
    .bytes(&mysql.ns)
    .bytes(from)
    .with(limit);
    let rows = mysql.query(&sql).await?.into_rows();
    let scanned = |row: Vec<Value>| {
        let mut values = row.into_iter();
        Some(Scanned {
            name: bytes(values.next()?)?,
            version: next_number(&mut values)?,
            idle: next_number(&mut values)? > 0,
            free: next_number(&mut values)? > 0,
            expired: next_number(&mut values)? > 0,
        })
    };
    Ok(rows.into_iter().filter_map(scanned).collect())
}

pub(crate) async fn delete(mysql: &MySql, rows: &[Scanned]) -> Sent<()> {
    let mut sql = Sql::default();
    for row in rows {
        sql = sql
            .then("DELETE FROM clinch_names WHERE ns=? AND name=? AND seq=?;")
            .bytes(&mysql.ns)
            .bytes(&row.name)
            .with(row.version);
    }
    sql.text.pop();
    mysql.query(&sql).await.map(drop)
}

pub(crate) async fn raise_watermark(mysql: &MySql, age: u64) -> Sent<()> {
    let raise = Sql::new(format!(
        "UPDATE clinch_meta SET floor=GREATEST(floor,{NOW}-?) WHERE ns=?"
    ))
    .with(age)
    .bytes(&mysql.ns);
    mysql.query(&raise).await.map(drop)
}
