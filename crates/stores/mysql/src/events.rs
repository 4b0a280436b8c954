//! The statements of watchers and of the event log.

use async_trait::async_trait;
use clinch_table::{EventTable, Logged, Sent, Watch};
use mysql_async::Value;

use crate::columns::{bytes, next_number};
use crate::dialect::MySql;
use crate::sql::{NOW, Sql};

/// Whether a client watches the namespace of the next `?`.
pub(crate) const WATCHED: &str = "COALESCE((SELECT watched_until FROM clinch_meta WHERE ns=?),0)>\
    TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))";

/// Appends the condition that no client watches.
pub(crate) fn unless_watched(sql: Sql, ns: &[u8], watch: Watch) -> Sql {
    match watch {
        Watch::NoneBefore(until) => sql.then(&format!("{NOW}<?")).with(until),
        _ => sql.then(&format!("NOT {WATCHED}")).bytes(ns),
    }
}

/// Appends events to the log, if the statement before has changed its row.
pub(crate) fn append(sql: Sql, ns: &[u8], events: &[u8]) -> Sql {
    sql.then(&format!(
        ";INSERT INTO clinch_events (ns,at,told) SELECT ?,{NOW},? FROM DUAL WHERE ROW_COUNT()>0"
    ))
    .bytes(ns)
    .bytes(events)
}

#[async_trait]
impl EventTable for MySql {
    async fn is_watched(&self) -> Sent<(bool, u64)> {
        let sql = Sql::new(format!("SELECT {WATCHED},{NOW}")).bytes(&self.ns);
        let row = self.query(&sql).await?.into_first_row();
        let mut values = row.unwrap_or_default().into_iter();
        match (next_number(&mut values), next_number(&mut values)) {
            (Some(watched), Some(now)) => Ok((watched > 0, now)),
            _ => Ok((true, 0)),
        }
    }

    async fn watch(&self, span: u64) -> Sent<u64> {
        let sql = Sql::new(format!(
            "INSERT INTO clinch_meta (ns,watched_until) VALUES (?,{NOW}+?) ON DUPLICATE KEY UPDATE \
             watched_until=GREATEST(watched_until,VALUES(watched_until));\
             SELECT COALESCE(MAX(id),0) FROM clinch_events"
        ))
        .bytes(&self.ns)
        .with(span);
        let last = self.query(&sql).await?.into_first_row();
        let mut values = last.unwrap_or_default().into_iter();
        Ok(next_number(&mut values).unwrap_or(0))
    }

    async fn events(&self, id: u64, settle: u64, limit: u64) -> Sent<Vec<Logged>> {
        let sql = Sql::new(format!(
            "SELECT id,at<{NOW}-?,IF(ns=?,told,'') FROM clinch_events WHERE id>? ORDER BY id LIMIT ?"
        ))
        .with(settle)
        .bytes(&self.ns)
        .with(id)
        .with(limit);
        let rows = self.query(&sql).await?.into_rows();
        let logged = |row: Vec<Value>| {
            let mut values = row.into_iter();
            Some(Logged {
                id: next_number(&mut values)?,
                settled: next_number(&mut values)? > 0,
                events: bytes(values.next()?)?,
            })
        };
        Ok(rows.into_iter().filter_map(logged).collect())
    }

    async fn trim_events(&self, id: u64, age: u64) -> Sent<()> {
        let sql = format!("DELETE FROM clinch_events WHERE id<? AND at<{NOW}-? LIMIT 1000");
        let sql = Sql::new(sql).with(id).with(age);
        self.query(&sql).await.map(drop)
    }

    async fn expired(&self, limit: u64) -> Sent<Vec<Vec<u8>>> {
        let sql = Sql::new(format!(
            "SELECT name FROM clinch_names WHERE ns=? AND until BETWEEN 1 AND {NOW} \
             AND (request<>'' OR state IS NOT NULL) LIMIT ?"
        ))
        .bytes(&self.ns)
        .with(limit);
        let rows = self.query(&sql).await?.into_rows();
        let name = |row: Vec<Value>| row.into_iter().next().and_then(bytes);
        Ok(rows.into_iter().filter_map(name).collect())
    }
}
