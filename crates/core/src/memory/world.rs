//! The names of a memory store, and who listens to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::machine::{NameState, Outcome, Sequence};
use crate::store::{EventSender, Events, LockView, Wake, WakeSender, Wakes};
use crate::{BootTime, ClientId, Name, RequestId};

/// A name within its namespace.
pub(super) type Key = (Arc<str>, Name);

#[derive(Debug, Default)]
pub(super) struct World {
    names: BTreeMap<Key, NameState>,
    sequence: Micros,
    wakers: HashMap<RequestId, WakeSender>,
    watchers: Vec<Watcher>,
    /// What the last steps did and nobody has been told yet, with the namespace.
    pending: Vec<(Arc<str>, Outcome)>,
}

#[derive(Debug)]
struct Watcher {
    namespace: Arc<str>,
    prefix: String,
    sender: EventSender,
}

/// `max(last + 1, microseconds)`: rises also after the data was lost.
#[derive(Debug, Default)]
struct Micros {
    last: u64,
}

impl Sequence for Micros {
    fn next(&mut self, after: u64) -> u64 {
        self.last = crate::time::sequence_micros()
            .max(self.last + 1)
            .max(after + 1);
        self.last
    }
}

impl World {
    /// Applies a step to one name, and forgets the name if nothing of it is left.
    pub(super) fn on<T>(
        &mut self,
        key: &Key,
        step: impl FnOnce(&mut NameState, &mut dyn Sequence, &mut Outcome) -> T,
    ) -> T {
        let mut out = Outcome::default();
        let state = self
            .names
            .entry(key.clone())
            .or_insert_with(|| NameState::new(key.1.clone()));
        let reply = step(state, &mut self.sequence, &mut out);
        if state.entries.is_empty() && state.ended.is_empty() {
            self.names.remove(key);
        }
        self.pending.push((key.0.clone(), out));
        reply
    }

    pub(super) fn list(&self, namespace: &str, prefix: &str, now: BootTime) -> Vec<LockView> {
        self.names
            .iter()
            .filter(|((ns, name), _)| &**ns == namespace && name.as_str().starts_with(prefix))
            .filter_map(|(_, state)| state.view(now))
            .collect()
    }

    pub(super) fn waker(&mut self, request: RequestId) -> Wakes {
        let (sender, wakes) = Wakes::channel();
        self.wakers.retain(|_, waker| !waker.is_closed());
        self.wakers.insert(request, sender);
        wakes
    }

    pub(super) fn watch(&mut self, namespace: Arc<str>, prefix: &str) -> Events {
        let (sender, events) = Events::channel();
        self.watchers.push(Watcher {
            namespace,
            prefix: prefix.to_owned(),
            sender,
        });
        events
    }

    /// Ends what a client left, as a server does when a session ends.
    pub(super) fn client_closed(&mut self, client: ClientId, now: BootTime) {
        let keys: Vec<Key> = self
            .names
            .iter()
            .filter(|(_, state)| state.entries.iter().any(|e| e.client.id == client))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.on(&key, |name, sequence, out| {
                name.client_died(client, now, sequence, out)
            });
        }
    }

    /// Tells waiters and watchers what the last steps did.
    pub(super) fn deliver(&mut self, drop_wakes: bool) {
        for (namespace, out) in self.pending.drain(..) {
            for woken in out.granted {
                let waker = self.wakers.remove(&woken.request);
                if let Some(waker) = waker.filter(|_| !drop_wakes) {
                    waker.send(Wake::Granted(woken.grant));
                }
            }
            for event in out.events {
                self.watchers.retain(|w| {
                    let meant =
                        w.namespace == namespace && event.name.as_str().starts_with(&w.prefix);
                    !w.sender.is_closed() && (!meant || w.sender.send(event.clone()))
                });
            }
        }
    }

    pub(super) fn forget_everything(&mut self) {
        self.names.clear();
        // The counter goes too: only the clock keeps the tokens rising, as on a real server.
        self.sequence = Micros::default();
    }
}
