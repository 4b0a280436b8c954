//! Turns at writing a row, for those who keep losing the race to write it.
//!
//! A turn is a user-level lock of the row. While somebody has it, the writes of all others do nothing
//! (`names::if_no_turn`), so that they lose and queue for a turn in their turn. It decides nothing:
//! each write still demands that the row has not changed. Whoever stops with a turn is not waited for:
//! his connection is ended after a second, and the turn with it.

use std::time::Duration;

use crate::error::Trouble;
use crate::pool::{How, Line};
use crate::row::{Key, optional};
use crate::sql::{Sql, names};

/// For how long a turn is waited for, at most.
const WAIT: Duration = Duration::from_secs(1);

/// Waits for a turn. `false` if others have had theirs for all that time.
pub(crate) async fn take(
    line: &mut Line<'_>,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Trouble> {
    let seconds = match timeout > WAIT {
        true => WAIT.as_secs(),
        false => 0,
    };
    let reply = line.query(&names::turn(key, seconds)).await?;
    let mut values = reply.into_first_row().unwrap_or_default().into_iter();
    let mut number = || values.next().and_then(optional).flatten();
    let (got, before, after) = (number(), number(), number());
    if got == Some(1) {
        return Ok(true);
    }
    match (before, after) {
        (Some(before), Some(after)) if before == after && seconds > 0 => {
            tracing::debug!(connection = after, "a turn is not ended: its connection is");
            let kill = Sql::new(format!("KILL CONNECTION {after}"));
            // Another user's cannot be ended. Then the write is made as if there were no turns.
            line.send(&kill, How::TextOnce).await.map(|_| true)
        }
        _ => Ok(false),
    }
}

/// Lets the next one have his turn.
pub(crate) async fn end(line: &mut Line<'_>, key: &Key) -> Result<(), Trouble> {
    line.query(&names::end_turn(key)).await.map(drop)
}
