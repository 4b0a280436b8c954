//! Sequence numbers that never fall.
//!
//! A grant's number is `max(last of the name + 1, microseconds since 2020, floor + 1)`.
//!
//! - The *floor* is the highest number of any name whose row has been removed. It is consulted when
//!   a name gets a row, so a name that was removed continues above its old numbers, also when the
//!   wall clock has stepped back since.
//! - The *ceiling* is a number that no token has reached yet, written durably (one flush to disk
//!   about once a minute). A power cut may lose the last commits, and the wall clock may be wrong
//!   after it: the first client to open the file then starts every name above the ceiling.

use std::sync::Arc;

use clinch_core::machine::Sequence;
use clinch_core::{MAX_SEQ, sequence_micros};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use crate::record::column;

/// How far ahead of the clock the ceiling is set, in microseconds.
const AHEAD: u64 = 120_000_000;
/// With less than this left, it is time to raise it in the background.
const LOW: u64 = 60_000_000;

/// Reads the wall clock; tests have their own.
pub(crate) type Micros = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The real clock.
pub(crate) fn wall() -> Micros {
    Arc::new(sequence_micros)
}

/// The numbers that this process has given, and may give.
pub(crate) struct Numbers {
    micros: Micros,
    /// The durable ceiling as last read: it may be higher by now.
    ceiling: u64,
    /// The highest number that this process has given.
    highest: u64,
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Numbers")
            .field("ceiling", &self.ceiling)
            .field("highest", &self.highest)
            .finish_non_exhaustive()
    }
}

impl Numbers {
    pub(crate) fn new(micros: Micros) -> Self {
        Self {
            micros,
            ceiling: 0,
            highest: 0,
        }
    }

    /// Sets the ceiling as read from the file.
    pub(crate) fn set_ceiling(&mut self, ceiling: u64) {
        self.ceiling = ceiling;
    }

    /// Whether a number given now would reach the ceiling.
    pub(crate) fn must_raise(&self) -> bool {
        (self.micros)().max(self.highest) >= self.ceiling
    }

    /// Whether a number that was given has reached the ceiling: it may not be visible yet.
    pub(crate) fn is_uncovered(&self) -> bool {
        self.highest >= self.ceiling && self.highest > 0
    }

    /// Whether the ceiling should be raised soon.
    pub(crate) fn should_raise(&self) -> bool {
        (self.micros)().max(self.highest) + LOW >= self.ceiling
    }

    /// The next ceiling.
    pub(crate) fn target(&self) -> u64 {
        ((self.micros)().max(self.highest) + AHEAD).min(MAX_SEQ)
    }

    /// The highest number that this process has given.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// The source of numbers for one name; `floor` counts for a name without a row.
    pub(crate) fn above(&mut self, floor: u64) -> Above<'_> {
        Above {
            numbers: self,
            floor,
        }
    }
}

/// Numbers above a floor.
#[derive(Debug)]
pub(crate) struct Above<'a> {
    numbers: &'a mut Numbers,
    floor: u64,
}

impl Sequence for Above<'_> {
    fn next(&mut self, after: u64) -> u64 {
        let seq = (self.numbers.micros)()
            .max(after + 1)
            .max(self.floor + 1)
            .min(MAX_SEQ);
        self.numbers.highest = self.numbers.highest.max(seq);
        seq
    }
}

/// The keys of the `meta` table.
pub(crate) mod key {
    /// The ids of this boot: see `boot.rs`.
    pub(crate) const BOOT: &str = "boot";
    /// The boot clock when the ceiling was last raised.
    pub(crate) const CLOCK: &str = "clock";
    /// The log that all clients write to: see `log.rs`.
    pub(crate) const LOG: &str = "log";
    pub(crate) const CEILING: &str = "ceiling";
    pub(crate) const FLOOR: &str = "floor";
    /// The row at which the last cleanup stopped.
    pub(crate) const CLEANED: &str = "reaped";
    /// When that was, on the boot clock.
    pub(crate) const CLEANED_AT: &str = "reaped-at";
}

/// A number of the `meta` table; 0 if there is none.
pub(crate) fn number(db: &Connection, key: &str) -> rusqlite::Result<u64> {
    let value: Option<i64> = db
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(u64::try_from(value.unwrap_or_default()).unwrap_or_default())
}

/// A value of the `meta` table as text; empty if there is none.
pub(crate) fn text(db: &Connection, key: &str) -> rusqlite::Result<String> {
    let value: Option<String> = db
        .prepare_cached("SELECT CAST(value AS TEXT) FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(value.unwrap_or_default())
}

/// Writes a value of the `meta` table.
pub(crate) fn set(db: &Connection, key: &str, value: impl ToSql) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute(params![key, value])?;
    Ok(())
}

/// Raises a number of the `meta` table; never lowers it. Returns what it is now.
pub(crate) fn raise(db: &Connection, key: &str, to: u64) -> rusqlite::Result<u64> {
    let now = number(db, key)?;
    if to <= now {
        return Ok(now);
    }
    set(db, key, column(to))?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn numbers_rise_whatever_the_clock_does() {
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let hand = clock.clone();
        let mut numbers = Numbers::new(Arc::new(move || hand.load(Ordering::SeqCst)));
        let first = numbers.above(0).next(0);
        assert_eq!(first, 1_000_000_000);
        clock.store(5, Ordering::SeqCst);
        assert_eq!(numbers.above(0).next(first), first + 1);
        // A removed name: only the floor covers it.
        assert_eq!(numbers.above(first + 7).next(0), first + 8);
    }

    #[test]
    fn no_number_is_given_at_or_above_the_ceiling() {
        let clock = Arc::new(AtomicU64::new(1_000_000_000));
        let hand = clock.clone();
        let mut numbers = Numbers::new(Arc::new(move || hand.load(Ordering::SeqCst)));
        assert!(numbers.must_raise());
        numbers.set_ceiling(numbers.target());
        assert!(!numbers.must_raise() && !numbers.should_raise());
        clock.fetch_add(LOW, Ordering::SeqCst);
        assert!(!numbers.must_raise() && numbers.should_raise());
        // The clock steps back by an hour: the old numbers still count.
        let high = numbers.target() - 1;
        numbers.above(0).next(high);
        clock.store(0, Ordering::SeqCst);
        assert!(numbers.must_raise());
        assert!(numbers.target() > high + 1);
    }
}
