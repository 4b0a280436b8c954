//! Clients that were found dead, and clients whose session file is missing.
//!
//! A client that finds a session file unlocked records its owner here, and removes the file after
//! the commit, because claims of the dead client may be left on other names.
//!
//! A file that is missing without such a record was removed by mistake: then the lease decides, since
//! the client may run. Renewals that were written to the file are lost with it, so a hold is ended
//! only one lease after the file was first missed: by then each of them is over. A client that has
//! made its file again removes the record of the missing file before it relies on the new one.

use std::time::Duration;

use clinch_core::{BootTime, ClientId, Clock};
use rusqlite::{Connection, OptionalExtension, params};

/// How long records are kept: longer than any lease, so no claim of the client can be left.
const KEPT: Duration = Duration::from_secs(8 * 86_400);

/// Whether a client was found dead.
pub(crate) fn is_recorded(db: &Connection, client: ClientId) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM dead WHERE client = ?1";
    let found = db
        .prepare_cached(sql)?
        .query_row([column(client)], |_| Ok(()))
        .optional()?;
    Ok(found.is_some())
}

/// Records dead clients.
pub(crate) fn record(db: &Connection, clients: &[ClientId]) -> rusqlite::Result<()> {
    for client in clients {
        let now = Clock::boot().now();
        let sql = "INSERT OR IGNORE INTO dead (client, found) VALUES (?1, ?2)";
        db.prepare_cached(sql)?
            .execute(params![column(*client), moment(now)])?;
    }
    Ok(())
}

/// Removes records of clients that can have no claim left.
pub(crate) fn remove_old(db: &Connection, now: BootTime) -> rusqlite::Result<()> {
    let sql = "DELETE FROM dead WHERE found < ?1";
    db.execute(sql, [moment(Clock::boot().now() - KEPT)])?;
    let sql = "DELETE FROM missing WHERE since < ?1";
    db.execute(sql, [moment(now - KEPT)]).map(drop)
}

/// When this client's session file was first missed; now, if no client has missed it before.
pub(crate) fn missing_since(
    db: &Connection,
    client: ClientId,
    now: BootTime,
) -> rusqlite::Result<BootTime> {
    let sql = "INSERT OR IGNORE INTO missing (client, since) VALUES (?1, ?2)";
    db.prepare_cached(sql)?
        .execute(params![column(client), moment(now)])?;
    let sql = "SELECT since FROM missing WHERE client = ?1";
    let since: i64 = db
        .prepare_cached(sql)?
        .query_row([column(client)], |row| row.get(0))?;
    Ok(BootTime::from_nanos(
        u64::try_from(since).unwrap_or_default(),
    ))
}

/// Removes the record that this client's session file is missing: it was made again.
pub(crate) fn clear_missing(db: &Connection, client: ClientId) -> rusqlite::Result<()> {
    let sql = "DELETE FROM missing WHERE client = ?1";
    db.prepare_cached(sql)?.execute([column(client)]).map(drop)
}

/// The same 64 bits, as a signed integer of SQLite.
fn column(client: ClientId) -> i64 {
    client.get().cast_signed()
}

fn moment(at: BootTime) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
