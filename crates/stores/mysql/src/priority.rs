//! Priority at writing a row, for clients that keep losing the race to write it.
//!
//! Priority is a user-level lock of the row. While a client has it, the writes of all others do nothing
//! ([`if_none`]), so that they lose and queue for priority as well. It decides nothing: each write still
//! demands the row's version. So a client waits for a second at most and then goes ahead without it. If one
//! connection had priority for the whole second, its client has stopped: the connection is killed, or ignored
//! if that is not allowed. User-level locks belong to the server, so an account without any right on the
//! tables can take one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::{Clock, Name};
use clinch_kit::lock;

use crate::columns::next_number;
use crate::connection::{Mode, Route};
use crate::dialect::MySql;
use crate::error::RequestError;
use crate::sql::{Sql, user_lock};

/// How long priority is waited for, at most; and the part of the time that a step has.
const WAIT: Duration = Duration::from_secs(1);
const PART: u32 = 4;
/// The interval between two polls, where the server cannot wait: it does so for whole seconds only.
const POLL: Duration = Duration::from_millis(10);
/// Rows with a stuck connection that are remembered.
const MOST: usize = 1024;

/// The connections that did not end their priority.
#[derive(Debug, Default)]
pub(crate) struct Stuck(Mutex<HashMap<Name, u64>>);

/// The outcome of waiting.
enum Waited {
    Ours,
    /// This connection had priority at the beginning and at the end, or was stuck before.
    Stuck(u64),
    Others,
}

impl Stuck {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, u64>> {
        lock(&self.0)
    }

    fn add(&self, name: &Name, connection: u64) {
        let mut all = self.all();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(name.clone(), connection);
    }
}

/// The user-level lock of a row. Its name must be the same in all versions of clinch.
fn lock_of(mysql: &MySql, name: &Name) -> String {
    let name = name.as_str().as_bytes();
    user_lock("turn", [mysql.ns.as_slice(), b"/", name])
}

/// For a write: no client has priority at the row.
pub(crate) fn if_none(mysql: &MySql, name: &Name) -> String {
    format!(" AND IS_FREE_LOCK('{}')", lock_of(mysql, name))
}

/// Waits for priority, for a bounded time.
pub(crate) async fn take(
    mysql: &MySql,
    route: &mut Route<'_>,
    name: &Name,
    patience: Duration,
) -> Result<(), RequestError> {
    let stuck = &mysql.stuck;
    let lock = lock_of(mysql, name);
    let known = stuck.all().get(name).copied().unwrap_or(0);
    let wait = WAIT.min(patience / PART);
    let waited = match wait == WAIT {
        true => request(route, &lock, WAIT.as_secs(), known).await?,
        false => poll(route, &lock, wait, known).await?,
    };
    match waited {
        Waited::Stuck(connection) if connection != known => {
            tracing::debug!(connection, "a connection keeps its priority");
            stuck.add(name, connection);
            if wait == WAIT {
                // That of another user cannot be killed: it is ignored from now on.
                let kill = Sql::new(format!("KILL CONNECTION {connection}"));
                route.send(&kill, Mode::TextOnce).await?;
            }
        }
        Waited::Stuck(_) | Waited::Others => {}
        Waited::Ours => {
            stuck.all().remove(name);
        }
    }
    Ok(())
}

/// Waits for `seconds` in the server, unless `known` has the lock. The statement returns 1 if this
/// connection has got it, and the connections that had it before and have it afterwards.
async fn request(
    route: &mut Route<'_>,
    lock: &str,
    seconds: u64,
    known: u64,
) -> Result<Waited, RequestError> {
    let sql = Sql::new(format!(
        "SET @clinch=COALESCE(IS_USED_LOCK('{lock}'),0);\
         SELECT IF(@clinch={known} AND @clinch<>0,0,GET_LOCK('{lock}',{seconds})),@clinch,\
         IS_USED_LOCK('{lock}')"
    ));
    let row = route.query(&sql).await?.into_first_row();
    let mut values = row.unwrap_or_default().into_iter();
    let mut number = || next_number(&mut values);
    Ok(match (number(), number(), number()) {
        (Some(1), ..) => Waited::Ours,
        (_, Some(before), Some(after)) if before == after => Waited::Stuck(after),
        (_, Some(before), _) if before == known && known != 0 => Waited::Stuck(known),
        _ => Waited::Others,
    })
}

/// Polls, for less than a second.
async fn poll(
    route: &mut Route<'_>,
    lock: &str,
    wait: Duration,
    known: u64,
) -> Result<Waited, RequestError> {
    let clock = Clock::boot();
    let end = clock.now() + wait;
    let mut same = None;
    loop {
        match request(route, lock, 0, known).await? {
            Waited::Ours => return Ok(Waited::Ours),
            Waited::Stuck(connection) if connection == known => return Ok(Waited::Stuck(known)),
            // At this poll; another one may have had it at the poll before.
            Waited::Stuck(connection) if same.is_none_or(|other| other == connection) => {
                same = Some(connection);
            }
            Waited::Stuck(_) | Waited::Others => same = Some(0),
        }
        if clock.now() >= end {
            return Ok(match same {
                Some(0) | None => Waited::Others,
                Some(connection) => Waited::Stuck(connection),
            });
        }
        clock.sleep(POLL).await;
    }
}

/// Ends the priority of this connection.
pub(crate) async fn end(mysql: &MySql, name: &Name, mut route: Route<'_>) {
    let sql = Sql::new(format!("DO RELEASE_LOCK('{}')", lock_of(mysql, name)));
    // Otherwise the connection is closed, which ends its priority as well.
    if route.query(&sql).await.is_ok() {
        route.keep();
    }
}
