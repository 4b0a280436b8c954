//! The statement that renews many holds.

use std::time::Duration;

use clinch_core::RequestId;
use clinch_core::store::Hold;
use clinch_table::{Sent, id};

use crate::columns::{bytes, next_number};
use crate::connection::{Mode, Response};
use crate::dialect::MySql;
use crate::sql::{NOW, Sql};

/// Renews the holds of plain rows; returns which of them are renewed.
///
/// Rows are locked in the order of the primary key.
pub(crate) async fn renew(
    mysql: &MySql,
    holds: &[&Hold],
    lease: u64,
    timeout: Duration,
) -> Sent<Vec<(RequestId, u64)>> {
    let names = || holds.iter().map(|hold| hold.name.as_str().as_bytes());
    let mut sql = Sql::new(format!(
        "SET @clinch={NOW};UPDATE clinch_names SET until=@clinch+?,lease=?,seq=GREATEST(seq+1,{NOW}) \
         WHERE ns=? AND name IN ("
    ))
    .with(lease)
    .with(lease)
    .bytes(&mysql.ns)
    .list(names())
    .then(") AND state IS NULL AND until>@clinch AND (request,token) IN (");
    let mut comma = "";
    for hold in holds {
        sql = sql
            .then(comma)
            .then("(?,?)")
            .bytes(&id(hold.request))
            .with(hold.seq);
        comma = ",";
    }
    // A row that was not plain a moment ago may match now without having been renewed: its time tells.
    let sql = sql
        .then(
            ");SELECT request,token FROM clinch_names WHERE state IS NULL AND until>=@clinch+? \
             AND ns=? AND name IN (",
        )
        .with(lease)
        .bytes(&mysql.ns)
        .list(names())
        .then(")");
    let sent = mysql.pool.send_within(&sql, Mode::Text, timeout).await;
    let response = sent.and_then(Response::complete);
    let rows = response.map_err(|error| mysql.failure(error))?.into_rows();
    let renewed = |row: Vec<_>| {
        let mut values = row.into_iter();
        let request: [u8; 16] = bytes(values.next()?)?.try_into().ok()?;
        let request = RequestId::from_u128(u128::from_be_bytes(request));
        Some((request, next_number(&mut values)?))
    };
    Ok(rows.into_iter().filter_map(renewed).collect())
}
