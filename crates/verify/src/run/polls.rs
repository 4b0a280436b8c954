//! Looking at what the store lists while the run goes on, for the checker of orphans; and at how busy the
//! machine is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use clinch::store::{LOCAL_BITS, LockView, PartyView};
use clinch::{BootTime, Clinch};

use super::{Run, lock, nanos};
use crate::history::{Event, Lag, Poll, Seen, now};

/// How long nothing is asked between two polls.
const PAUSE: Duration = Duration::from_millis(150);
/// How long between two lists.
const LIST: Duration = Duration::from_secs(1);
/// The names that many want, of all workloads.
const POPULAR: [&str; 24] = [
    "hot",
    "reentrant",
    "fair",
    "read-write",
    "semaphore",
    "election",
    "fenced",
    "unfenced",
    "long/0",
    "long/1",
    "long/2",
    "storm/0",
    "storm/1",
    "storm/2",
    "multi/0",
    "multi/1",
    "multi/2",
    "multi/3",
    "multi/4",
    "multi/5",
    "multi/6",
    "multi/7",
    "multi/8",
    "multi/9",
];
/// How often we look whether we are late.
const BEAT: Duration = Duration::from_millis(50);
/// So much later than asked is nothing to speak of.
const LATE: Duration = Duration::from_millis(30);

/// Who was seen: lock, number of a holder, owner, client.
type Party = (String, Option<u64>, String, String);

impl Run<'_> {
    /// Looks again and again at the names that many want, and at those that a list showed, until the time
    /// is over. Listing a store with a thousand names takes too long to do nothing else.
    pub(super) async fn poll(&self, until: BootTime) {
        let can = self
            .clinch
            .as_ref()
            .filter(|clinch| clinch.info().capabilities.list);
        let Some(clinch) = can else { return };
        let listed = Mutex::new(BTreeSet::new());
        tokio::join!(
            self.list(clinch, &listed, until),
            self.inspect(clinch, &listed, until)
        );
    }

    /// Finds names that are held or waited for.
    async fn list(&self, clinch: &Clinch, listed: &Mutex<BTreeSet<String>>, until: BootTime) {
        while self.rest(LIST, until).await {
            // What fails under a fault says nothing.
            let found = clinch.list(&self.prefix).await.unwrap_or_default();
            let names = found.iter().map(|view| view.name.as_str().to_owned());
            lock(listed).extend(names);
        }
    }

    async fn inspect(&self, clinch: &Clinch, listed: &Mutex<BTreeSet<String>>, until: BootTime) {
        let popular: BTreeSet<_> = POPULAR
            .iter()
            .map(|n| format!("{}{n}", self.prefix))
            .collect();
        let mut present: HashMap<Party, Seen> = HashMap::new();
        while self.rest(PAUSE, until).await {
            let names: BTreeSet<_> = popular.union(&*lock(listed)).cloned().collect();
            let send = now();
            let mut looks = tokio::task::JoinSet::new();
            for name in names {
                let clinch = clinch.clone();
                looks.spawn(async move { (clinch.inspect(&name).await, name) });
            }
            let found = looks.join_all().await;
            if found.iter().any(|(view, _)| view.is_err()) {
                continue;
            }
            let reply = now();
            self.recorder.write(&Event::Poll(Poll { send, reply }));
            for (view, name) in found {
                match view.ok().flatten() {
                    Some(view) => self.see(&view, (send, reply), &mut present),
                    None => {
                        lock(listed).remove(&name);
                    }
                }
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
