//! The machine's boot: what an earlier one left is void.
//!
//! A reboot is proved by the boot clock that has gone back: all containers of a machine have the
//! same one. The kernel's boot id proves nothing, because some containers have one of their own and
//! some processes cannot read it. An id that was not seen before only makes tokens start above the
//! ceiling, which never harms.
//!
//! Where a reboot is not proved, nothing is lost either: session files of an earlier boot are
//! unlocked, so their clients are found dead; and without a session file a hold ends with its lease.

use std::path::Path;

use clinch_core::machine::{Ended, Entry, NameState, Phase};
use clinch_core::store::Ending;
use clinch_core::{BootTime, Clock, Result};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::{Fail, Step, sql};
use crate::rows::{NameRow, column};
use crate::sequence::{self, key};
use crate::session::{Life, Sessions};

/// How many boot ids are remembered: one for each container that has its own.
const IDS: usize = 64;

/// The id that the kernel draws at each boot; `None` where it cannot be read.
pub(crate) fn id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Says that the machine runs since this long, at least.
pub(crate) fn tick(db: &Connection) -> rusqlite::Result<()> {
    let now = Clock::boot().now().as_nanos();
    sequence::set(db, key::CLOCK, column(now))
}

/// Signs of another boot.
struct Signs {
    /// The boot clock was later than now: the machine has been started since.
    went_back: bool,
    /// The boot ids of this boot so far.
    ids: Vec<String>,
    /// An id that is not among them.
    new: Option<String>,
}

impl Signs {
    fn read(db: &Connection) -> rusqlite::Result<Self> {
        let now = Clock::boot().now().as_nanos();
        let latest = sequence::number(db, key::CLOCK)?.max(sequence::number(db, key::REAPED_AT)?);
        let known: Option<String> = db
            .query_row(
                "SELECT value FROM meta WHERE key = ?1",
                [key::BOOT],
                |row| row.get(0),
            )
            .optional()?;
        let known = known.unwrap_or_default();
        let ids: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
        Ok(Self {
            went_back: now < latest,
            new: id().filter(|id| !ids.contains(id)),
            ids,
        })
    }

    fn is_nothing_new(&self) -> bool {
        !self.went_back && self.new.is_none()
    }

    /// The ids to be remembered from now on.
    fn remembered(mut self) -> String {
        if self.went_back {
            self.ids.clear();
        }
        self.ids.extend(self.new);
        let old = self.ids.len().saturating_sub(IDS);
        self.ids.split_off(old).join(" ")
    }
}

/// Ends the claims of an earlier boot. No process outlives a boot, so once for each opening is
/// enough.
pub(crate) fn void_other_boots(
    db: &Connection,
    path: &Path,
    clock: &Clock,
    sessions: &Sessions,
) -> Result<()> {
    let failed = |error| sql(error, path);
    if Signs::read(db).map_err(failed)?.is_nothing_new() {
        return Ok(());
    }
    // Rare, and durable at once: after it, numbers start anew.
    db.pragma_update(None, "synchronous", "FULL")
        .map_err(failed)?;
    let voided = void(db, path, clock, sessions).map_err(|fail| match fail {
        Fail::Sql(error) => sql(error, path),
        Fail::Refused(error) => error,
    });
    db.pragma_update(None, "synchronous", "NORMAL")
        .map_err(failed)?;
    voided
}

fn void(db: &Connection, path: &Path, clock: &Clock, sessions: &Sessions) -> Step<()> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let signs = Signs::read(db)?;
    if signs.is_nothing_new() {
        // Another process was faster.
        return Ok(transaction.commit()?);
    }
    if signs.went_back {
        on_each(db, path, |state, ceiling| {
            state.last_seq = state.last_seq.max(ceiling);
            void_name(state, clock.now(), sessions);
        })?;
        db.execute_batch("DELETE FROM missing;")?;
        // Times of the old boot mean nothing now.
        sequence::set(db, key::REAPED_AT, 0)?;
        tick(db)?;
    } else if !signs.ids.is_empty() && !any_alive(db, path, sessions)? {
        // Perhaps another container, perhaps a boot that has lasted for longer than the one before.
        on_each(db, path, |state, ceiling| {
            state.last_seq = state.last_seq.max(ceiling);
        })?;
    }
    sequence::set(db, key::BOOT, signs.remembered())?;
    Ok(transaction.commit()?)
}

/// Whether a client that has claims is running: then the machine has not been started since.
fn any_alive(db: &Connection, path: &Path, sessions: &Sessions) -> Step<bool> {
    let mut after = 0;
    loop {
        let rows = NameRow::batch(db, path, after, 500)?;
        if rows.count == 0 {
            return Ok(false);
        }
        after = rows.last;
        let mut entries = rows.sound.iter().flat_map(|row| &row.state.entries);
        if entries.any(|entry| sessions.look(entry.client.id) == Life::Alive) {
            return Ok(true);
        }
    }
}

/// Applies a change to every name, and sees to it that tokens start above the ceiling.
fn on_each(db: &Connection, path: &Path, mut change: impl FnMut(&mut NameState, u64)) -> Step<()> {
    let ceiling = sequence::number(db, key::CEILING)?;
    sequence::raise(db, key::FLOOR, ceiling)?;
    let mut after = 0;
    loop {
        let rows = NameRow::batch(db, path, after, 500)?;
        if rows.count == 0 {
            return Ok(());
        }
        after = rows.last;
        // A damaged name stays refused, whatever the boot.
        for mut row in rows.sound() {
            change(&mut row.state, ceiling);
            row.save(db, "")?;
        }
    }
}

/// Ends every claim as expired now, but not those of a client that is running. A hold's lock-delay
/// starts now, because nobody knows for how long the machine was off.
fn void_name(state: &mut NameState, now: BootTime, sessions: &Sessions) {
    let alive = |entry: &Entry| sessions.look(entry.client.id) == Life::Alive;
    // Times of the old boot.
    state.ended.clear();
    for entry in &mut state.entries {
        if !entry.is_delayed() && alive(entry) {
            continue;
        }
        let seq = match entry.phase {
            Phase::Held { seq } | Phase::Delayed { seq } => seq,
            Phase::Waiting => 0,
        };
        if let Some(seq) = entry.seq() {
            state.ended.push(Ended {
                request: entry.request,
                seq: Some(seq),
                owner: entry.owner.clone(),
                ending: Ending::Expired,
                at: now,
                keep: now,
            });
        }
        // A waiter's place and a spent delay are not worth keeping.
        let keeps = entry.phase != Phase::Waiting && !entry.lock_delay.is_zero();
        entry.phase = Phase::Delayed { seq };
        entry.since = now;
        entry.until = if keeps { now + entry.lock_delay } else { now };
    }
    state
        .entries
        .retain(|entry| !entry.is_delayed() || entry.until > now);
}
