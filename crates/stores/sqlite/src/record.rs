//! The record of one name: its rows, and the state that the machine works on.

use std::path::Path;

use clinch_core::machine::codec::{Decoder, Encoder};
use clinch_core::machine::{Entry, NameState, Phase};
use clinch_core::{Error, Name};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, params};

use crate::error::{Fail, Step, damaged, is_misfit};

/// The first byte of each blob.
const FORMAT: u8 = 1;
/// The columns that [`NameRecord::read`] takes, in order.
const COLUMNS: &str = "id, name, waiting, state";

/// One name, with its rows as loaded, to write only what has changed.
#[derive(Debug)]
pub(crate) struct NameRecord {
    /// The row, if the name has one.
    id: Option<i64>,
    /// The state to be changed.
    pub(crate) state: NameState,
    blob: Vec<u8>,
    waiters: Queue,
}

impl NameRecord {
    /// Loads a name; one without rows is new.
    pub(crate) fn load(db: &Connection, path: &Path, ns: &str, name: &Name) -> Step<Self> {
        const SQL: &str = "SELECT id, name, waiting, state FROM names WHERE ns = ?1 AND name = ?2";
        let found = db
            .prepare_cached(SQL)?
            .query_row(params![ns, name.as_str()], |row| Ok(Columns::of(row)))
            .optional()?;
        match found {
            Some(columns) => {
                let read = columns.and_then(|columns| Self::decode(db, name.clone(), columns));
                read.map_err(|bad| bad.into_fail(path, name.as_str()))
            }
            None => Ok(Self {
                id: None,
                state: NameState::new(name.clone()),
                blob: Vec::new(),
                waiters: Vec::new(),
            }),
        }
    }

    /// Loads the names in use of a namespace that start with `prefix`, in byte order.
    pub(crate) fn in_use(db: &Connection, path: &Path, ns: &str, prefix: &str) -> Step<Records> {
        let sql = format!(
            "SELECT {COLUMNS} FROM names WHERE ns = ?1 AND name >= ?2 AND live > 0 ORDER BY name"
        );
        Self::all(db, path, &sql, params![ns, prefix], |name| {
            name.starts_with(prefix.as_bytes())
        })
    }

    /// Loads every name with a row number above `after`, at most `count` of them.
    pub(crate) fn batch(db: &Connection, path: &Path, after: i64, count: u32) -> Step<Records> {
        let sql = format!("SELECT {COLUMNS} FROM names WHERE id > ?1 ORDER BY id LIMIT ?2");
        Self::all(db, path, &sql, params![after, count], |_| true)
    }

    fn all(
        db: &Connection,
        path: &Path,
        sql: &str,
        params: &[&dyn rusqlite::ToSql],
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Step<Records> {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut found = Records::default();
        while let Some(row) = rows.next()? {
            let name = match row.get_ref(1)? {
                ValueRef::Text(name) | ValueRef::Blob(name) => name,
                _ => b"",
            };
            // Sorted by name: the first one without the prefix ends the range.
            if !wanted(name) {
                break;
            }
            found.last = row.get(0)?;
            found.count += 1;
            match Self::read(db, row) {
                Ok(row) => found.sound.push(row),
                Err(Unread::Sql(error)) => return Err(Fail::Sql(error)),
                Err(Unread::Damaged) => {
                    let name = String::from_utf8_lossy(name);
                    found.damaged.push(damaged(path, &name));
                }
            }
        }
        Ok(found)
    }

    fn read(db: &Connection, row: &SqlRow<'_>) -> Result<Self, Unread> {
        let name: String = row.get(1)?;
        let name = Name::new(name).map_err(|_| Unread::Damaged)?;
        Self::decode(db, name, Columns::of(row)?)
    }

    fn decode(db: &Connection, name: Name, columns: Columns) -> Result<Self, Unread> {
        let Columns { id, waiting, blob } = columns;
        let mut state = NameState::new(name);
        read_state(&blob, &mut state).ok_or(Unread::Damaged)?;
        let mut waiters = Vec::new();
        if waiting > 0 {
            const SQL: &str = "SELECT entry FROM waiters WHERE id = ?1 ORDER BY ticket";
            let mut statement = db.prepare_cached(SQL)?;
            let mut rows = statement.query([id])?;
            while let Some(row) = rows.next()? {
                let bytes: Vec<u8> = row.get(0)?;
                let entry = Decoder::new(&bytes).entry().ok_or(Unread::Damaged)?;
                waiters.push((entry.ticket, bytes));
                state.entries.push(entry);
            }
            state.entries.sort_by_key(|entry| entry.ticket);
        }
        Ok(Self {
            id: Some(id),
            state,
            blob,
            waiters,
        })
    }

    /// Whether the name has no row yet.
    pub(crate) fn is_new(&self) -> bool {
        self.id.is_none()
    }

    /// Writes what has changed since it was loaded or saved, and nothing if nothing has.
    pub(crate) fn save(&mut self, db: &Connection, ns: &str) -> Step<()> {
        let blob = write_state(&self.state);
        let queue = encode_waiters(&self.state);
        let live = column(self.state.entries.len() as u64);
        let waiting = column(queue.len() as u64);
        let id = match self.id {
            None if self.state.entries.is_empty() && self.state.ended.is_empty() => return Ok(()),
            None => {
                const SQL: &str = "INSERT INTO names (ns, name, live, waiting, state)
                    VALUES (?1, ?2, ?3, ?4, ?5)";
                db.prepare_cached(SQL)?.insert(params![
                    ns,
                    self.state.name.as_str(),
                    live,
                    waiting,
                    blob
                ])?
            }
            Some(id) if blob == self.blob && queue.len() == self.waiters.len() => id,
            Some(id) => {
                const SQL: &str =
                    "UPDATE names SET live = ?2, waiting = ?3, state = ?4 WHERE id = ?1";
                db.prepare_cached(SQL)?
                    .execute(params![id, live, waiting, blob])?;
                id
            }
        };
        save_waiters(db, id, &self.waiters, &queue)?;
        (self.id, self.blob, self.waiters) = (Some(id), blob, queue);
        Ok(())
    }

    /// Removes the name's rows.
    pub(crate) fn remove(self, db: &Connection) -> Step<()> {
        if let Some(id) = self.id {
            db.prepare_cached("DELETE FROM waiters WHERE id = ?1")?
                .execute([id])?;
            db.prepare_cached("DELETE FROM names WHERE id = ?1")?
                .execute([id])?;
        }
        Ok(())
    }
}

/// Several names. Those that cannot be read are kept apart: they must not affect the others.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) sound: Vec<NameRecord>,
    /// The errors of the others.
    pub(crate) damaged: Vec<Error>,
    /// The number of the last row; 0 if there is none.
    pub(crate) last: i64,
    /// How many rows there are, including damaged ones.
    pub(crate) count: usize,
}

impl Records {
    /// The names that can be read; logs a warning for each of the others.
    pub(crate) fn sound(self) -> Vec<NameRecord> {
        for error in self.damaged {
            tracing::warn!(%error, "a name is skipped");
        }
        self.sound
    }
}

/// The columns of a name, except the name itself.
struct Columns {
    id: i64,
    waiting: i64,
    blob: Vec<u8>,
}

impl Columns {
    fn of(row: &SqlRow<'_>) -> Result<Self, Unread> {
        Ok(Self {
            id: row.get(0)?,
            waiting: row.get(2)?,
            blob: row.get(3)?,
        })
    }
}

/// Why a name was not read.
enum Unread {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// The content was not written by clinch.
    Damaged,
}

impl From<rusqlite::Error> for Unread {
    fn from(error: rusqlite::Error) -> Self {
        match is_misfit(&error) {
            true => Self::Damaged,
            false => Self::Sql(error),
        }
    }
}

impl Unread {
    fn into_fail(self, path: &Path, name: &str) -> Fail {
        match self {
            Self::Sql(error) => Fail::Sql(error),
            Self::Damaged => Fail::Refused(damaged(path, name)),
        }
    }
}

/// The queue in ticket order: ticket and row.
type Queue = Vec<(u64, Vec<u8>)>;

fn save_waiters(db: &Connection, id: i64, before: &Queue, after: &Queue) -> Step<()> {
    let find = |queue: &Queue, ticket| queue.binary_search_by_key(&ticket, |(t, _)| *t).ok();
    for (ticket, _) in before {
        if find(after, *ticket).is_none() {
            db.prepare_cached("DELETE FROM waiters WHERE id = ?1 AND ticket = ?2")?
                .execute(params![id, column(*ticket)])?;
        }
    }
    for (ticket, bytes) in after {
        let old = find(before, *ticket).and_then(|at| before.get(at));
        if old.is_none_or(|(_, old)| old != bytes) {
            const SQL: &str =
                "INSERT OR REPLACE INTO waiters (id, ticket, entry) VALUES (?1, ?2, ?3)";
            db.prepare_cached(SQL)?
                .execute(params![id, column(*ticket), bytes])?;
        }
    }
    Ok(())
}

fn encode_waiters(state: &NameState) -> Queue {
    let waiting = state.entries.iter().filter(|e| e.phase == Phase::Waiting);
    let encode = |entry: &Entry| {
        let mut encoder = Encoder::new();
        encoder.entry(entry);
        (entry.ticket, encoder.finish())
    };
    waiting.map(encode).collect()
}

/// A number as SQLite stores it. Tickets and tokens never come near 63 bits.
pub(crate) fn column(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Everything but the queue.
fn write_state(state: &NameState) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.byte(FORMAT);
    encoder.number(state.last_seq);
    encoder.number(state.ended.len() as u64);
    state.ended.iter().for_each(|ended| encoder.ended(ended));
    let standing = state.entries.iter().filter(|e| e.phase != Phase::Waiting);
    standing.for_each(|entry| encoder.entry(entry));
    encoder.finish()
}

fn read_state(blob: &[u8], state: &mut NameState) -> Option<()> {
    let mut decoder = Decoder::new(blob);
    if decoder.byte()? != FORMAT {
        return None;
    }
    state.last_seq = decoder.number()?;
    for _ in 0..decoder.number()? {
        state.ended.push(decoder.ended()?);
    }
    while !decoder.is_empty() {
        state.entries.push(decoder.entry()?);
    }
    Some(())
}
