//! Reads and compare-and-set writes of single rows.

use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Name;
use clinch_table::{Row, Rows, Sent, Watch, Write, corrupt_row};
use mysql_async::Value;

use crate::columns::{self, COLUMNS};
use crate::connection::{Mode, Response, Route};
use crate::dialect::MySql;
use crate::error::RequestError;
use crate::events::{self, unless_watched};
use crate::priority;
use crate::sql::{NOW, Sql};
use crate::wakes::waker;

/// Rows, on any connection or on the one that has priority.
pub(crate) struct MySqlRows<'p> {
    pub(crate) mysql: &'p MySql,
    pub(crate) route: Route<'p>,
    /// The row on which this connection has priority.
    pub(crate) priority: Option<Name>,
}

impl MySqlRows<'_> {
    async fn send(&mut self, sql: &Sql, mode: Mode) -> Sent<Response> {
        let sent = self.route.send(sql, mode).await;
        sent.map_err(|error| self.mysql.failure(error))
    }

    /// A request that may be repeated, with a complete response.
    async fn query(&mut self, sql: &Sql, mode: Mode) -> Sent<Response> {
        let response = self.send(sql, mode).await?.complete();
        response.map_err(|error| self.mysql.failure(error))
    }
}

#[async_trait]
impl Rows for MySqlRows<'_> {
    async fn read(&mut self, name: &Name, watch: Watch) -> Sent<Row> {
        if watch != Watch::Unknown {
            let sql = select(self.mysql, name);
            let response = self.query(&sql, Mode::Prepared).await?;
            let slack = response.took;
            if let Some(values) = response.into_first_row() {
                return as_row(values, slack, name);
            }
        }
        let sql = select_with_meta(self.mysql, name);
        let response = self.query(&sql, Mode::Text).await?;
        let slack = response.took;
        as_row(response.into_first_row().unwrap_or_default(), slack, name)
    }

    async fn create(&mut self, name: &Name, version: u64) -> Sent<()> {
        let sql = Sql::new(format!(
            "INSERT IGNORE INTO clinch_names \
             (ns,name,request,lease,since,until,seq,token,owner,details,ended) \
             VALUES (?,?,'',0,0,0,\
             GREATEST({NOW},?,COALESCE((SELECT floor FROM clinch_meta WHERE ns=?),0)+1),\
             0,'','','')"
        ))
        .bytes(&self.mysql.ns)
        .bytes(name.as_str().as_bytes())
        .with(version)
        .bytes(&self.mysql.ns);
        self.query(&sql, Mode::Text).await.map(drop)
    }

    /// Writes the row, logs the events and wakes the first client, all in one request.
    async fn write(&mut self, write: &Write<'_>) -> Sent<bool> {
        let mut sql = update(self.mysql, write);
        if let Route::Any(..) = self.route {
            sql = sql.then(&priority::if_none(self.mysql, write.name));
        }
        if let Some(before) = write.before {
            sql = sql.then(&format!(" AND {NOW}<{before}"));
        }
        if write.unexpired {
            sql = sql.then(&format!(" AND until>{NOW}"));
        }
        let mut at = 0;
        if let Some(events) = write.events {
            // One transaction, so that events are visible in the order in which they happened; and one
            // request, so that it does not stay open.
            sql = events::append(sql, &self.mysql.ns, events).in_transaction();
            at = 1;
        }
        if let Some(first) = write.notify.first() {
            sql = sql.then(";").then(&match at {
                0 => waker::wake_if_written(*first),
                _ => waker::wake(*first),
            });
        }
        let response = self.send(&sql, Mode::TextOnce).await?;
        let lost = |why: &str| RequestError::Lost(why.to_owned());
        let Some(affected) = response.affected(at) else {
            let error = response
                .failed
                .unwrap_or_else(|| lost("there was no reply"));
            return Err(self.mysql.failure(error));
        };
        // Without the commit nothing has happened, as far as is known.
        if at == 1
            && response.sets.len() < 4
            && let Some(error) = response.failed
        {
            return Err(self.mysql.failure(error));
        }
        if affected > 0 {
            waker::notify(self.mysql, write.notify.get(1..).unwrap_or_default());
        }
        Ok(affected > 0)
    }

    async fn finish(self: Box<Self>) {
        if let Some(name) = &self.priority {
            priority::end(self.mysql, name, self.route).await;
        }
    }
}

/// The row with the time, if there is one.
fn select(mysql: &MySql, name: &Name) -> Sql {
    Sql::new(format!(
        "SELECT {COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name=?"
    ))
    .bytes(&mysql.ns)
    .bytes(name.as_str().as_bytes())
}

/// The row with the time, whether the namespace is watched, and its watermark; one line in any case.
fn select_with_meta(mysql: &MySql, name: &Name) -> Sql {
    Sql::new(format!(
        "SELECT n.seq,n.token,n.request,n.since,n.until,n.lease,n.details,n.ended,n.state,{NOW},\
         COALESCE(m.watched_until,0)>{NOW},COALESCE(m.floor,0) \
         FROM (SELECT 1 one) o LEFT JOIN clinch_meta m ON m.ns=? \
         LEFT JOIN clinch_names n ON n.ns=? AND n.name=?"
    ))
    .bytes(&mysql.ns)
    .bytes(&mysql.ns)
    .bytes(name.as_str().as_bytes())
}

/// Writes a row that has its version still.
fn update(mysql: &MySql, write: &Write<'_>) -> Sql {
    let new = write.content;
    let sql = Sql::new(
        "UPDATE clinch_names SET seq=?,token=?,request=?,since=?,until=?,lease=?,owner=?,details=?,\
         ended=?,state=? WHERE ns=? AND name=? AND seq=?",
    )
    .with(write.version)
    .with(new.seq)
    .bytes(&new.request)
    .with(new.since)
    .with(new.until)
    .with(new.lease)
    .bytes(&new.owner)
    .bytes(&new.details)
    .bytes(&new.ended)
    .with(new.state.clone())
    .bytes(&mysql.ns)
    .bytes(write.name.as_str().as_bytes())
    .with(write.expected);
    match write.watch {
        Watch::Watched => sql,
        other => unless_watched(sql.then(" AND "), &mysql.ns, other),
    }
}

fn as_row(values: Vec<Value>, slack: Duration, name: &Name) -> Sent<Row> {
    let row = columns::row(values, slack);
    row.ok_or_else(|| corrupt_row(name.as_str()).into())
}
