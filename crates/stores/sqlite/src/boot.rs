//! The machine's boot: what an earlier one left is void.

use std::path::Path;

use clinch_core::machine::{Ended, NameState, Phase};
use clinch_core::store::Ending;
use clinch_core::{BootTime, Clock, Result};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::{Fail, Step, sql};
use crate::rows::NameRow;
use crate::sequence::{self, key};

/// The id that the kernel draws at each boot.
pub(crate) fn current() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // Without one (another kernel, no /proc) leases alone end old holds.
    id.map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

/// Ends every claim if the file was last used under another boot. No process outlives a boot, so
/// once for each opening is enough.
pub(crate) fn void_other_boots(db: &Connection, path: &Path, clock: &Clock) -> Result<()> {
    let boot = current();
    let failed = |error| sql(error, path);
    if recorded(db).map_err(failed)?.as_deref() == Some(&boot) {
        return Ok(());
    }
    // Rare, and durable at once: after it, numbers start anew.
    db.pragma_update(None, "synchronous", "FULL")
        .map_err(failed)?;
    let voided = void(db, path, clock, &boot).map_err(|fail| match fail {
        Fail::Sql(error) => sql(error, path),
        Fail::Refused(error) => error,
    });
    db.pragma_update(None, "synchronous", "NORMAL")
        .map_err(failed)?;
    voided
}

fn recorded(db: &Connection) -> rusqlite::Result<Option<String>> {
    db.query_row(
        "SELECT value FROM meta WHERE key = ?1",
        [key::BOOT],
        |row| row.get(0),
    )
    .optional()
}

fn void(db: &Connection, path: &Path, clock: &Clock, boot: &str) -> Step<()> {
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let known = recorded(db)?;
    if known.as_deref() == Some(boot) {
        // Another process was faster.
        return Ok(transaction.commit()?);
    }
    if known.is_some() {
        let ceiling = sequence::number(db, key::CEILING)?;
        sequence::raise(db, key::FLOOR, ceiling)?;
        void_names(db, path, ceiling, clock.now())?;
        db.execute_batch("DELETE FROM watchers; DELETE FROM events; DELETE FROM dead;")?;
    }
    sequence::set(db, key::BOOT, boot)?;
    // Times of the old boot mean nothing now.
    sequence::set(db, key::REAPED_AT, 0)?;
    Ok(transaction.commit()?)
}

fn void_names(db: &Connection, path: &Path, ceiling: u64, now: BootTime) -> Step<()> {
    let mut after = 0;
    loop {
        let rows = NameRow::batch(db, path, after, 500)?;
        if rows.count == 0 {
            return Ok(());
        }
        after = rows.last;
        // A damaged name stays refused, whatever the boot.
        for mut row in rows.sound() {
            if row.state.entries.is_empty() {
                // The floor remembers its numbers.
                row.forget(db)?;
            } else {
                void_name(&mut row.state, ceiling, now);
                row.save(db, "")?;
            }
        }
    }
}

/// Ends every claim as expired now; a hold's lock-delay starts now, because nobody knows for how
/// long the machine was off.
fn void_name(state: &mut NameState, ceiling: u64, now: BootTime) {
    state.last_seq = state.last_seq.max(ceiling);
    state.ended.clear();
    for entry in &mut state.entries {
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
    state.entries.retain(|entry| entry.until > now);
}
