//! How a client that waits is woken: two connections for all its claims.
//!
//! The *parked connection* holds a user-level lock whose name is the client's address, and runs a statement
//! that waits for a second user-level lock. The *blocker*, another connection, holds that one, so the wait
//! ends only by timeout or by `KILL QUERY`. A client that grants to the waiting one is a *waker*: it kills the
//! query of the connection that holds the address.
//!
//! ```text
//!   waiting client                         server                    client that releases
//!
//!   blocker ── GET_LOCK(client.peg) ─────▶ held
//!   parked ─── GET_LOCK(client) ─────────▶ held: the address
//!   parked ─── SELECT rows ──────────────▶ sequence numbers 7, 9
//!   parked ─── IF(sum<>16, 0, ───────────▶ 16: waits
//!              GET_LOCK(client.peg, 30))   ┆
//!                                          ┆ ◀─── UPDATE row (grants 10);
//!   parked ◀── interrupted ──────────────  × ◀─── KILL QUERY of the address
//!   parked ─── SELECT rows ──────────────▶ 10: granted
//!   claim  ◀── Wake::Granted
//! ```
//!
//! A wake between the SELECT and the wait is not lost: the sum has changed by then, and the statement
//! returns at once. A wake at any other moment interrupts a read, which is repeated.
//!
//! The wait is not `SLEEP()`: all sleepers of a server share one mutex, and a `KILL QUERY` that finds it
//! taken retries for up to two seconds. Each wait for a lock has a mutex of its own.

mod blocker;
mod parked;
pub(crate) mod waker;

use std::time::Duration;

use clinch_table::Waiters;
use mysql_async::Conn;
use tokio::time::timeout;

use crate::columns::number;
use crate::connection::{Response, exchange};
use crate::dialect::MySql;
use crate::error::RequestError;
use crate::sql::Sql;
use blocker::Blocker;
use parked::Parked;

/// How long the connections are kept if no claim waits.
const LINGER: Duration = Duration::from_secs(20);

/// Listens until no claim waits, or a connection is lost.
pub(crate) async fn listen(mysql: &MySql, waiters: &Waiters) -> Result<(), RequestError> {
    let blocker = Blocker::connect(mysql).await?;
    let mut parked = Parked::connect(mysql, &blocker).await?;
    let mut arrivals = waiters.arrivals();
    let mut must_read = false;
    // The rows that were read last, unless something has happened since.
    let mut last = None;
    loop {
        // From here on, every claim that is registered is read before the wait.
        arrivals.borrow_and_update();
        let names = waiters.names();
        if !names.is_empty() {
            waiters.listening();
        }
        // A claim that was just queued came with the sequence number of its name.
        let known = names.values().copied().sum::<Option<u64>>();
        let waited = match (known.filter(|_| !must_read), last.take()) {
            // A client that was granted mostly claims again soon, and is woken without a new wait.
            (_, Some((names, sum))) if waiters.is_empty() => parked.wait(&names, sum).await,
            _ if names.is_empty() => match timeout(LINGER, arrivals.changed()).await {
                Ok(Ok(())) => continue,
                _ => return Ok(()),
            },
            (Some(sum), _) => parked.wait(&names, sum).await,
            (None, _) => match parked.read(&names).await {
                Ok(rows) => {
                    let sum = waiters.read(&names, rows);
                    last = Some((names, sum));
                    must_read = false;
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match waited {
            Ok(()) => must_read = true,
            // Whatever it has interrupted, the rows are read next.
            Err(error) if error.is_interrupted() => must_read = true,
            Err(error) => return Err(error),
        }
    }
}

/// A new connection that holds a user-level lock, which no other connection should have.
async fn occupy(mysql: &MySql, lock: &str) -> Result<Conn, RequestError> {
    let mut conn = mysql.pool.connect().await.map_err(RequestError::Unsent)?;
    let sql = Sql::new(format!("SELECT GET_LOCK('{lock}',0)"));
    let response = request(mysql, &mut conn, &sql, false, Duration::ZERO).await?;
    match response.into_first_value().and_then(number).flatten() {
        Some(1) => Ok(conn),
        _ => Err(RequestError::Lost(format!("the lock {lock} is taken"))),
    }
}

/// One statement on a connection outside of the pool, which may take `longer` than others.
async fn request(
    mysql: &MySql,
    conn: &mut Conn,
    sql: &Sql,
    prepared: bool,
    longer: Duration,
) -> Result<Response, RequestError> {
    mysql.pool.count();
    let patience = mysql.pool.timeout() + longer;
    match timeout(patience, exchange(conn, sql, prepared)).await {
        Ok(response) => response.complete(),
        Err(_) => Err(RequestError::Lost(
            "the parked connection is not answered".to_owned(),
        )),
    }
}
