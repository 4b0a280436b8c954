//! The connection that waits in the server until this client is woken.

use std::time::Duration;

use clinch_core::Name;
use clinch_table::{Names, Row};
use mysql_async::Conn;

use super::blocker::Blocker;
use super::{occupy, request, waker};
use crate::columns::{COLUMNS, named_row, number};
use crate::dialect::MySql;
use crate::error::RequestError;
use crate::sql::{NOW, Sql};

/// How many seconds the statement waits if no client wakes it.
const WAIT: u64 = 30;
/// What it returns if it got the lock that the blocker should have.
const GOT_LOCK: u64 = 1;

/// A connection that holds this client's address. Other clients kill whatever it runs, so it runs nothing
/// but reads and waits.
///
/// Each of its requests is one statement. Of several, MariaDB leaves out the rest if `KILL QUERY` comes
/// between two of them, and does not report it: the client would wait for them for ever.
pub(super) struct Parked<'m> {
    mysql: &'m MySql,
    blocker: &'m Blocker,
    conn: Conn,
}

impl<'m> Parked<'m> {
    pub(super) async fn connect(
        mysql: &'m MySql,
        blocker: &'m Blocker,
    ) -> Result<Self, RequestError> {
        Ok(Self {
            conn: occupy(mysql, &waker::address(mysql.client)).await?,
            mysql,
            blocker,
        })
    }

    /// The rows of these names.
    pub(super) async fn read(
        &mut self,
        names: &Names,
    ) -> Result<Vec<(Vec<u8>, Row)>, RequestError> {
        let sql = Sql::new(format!(
            "SELECT name,{COLUMNS},{NOW} FROM clinch_names WHERE ns=? AND name IN ("
        ))
        .bytes(&self.mysql.ns)
        .list(bytes_of(names))
        .then(")");
        // As text if there are many: each number of names would be another statement to prepare.
        let is_prepared = names.len() == 1;
        let longer = Duration::ZERO;
        let response = request(self.mysql, &mut self.conn, &sql, is_prepared, longer).await?;
        let rows = response.into_rows().into_iter();
        let row = |values| {
            let (name, row) = named_row(values, Duration::ZERO)?;
            Some((name, row?))
        };
        Ok(rows.filter_map(row).collect())
    }

    /// Waits for a wake, unless one of the names has granted a sequence number since: they rise, so their
    /// sum tells.
    pub(super) async fn wait(&mut self, names: &Names, sum: u64) -> Result<(), RequestError> {
        let sql = Sql::new(
            "SELECT IF((SELECT COALESCE(SUM(token),0) FROM clinch_names WHERE ns=? AND name IN (",
        )
        .bytes(&self.mysql.ns)
        .list(bytes_of(names))
        .then(&format!(
            "))<>?,0,GET_LOCK('{}',{WAIT}))",
            self.blocker.lock
        ))
        .with(sum);
        // As text, because it stays for long: MySQL cannot show the process list while a prepared
        // statement with bytes in it runs.
        let longer = Duration::from_secs(WAIT);
        let response = request(self.mysql, &mut self.conn, &sql, false, longer).await?;
        match response.into_first_value().and_then(number).flatten() {
            Some(GOT_LOCK) => Err(RequestError::Lost("the blocker is lost".to_owned())),
            _ => Ok(()),
        }
    }
}

fn bytes_of(names: &Names) -> impl Iterator<Item = &[u8]> {
    names.keys().map(|name: &Name| name.as_str().as_bytes())
}
