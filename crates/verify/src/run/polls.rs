//! Looking at what the store lists while the run goes on, for the checker of orphans; and at how busy the
//! machine is.

use std::collections::HashMap;
use std::time::Duration;

use clinch::store::{LockView, PartyView};
use clinch::{BootTime, LOCAL_BITS};

use super::{Run, lock, nanos};
use crate::history::{Event, Lag, Poll, Seen, now};

/// How long nothing is asked between two polls.
const PAUSE: Duration = Duration::from_millis(150);
/// How often we look whether we are late.
const BEAT: Duration = Duration::from_millis(50);
/// So much later than asked is nothing to speak of.
const LATE: Duration = Duration::from_millis(30);

/// Who was seen: lock, number of a holder, owner, client.
type Party = (String, Option<u64>, String, String);

impl Run<'_> {
    /// Lists the store again and again until the time is over.
    pub(super) async fn poll(&self, until: BootTime) {
        let can = self
            .clinch
            .as_ref()
            .filter(|clinch| clinch.info().capabilities.list);
        let Some(clinch) = can else { return };
        let mut present: HashMap<Party, Seen> = HashMap::new();
        while self.rest(PAUSE, until).await {
            let send = now();
            // What fails under a fault says nothing.
            let Ok(found) = clinch.list(&self.prefix).await else {
                continue;
            };
            let reply = now();
            self.recorder.write(&Event::Poll(Poll { send, reply }));
            for view in &found {
                self.see(view, (send, reply), &mut present);
            }
            let gone = |_: &Party, seen: &mut Seen| seen.until < send;
            for (_, seen) in present.extract_if(gone) {
                self.recorder.write(&Event::Seen(seen));
            }
        }
        for seen in present.into_values() {
            self.recorder.write(&Event::Seen(seen));
        }
    }

    fn see(&self, view: &LockView, (send, reply): (u64, u64), present: &mut HashMap<Party, Seen>) {
        let name = view.name.as_str();
        let holders = view.holders.iter().map(|party| {
            let seq = party.token.map(|token| token.get() >> LOCAL_BITS);
            (party, Some(seq.unwrap_or(0)))
        });
        let waiters = view.waiters.iter().map(|party| (party, None));
        for (party, seq) in holders.chain(waiters) {
            let owner = party.owner.as_str().to_owned();
            let client = format!("{:?}", party.client);
            let seen = present.entry((name.to_owned(), seq, owner.clone(), client));
            let seen = seen.or_insert_with(|| Seen {
                lock: name.to_owned(),
                seq,
                owner,
                process: self.process_of(party),
                from: reply,
                until: send,
            });
            seen.until = send;
        }
    }

    /// Which of our workers it is.
    fn process_of(&self, party: &PartyView) -> Option<u32> {
        lock(&self.pids).get(&party.pid).copied()
    }

    /// Records when the machine lets us wait: nobody else is quicker then.
    pub(super) async fn beat(&self, until: BootTime) {
        let mut asked = self.clock.now() + BEAT;
        while self.rest(BEAT, until).await {
            let late = self.clock.now().since(asked);
            if late > LATE {
                let (at, by) = (now(), nanos(late));
                self.recorder.write(&Event::Lag(Lag { at, by }));
            }
            asked = self.clock.now() + BEAT;
        }
    }
}
