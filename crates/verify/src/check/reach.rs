//! Which faults can delay what: those of its own process, those of its lock or slot, and those of the
//! engine as a whole. What happens to another process, or to another slot, delays nothing here.

use super::Index;
use crate::history::{Event, Fault};

/// A moment and how late we were at it.
pub(super) type Late = (u64, u64);

impl<'h> Index<'h> {
    /// The faults that can delay what a process does with a lock.
    pub(super) fn faults_of(
        &self,
        process: Option<u32>,
        lock: &str,
    ) -> impl Iterator<Item = &'h Fault> {
        let slot = slot(self.namespace(), lock);
        self.faults.iter().copied().filter(move |fault| {
            !fault.harmless
                && fault.process.is_none_or(|victim| Some(victim) == process)
                && fault.lock.as_deref().is_none_or(|victim| victim == lock)
                && fault.slots.as_ref().is_none_or(|slots| is_in(slots, slot))
        })
    }

    /// Whether no such fault was near: neither within a time nor within `settle` before it.
    pub(super) fn is_quiet(
        &self,
        (process, lock): (Option<u32>, &str),
        (from, until): (u64, u64),
        settle: u64,
    ) -> bool {
        let mut faults = self.faults_of(process, lock);
        !faults.any(|f| f.at <= until && f.until.saturating_add(settle) >= from)
    }

    /// How long the machine let us wait within a time.
    pub(super) fn lag(&self, (from, until): (u64, u64)) -> u64 {
        let first = self.lags.partition_point(|(at, _)| *at < from);
        let lags = self.lags.iter().skip(first);
        lags.take_while(|(at, by)| at.saturating_sub(*by) <= until)
            .map(|(_, by)| *by)
            .sum()
    }

    pub(super) fn namespace(&self) -> &'h str {
        self.history.start().map_or("", |start| &start.namespace)
    }
}

pub(super) fn lags(events: &[Event]) -> Vec<Late> {
    let lags = events.iter().filter_map(|event| match event {
        Event::Lag(lag) => Some((lag.at, lag.by)),
        _ => None,
    });
    lags.collect()
}

/// The length of what spans cover together within a time.
pub(super) fn covered(mut spans: Vec<(u64, u64)>, (from, until): (u64, u64)) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut reached) = (0, from);
    for (begin, end) in spans {
        let (begin, end) = (begin.max(reached), end.min(until));
        if end > begin {
            sum += end - begin;
            reached = end;
        }
    }
    sum
}

/// Whether a slot is one of these.
pub(super) fn is_in(slots: &[(u16, u16)], slot: u16) -> bool {
    let mut slots = slots.iter();
    slots.any(|(first, last)| (*first..=*last).contains(&slot))
}

/// The slot of a lock on a Redis cluster; of no meaning elsewhere.
pub(super) fn slot(namespace: &str, lock: &str) -> u16 {
    clinch_testkit::servers::slot_of(format!("clinch:{{{namespace}:{lock}}}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::history::{History, Lag};

    fn fault(at: u64, until: u64) -> Fault {
        Fault {
            kind: "trouble".to_owned(),
            at,
            until,
            ..Fault::default()
        }
    }

    fn is_quiet(fault: Fault, process: u32, lock: &str) -> bool {
        let history = History::new(vec![start(), Event::Fault(fault)]);
        Index::new(&history).is_quiet((Some(process), lock), (1000, 2000), 100)
    }

    #[test]
    fn a_fault_reaches_its_process_its_lock_and_its_slots() {
        let of = |process| Fault {
            process: Some(process),
            ..fault(950, 960)
        };
        assert!(is_quiet(of(1), 2, "a") && !is_quiet(of(2), 2, "a"));
        let on = |lock: &str| Fault {
            lock: Some(lock.to_owned()),
            ..fault(950, 960)
        };
        assert!(is_quiet(on("b"), 2, "a") && !is_quiet(on("a"), 2, "a"));
        let mine = slot("", "a");
        let at = |slots| Fault {
            slots: Some(vec![slots]),
            ..fault(950, 960)
        };
        assert!(is_quiet(at((mine + 1, mine + 2)), 2, "a"));
        assert!(!is_quiet(at((mine, mine + 2)), 2, "a"));
    }

    #[test]
    fn it_reaches_as_long_as_it_needs_to_settle_and_not_if_it_is_harmless() {
        assert!(is_quiet(fault(800, 899), 1, "a") && !is_quiet(fault(800, 900), 1, "a"));
        assert!(is_quiet(fault(2001, 3000), 1, "a") && !is_quiet(fault(2000, 3000), 1, "a"));
        let harmless = Fault {
            harmless: true,
            ..fault(1200, 1300)
        };
        assert!(is_quiet(harmless, 1, "a"));
    }

    #[test]
    fn what_overlaps_is_counted_once() {
        let spans = vec![(50, 60), (0, 20), (10, 30), (90, 200)];
        assert_eq!(covered(spans, (5, 100)), 25 + 10 + 10);
        assert_eq!(covered(Vec::new(), (5, 100)), 0);
    }

    #[test]
    fn lag_within_a_time_is_added_up() {
        let lag = |at, by| Event::Lag(Lag { at, by });
        let history = History::new(vec![start(), lag(10, 5), lag(50, 20), lag(90, 7)]);
        let index = Index::new(&history);
        assert_eq!(index.lag((20, 60)), 20);
        assert_eq!(index.lag((0, 100)), 32);
    }
}
