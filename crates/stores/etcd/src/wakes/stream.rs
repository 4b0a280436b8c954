//! The watch stream: sends watch requests, and turns responses into wakes.

use std::sync::{Arc, Weak};

use clinch_core::keeper;
use clinch_core::store::{EventKind, Grant, Wake};
use clinch_kit::lock;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;

use super::{Watches, Watching};
use crate::connection::Session;
use crate::wire::{WatchKind, WatchRequest, WatchResponse};

impl Watches {
    /// Sends a request on the stream; opens the stream if there is none.
    pub(super) fn send(self: &Arc<Self>, watching: &mut Watching, kind: WatchKind) {
        let message = WatchRequest { kind: Some(kind) };
        if let Some((_, stream)) = &watching.stream {
            // If the stream has just ended, `on_end` removes its watches.
            let _ = stream.send(message);
            return;
        }
        let (sender, receiver) = unbounded_channel();
        let _ = sender.send(message);
        watching.streams += 1;
        let number = watching.streams;
        watching.stream = Some((number, sender));
        let receiving = receive(Arc::downgrade(self), self.session.clone(), receiver, number);
        if let Err(error) = keeper::spawn(receiving) {
            // Waiters repeat their claims anyway.
            tracing::warn!(%error, "cannot watch for grants: waiting by polling");
        }
    }

    fn on_response(&self, stream: u64, response: &WatchResponse) {
        let mut watching = lock(&self.watching);
        if !watching.is_current(stream) {
            return;
        }
        let Some(name) = watching.by_id.get(&response.watch_id).cloned() else {
            return;
        };
        if response.canceled {
            // Most likely compacted: each waiter lists again, and a new watch begins there.
            watching.by_id.remove(&response.watch_id);
            let watched = watching.names.remove(&name);
            drop(watching);
            for request in watched.iter().flat_map(|watched| watched.waiting.keys()) {
                self.wakes.deliver(*request, Wake::Hint);
            }
            return;
        }
        let Some(watched) = watching.names.get_mut(&name) else {
            return;
        };
        let mut woken = Vec::new();
        for change in watched.state.apply(&self.keys, &name, &response.events) {
            let Some(request) = change.participant.request() else {
                continue;
            };
            if watched.waiting.get(&request) != Some(&change.seq) {
                continue;
            }
            match change.kind {
                EventKind::Granted => {
                    let predecessor = watched.state.predecessor(change.seq);
                    woken.push((request, Some(Grant::new(change.seq, predecessor))));
                }
                EventKind::Queued | EventKind::Published => continue,
                // Its key is gone; the repeated claim reads why.
                _ => woken.push((request, None)),
            }
            watched.waiting.remove(&request);
        }
        drop(watching);
        for (request, grant) in woken {
            let wake = match grant {
                Some(grant) if self.recorder.enter(request, &grant) => Wake::Granted(grant),
                _ => Wake::Hint,
            };
            self.wakes.deliver(request, wake);
        }
    }

    /// The stream has ended: the local copies may be outdated, so all waiters repeat their claims.
    fn on_end(&self, stream: u64) {
        let mut watching = lock(&self.watching);
        if watching.is_current(stream) {
            watching.stream = None;
            watching.names.clear();
            watching.by_id.clear();
            drop(watching);
            self.wakes.hint_all();
        }
    }
}

/// Opens the stream and receives its responses until it ends.
async fn receive(
    watches: Weak<Watches>,
    session: Arc<Session>,
    messages: UnboundedReceiver<WatchRequest>,
    number: u64,
) {
    let messages = UnboundedReceiverStream::new(messages);
    match session.stream("/etcdserverpb.Watch/Watch", messages).await {
        Ok((live, mut stream)) => loop {
            match stream.message().await {
                Ok(Some(response)) => {
                    let Some(watches) = watches.upgrade() else {
                        return;
                    };
                    watches.on_response(number, &response);
                }
                Ok(None) => break,
                Err(status) => {
                    tracing::debug!(%status, "a watch stream has ended");
                    session.give_up(&live);
                    break;
                }
            }
        },
        Err(error) => tracing::debug!(?error, "cannot open a watch stream"),
    }
    if let Some(watches) = watches.upgrade() {
        watches.on_end(number);
    }
}
