//! Clients that were found dead.
//!
//! Whoever finds a session file unlocked writes the client down here, and removes the file after
//! the commit, because claims of that client may be left on other names. A file that is missing
//! without such a row was removed by mistake: then the lease decides, since the client may run.

use std::time::Duration;

use clinch_core::{BootTime, ClientId, Clock};
use rusqlite::{Connection, OptionalExtension, params};

/// Longer than any lease: no claim of such a client can be left.
const KEPT: Duration = Duration::from_secs(8 * 86_400);

/// Whether a client was found dead.
pub(crate) fn is_known(db: &Connection, client: ClientId) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM dead WHERE client = ?1";
    let found = db
        .prepare_cached(sql)?
        .query_row([column(client)], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// Writes dead clients down.
pub(crate) fn remember(db: &Connection, clients: &[ClientId]) -> rusqlite::Result<()> {
    for client in clients {
        let now = Clock::boot().now();
        let sql = "INSERT OR IGNORE INTO dead (client, found) VALUES (?1, ?2)";
        db.prepare_cached(sql)?
            .execute(params![column(*client), moment(now)])?;
    }
    Ok(())
}

/// Forgets those of whom nothing can be left.
pub(crate) fn forget_old(db: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM dead WHERE found < ?1";
    db.execute(sql, [moment(Clock::boot().now() - KEPT)])
        .map(drop)
}

/// The same 64 bits, as SQLite keeps them.
fn column(client: ClientId) -> i64 {
    client.get().cast_signed()
}

fn moment(at: BootTime) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
