//! Turns at writing a row, for those who keep losing the race to write it.
//!
//! A turn is a user-level lock of the row. While somebody has it, the writes of all others do nothing
//! (`names::if_no_turn`), so that they lose and queue for a turn in their turn. It decides nothing:
//! each write still demands that the row has not changed. So nobody waits long for a turn: a client
//! whose turn has not come within a second goes ahead without it. If one connection had it for all that
//! time, its client has stopped: the connection is ended, or ignored where that is not allowed.
//! User-level locks are the server's, so an account without any rights on the tables can take one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::Clock;

use crate::error::Trouble;
use crate::pool::{How, Line};
use crate::row::{Key, optional};
use crate::sql::{Sql, names};

/// For how long a turn is waited for, at most; and which part of the time that a step has.
const WAIT: Duration = Duration::from_secs(1);
const PART: u32 = 4;
/// Between two looks, where the server cannot wait: it does so for whole seconds only.
const LOOK: Duration = Duration::from_millis(10);
/// Rows of which it is known who has stopped.
const MOST: usize = 1024;

/// The connections that did not end their turns.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Key, u64>>);

/// What came of waiting.
enum Waited {
    Ours,
    /// This connection had the turn at the beginning and at the end, or has stopped before.
    Stuck(u64),
    Others,
}

impl Turns {
    fn stuck(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ignore(&self, key: &Key, connection: u64) {
        let mut stuck = self.stuck();
        if stuck.len() >= MOST {
            stuck.clear();
        }
        stuck.insert(key.clone(), connection);
    }

    /// Waits for a turn, for a bounded time.
    pub(crate) async fn take(
        &self,
        line: &mut Line<'_>,
        key: &Key,
        patience: Duration,
    ) -> Result<(), Trouble> {
        let known = self.stuck().get(key).copied().unwrap_or(0);
        let wait = WAIT.min(patience / PART);
        let waited = match wait == WAIT {
            true => ask(line, key, WAIT.as_secs(), known).await?,
            false => poll(line, key, wait, known).await?,
        };
        match waited {
            Waited::Stuck(connection) if connection != known => {
                tracing::debug!(connection, "a turn is not ended");
                self.ignore(key, connection);
                if wait == WAIT {
                    // Another user's cannot be ended: it is ignored from now on.
                    let kill = Sql::new(format!("KILL CONNECTION {connection}"));
                    line.send(&kill, How::TextOnce).await?;
                }
            }
            Waited::Stuck(_) | Waited::Others => {}
            Waited::Ours => {
                self.stuck().remove(key);
            }
        }
        Ok(())
    }
}

async fn ask(line: &mut Line<'_>, key: &Key, seconds: u64, known: u64) -> Result<Waited, Trouble> {
    let reply = line.query(&names::turn(key, seconds, known)).await?;
    let mut values = reply.into_first_row().unwrap_or_default().into_iter();
    let mut number = || values.next().and_then(optional).flatten();
    Ok(match (number(), number(), number()) {
        (Some(1), ..) => Waited::Ours,
        (_, Some(before), Some(after)) if before == after => Waited::Stuck(after),
        (_, Some(before), _) if before == known && known != 0 => Waited::Stuck(known),
        _ => Waited::Others,
    })
}

/// Looks again and again, for less than a second.
async fn poll(
    line: &mut Line<'_>,
    key: &Key,
    wait: Duration,
    known: u64,
) -> Result<Waited, Trouble> {
    let clock = Clock::boot();
    let end = clock.now() + wait;
    let mut same = None;
    loop {
        match ask(line, key, 0, known).await? {
            Waited::Ours => return Ok(Waited::Ours),
            Waited::Stuck(connection) if connection == known => return Ok(Waited::Stuck(known)),
            // At this look; perhaps another one had it at the one before.
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
        clock.sleep(LOOK).await;
    }
}

/// Lets the next one have its turn.
pub(crate) async fn end(line: &mut Line<'_>, key: &Key) -> Result<(), Trouble> {
    line.query(&names::end_turn(key)).await.map(drop)
}
