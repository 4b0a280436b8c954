//! Counting what the workers ask of the store, for the checker of herds.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch::BootTime;

use super::{Run, TICK, lock};
use crate::history::{Event, Requests, now};

/// How long one count lasts.
const WINDOW: Duration = Duration::from_secs(1);
/// How many counts are made before the first fault.
const CALM: u64 = 2;

impl Run<'_> {
    /// The most requests that an acquisition may cost: what the dearest of our stores needs, with
    /// some air. Locks that poll promise nothing of the kind.
    pub(super) fn promised_requests(&self) -> Option<u64> {
        let promised = match self.wrong() {
            Some(wrong) => wrong.requests(),
            None => Some(8),
        };
        promised.filter(|_| self.route.counts_requests())
    }

    /// Leaves clients alone until their requests were counted, for half of the time at most: later
    /// there is hardly a second without a fault nearby. A wrong lock is disturbed at once, so that
    /// its fault shows soon.
    pub(super) async fn calm(&self, until: BootTime) {
        if self.wrong().is_some() || self.promised_requests().is_none() {
            return;
        }
        let half = self.clock.now() + self.options.span / 2;
        while self.counted.load(Ordering::Relaxed) < CALM && self.rest(TICK, half.min(until)).await
        {
        }
    }

    /// Records how many requests were answered in each second, until the time is over.
    pub(super) async fn count(&self, until: BootTime) {
        let mut seen = self.requests();
        let mut from = now();
        while self.promised_requests().is_some() && self.rest(WINDOW, until).await {
            let (at, present) = (now(), self.requests());
            // Of a new worker only what comes after its first second counts; what a worker asked
            // in the second in which it was killed is not known, and not judged.
            let added = present.iter().map(|(process, requests)| {
                let before = seen.get(process).unwrap_or(requests);
                requests.saturating_sub(*before)
            });
            let count = added.sum();
            let event = Event::Requests(Requests { from, at, count });
            self.recorder.write(&event);
            self.counted.fetch_add(1, Ordering::Relaxed);
            (seen, from) = (present, at);
        }
    }

    /// What each worker has asked so far.
    fn requests(&self) -> HashMap<u32, u64> {
        let members = lock(&self.members);
        let each = members.iter();
        each.map(|(member, way)| (member.process, way.requests()))
            .collect()
    }
}
