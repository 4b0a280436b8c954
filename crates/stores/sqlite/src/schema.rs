//! The tables, and how a database file becomes a store.

use std::path::Path;
use std::time::Duration;

use clinch_core::{Clock, Error, ErrorKind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::error::{corrupt, is_busy, sql};

/// Marks the file as ours, in its header: "clin".
pub(crate) const APPLICATION_ID: i32 = 0x636c_696e;
/// The version of the tables.
pub(crate) const VERSION: i32 = 2;
/// Older versions can corrupt a file that two processes write (the WAL-reset race).
pub(crate) const OLDEST_SQLITE: i32 = 3_051_003;

/// A name's holders and tombstones are one blob, and its queue is one row per waiter: an
/// uncontended claim touches one page, and a long queue is not rewritten with every step.
///
/// `names` is an ordinary table with an index and not `WITHOUT ROWID`, because the blob would
/// spill over the quarter page that such a table keeps in place.
const TABLES: &str = "
CREATE TABLE names (
    id      INTEGER PRIMARY KEY,
    ns      TEXT NOT NULL,
    name    TEXT NOT NULL,
    live    INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    state   BLOB NOT NULL,
    UNIQUE (ns, name)
);
CREATE TABLE waiters (
    id     INTEGER NOT NULL,
    ticket INTEGER NOT NULL,
    entry  BLOB NOT NULL,
    PRIMARY KEY (id, ticket)
) WITHOUT ROWID;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value NOT NULL
) WITHOUT ROWID;
CREATE TABLE dead (
    client INTEGER PRIMARY KEY,
    found  INTEGER NOT NULL
);
CREATE TABLE missing (
    client INTEGER PRIMARY KEY,
    since  INTEGER NOT NULL
);
CREATE TABLE watchers (
    client INTEGER PRIMARY KEY
);
CREATE TABLE events (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    ns    TEXT NOT NULL,
    name  TEXT NOT NULL,
    kind  TEXT NOT NULL,
    owner TEXT NOT NULL,
    host  TEXT NOT NULL,
    pid   INTEGER NOT NULL,
    label TEXT,
    token INTEGER,
    value TEXT
);
";

/// Refuses a SQLite library that can corrupt the file.
pub(crate) fn check_version(number: i32) -> Result<()> {
    if number >= OLDEST_SQLITE {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "this program is linked with SQLite {}, which can corrupt a file that several processes write",
            rusqlite::version()
        ),
    )
    .with_advice("build it with SQLite 3.51.3 or later (the `bundled` one is)"))
}

/// Longest wait of an opening for other processes that open or create the file.
pub(crate) const OPEN_WAIT: Duration = Duration::from_secs(5);

/// Opens the file, which `file::prepare` has found to be ours or empty, and returns whether the tables
/// were created just now. The connection waits for others by itself until [`stop_waiting`].
pub(crate) fn connect(path: &Path) -> Result<(Connection, bool)> {
    let failed = |error| sql(error, path);
    let connection = open_raw(path).map_err(failed)?;
    connection.busy_timeout(OPEN_WAIT).map_err(failed)?;
    // The mark before the version: another process may be making the file, and sets both at once.
    let mut made = false;
    if pragma(&connection, "application_id").map_err(failed)? != APPLICATION_ID {
        made = create(&connection, path)?;
    }
    if pragma(&connection, "user_version").map_err(failed)? < VERSION {
        upgrade(&connection).map_err(failed)?;
    }
    let version = pragma(&connection, "user_version").map_err(failed)?;
    if version != VERSION {
        return Err(too_new(path, version));
    }
    switch_to_log(&connection, path)?;
    tune(&connection).map_err(failed)?;
    // The first read of a table opens the log and its index, and locks the file as long as the
    // connection lives.
    let read = connection.query_row("SELECT count(*) FROM meta", [], |_| Ok(()));
    read.map_err(failed)?;
    Ok((connection, made))
}

/// From now on SQLite does not wait for other processes; the writer thread does.
pub(crate) fn stop_waiting(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)
}

/// A connection without waiting and without any setting.
pub(crate) fn open_raw(path: &Path) -> rusqlite::Result<Connection> {
    // Without the URI flag: a path is a path, whatever it contains. One thread at a time uses
    // the connection, so SQLite's own mutexes are left out.
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Settings that each connection needs.
///
/// `synchronous = NORMAL`: a commit is safe from a crash of the process at once, and from a power
/// cut after the next checkpoint. That is enough: a power cut ends every hold, so a lost tail cannot
/// revive one, and the ceiling of `sequence.rs` keeps tokens rising.
pub(crate) fn tune(connection: &Connection) -> rusqlite::Result<()> {
    // A short process must not pay for a checkpoint when it ends; see `cleanup.rs`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;")
}

pub(crate) fn too_new(path: &Path, version: i32) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} was written by a newer clinch (format {version}, this one reads {VERSION}); it was left untouched",
            path.display()
        ),
    )
    .with_advice("upgrade clinch, or give another path")
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Creates the tables. The header is written in rollback mode before the log is switched on, so that
/// the main file is marked as ours from its first commit.
fn create(connection: &Connection, path: &Path) -> Result<bool> {
    let failed = |error| sql(error, path);
    let transaction =
        Transaction::new_unchecked(connection, TransactionBehavior::Exclusive).map_err(failed)?;
    // Another process may have made them while we waited.
    let made = pragma(&transaction, "application_id").map_err(failed)? != APPLICATION_ID;
    if made {
        let tables: i64 = transaction
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        if tables > 0 {
            return Err(corrupt(path, "it is a database of another application"));
        }
        transaction
            .execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; {TABLES}"
            ))
            .map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    Ok(made)
}

/// Adds the table that version 1 did not have: it renewed holds in the database only.
fn upgrade(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if pragma(&transaction, "user_version")? == 1 {
        transaction.execute_batch(
            "CREATE TABLE missing (client INTEGER PRIMARY KEY, since INTEGER NOT NULL);
             PRAGMA user_version = 2;",
        )?;
    }
    transaction.commit()
}

/// Makes sure that the log is in use. Every client does it: the one that created the tables may not
/// have done it yet, or may have died before.
fn switch_to_log(connection: &Connection, path: &Path) -> Result<()> {
    let clock = Clock::boot();
    let since = clock.now();
    let mode: String = loop {
        let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
        match mode {
            // SQLite does not wait here by itself: two processes would wait for each other.
            Err(error) if is_busy(&error) && clock.now().since(since) < OPEN_WAIT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            mode => break mode.map_err(|error| sql(error, path))?,
        }
    };
    if mode != "wal" {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the file system of {} cannot share a write-ahead log (journal mode {mode})",
                path.display()
            ),
        )
        .with_advice("give a path on a local disk"));
    }
    Ok(())
}
