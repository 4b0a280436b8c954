//! The machine's boot: claims of an earlier boot are void.
//!
//! If the boot clock has gone back, the machine was rebooted: all containers of a machine share that
//! clock. The kernel's boot id proves nothing, because some containers have one of their own and some
//! processes cannot read it. A new id only makes tokens start above the ceiling, which never harms.
//!
//! A reboot that is not detected costs nothing: session files of an earlier boot are unlocked, so
//! their clients are found dead; and without a session file a hold ends with its lease.

use std::path::Path;

use clinch_core::machine::{Ended, Entry, NameState, Phase};
use clinch_core::store::Ending;
use clinch_core::{BootTime, Clock, Result};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::{Fail, Step, sql};
use crate::record::{NameRecord, column};
use crate::sequence::{self, key};
use crate::session::{Liveness, Sessions};

/// How many boot ids are kept: one for each container that has its own.
const IDS: usize = 64;

/// The kernel's random id of this boot; `None` if it cannot be read.
pub(crate) fn id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Records the boot clock: a later, lower value proves a reboot.
pub(crate) fn record_clock(db: &Connection) -> rusqlite::Result<()> {
    let now = Clock::boot().now().as_nanos();
    sequence::set(db, key::CLOCK, column(now))
}

/// Signs of another boot.
struct Signs {
    /// The recorded boot clock is later than now: the machine was rebooted.
    went_back: bool,
    /// The boot ids of this boot so far.
    ids: Vec<String>,
    /// An id that is not among them.
    new: Option<String>,
}

impl Signs {
    fn read(db: &Connection) -> rusqlite::Result<Self> {
        let now = Clock::boot().now().as_nanos();
        let latest = sequence::number(db, key::CLOCK)?.max(sequence::number(db, key::CLEANED_AT)?);
        let recorded: Option<String> = db
            .query_row(
                "SELECT value FROM meta WHERE key = ?1",
                [key::BOOT],
                |row| row.get(0),
            )
            .optional()?;
        let recorded = recorded.unwrap_or_default();
        let ids: Vec<String> = recorded.split_whitespace().map(str::to_owned).collect();
        Ok(Self {
            went_back: now < latest,
            new: id().filter(|id| !ids.contains(id)),
            ids,
        })
    }

    fn is_empty(&self) -> bool {
        !self.went_back && self.new.is_none()
    }

    /// The ids to record from now on.
    fn into_ids(mut self) -> String {
        if self.went_back {
            self.ids.clear();
        }
        self.ids.extend(self.new);
        let old = self.ids.len().saturating_sub(IDS);
        self.ids.split_off(old).join(" ")
    }
}

/// Ends the claims of an earlier boot. A process does not outlive its boot, so one check at each
/// opening is enough.
pub(crate) fn void_other_boots(
    db: &Connection,
    path: &Path,
    clock: &Clock,
    sessions: &Sessions,
) -> Result<()> {
    let failed = |error| sql(error, path);
    if Signs::read(db).map_err(failed)?.is_empty() {
        return Ok(());
    }
    // Rare, and durable at once: afterwards numbers start above the ceiling.
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
    if signs.is_empty() {
        // Another process did it meanwhile.
        return Ok(transaction.commit()?);
    }
    if signs.went_back {
        on_each(db, path, |state, ceiling| {
            state.last_seq = state.last_seq.max(ceiling);
            void_name(state, clock.now(), sessions);
        })?;
        db.execute_batch("DELETE FROM missing;")?;
        // Times of the old boot have no meaning now.
        sequence::set(db, key::CLEANED_AT, 0)?;
        record_clock(db)?;
    } else if !signs.ids.is_empty() && !any_alive(db, path, sessions)? {
        // Another container, or a boot that already lasts longer than the one before.
        on_each(db, path, |state, ceiling| {
            state.last_seq = state.last_seq.max(ceiling);
        })?;
    }
    sequence::set(db, key::BOOT, signs.into_ids())?;
    Ok(transaction.commit()?)
}

/// Whether a client with claims is running: then the machine was not rebooted.
fn any_alive(db: &Connection, path: &Path, sessions: &Sessions) -> Step<bool> {
    let mut after = 0;
    loop {
        let records = NameRecord::batch(db, path, after, 500)?;
        if records.count == 0 {
            return Ok(false);
        }
        after = records.last;
        let mut entries = records
            .sound
            .iter()
            .flat_map(|record| &record.state.entries);
        if entries.any(|entry| sessions.liveness(entry.client.id) == Liveness::Alive) {
            return Ok(true);
        }
    }
}

/// Applies a change to every name, and raises the floor to the ceiling for names without a row.
fn on_each(db: &Connection, path: &Path, mut change: impl FnMut(&mut NameState, u64)) -> Step<()> {
    let ceiling = sequence::number(db, key::CEILING)?;
    sequence::raise(db, key::FLOOR, ceiling)?;
    let mut after = 0;
    loop {
        let records = NameRecord::batch(db, path, after, 500)?;
        if records.count == 0 {
            return Ok(());
        }
        after = records.last;
        // A damaged name stays refused.
        for mut record in records.sound() {
            change(&mut record.state, ceiling);
            record.save(db, "")?;
        }
    }
}

/// Ends all claims as expired now, except those of running clients. A hold's lock-delay starts now,
/// because it is not known how long the machine was off.
fn void_name(state: &mut NameState, now: BootTime, sessions: &Sessions) {
    let alive = |entry: &Entry| sessions.liveness(entry.client.id) == Liveness::Alive;
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
        // A waiter's place and a spent delay are not kept.
        let keeps = entry.phase != Phase::Waiting && !entry.lock_delay.is_zero();
        entry.phase = Phase::Delayed { seq };
        entry.since = now;
        entry.until = if keeps { now + entry.lock_delay } else { now };
    }
    state
        .entries
        .retain(|entry| !entry.is_delayed() || entry.until > now);
}
