//! The statement that releases a plain row.

use clinch_table::{ENDED_BYTES, Release, Reply, Sent};

use crate::dialect::MySql;
use crate::events::unless_watched;
use crate::sql::{NOW, Sql};

/// Releases a hold that no other claim waits for. The new version is returned as the last inserted id.
///
/// Owner and details stay in the row: mostly the same client takes it again, and columns that do not
/// change cost the server nothing.
pub(crate) async fn release(mysql: &MySql, release: &Release<'_>) -> Sent<Reply<Option<u64>>> {
    let sql = Sql::new(format!(
        "UPDATE clinch_names SET ended=RIGHT(CONCAT(ended,?,owner),?),request='',until=0,\
         seq=LAST_INSERT_ID(GREATEST(seq+1,{NOW})) \
         WHERE ns=? AND name=? AND request=? AND token=? AND state IS NULL AND until>{NOW} AND "
    ))
    .bytes(release.record)
    .with(ENDED_BYTES)
    .bytes(&mysql.ns)
    .bytes(release.name.as_str().as_bytes())
    .bytes(release.request)
    .with(release.seq);
    mysql
        .update_one(&unless_watched(sql, &mysql.ns, release.watch))
        .await
}
