//! Live events: a watch on all names with a prefix, and what its changes mean.

use std::collections::BTreeMap;
use std::time::Duration;

use clinch_core::store::{EventSender, Events};
use clinch_core::{Name, Result, keeper};
use clinch_kit::backoff::Backoff;
use tonic::Streaming;
use tonic::codegen::tokio_stream::{self, StreamExt};

use crate::changes::steps;
use crate::client::Client;
use crate::connection::Live;
use crate::error::{CallError, unexpected_reply};
use crate::lock_state::LockState;
use crate::wakes::start_after;
use crate::wire::{WatchCreate, WatchEvent, WatchKind, WatchRequest, WatchResponse};

/// Local copies of all names with a prefix, updated by a watch.
struct PrefixWatch {
    client: Client,
    prefix: String,
    names: BTreeMap<Name, LockState>,
    /// All events up to this revision have been sent.
    revision: u64,
}

type Stream = (Live, Streaming<WatchResponse>);

impl Client {
    pub(crate) async fn events(&self, prefix: &str) -> Result<Events> {
        let (names, revision) = self
            .list_all(prefix)
            .await
            .map_err(CallError::without_effect)?;
        let mut watch = PrefixWatch {
            client: self.clone(),
            prefix: prefix.to_owned(),
            names,
            revision,
        };
        let (sender, events) = Events::channel();
        let (open, opened) = tokio::sync::oneshot::channel();
        keeper::spawn(async move {
            match watch.open().await {
                Ok(stream) => {
                    let _ = open.send(Ok(()));
                    watch.run(stream, sender).await;
                }
                Err(error) => drop(open.send(Err(error.without_effect()))),
            }
        })?;
        opened.await.unwrap_or_else(|_| Err(unexpected_reply()))?;
        Ok(events)
    }
}

impl PrefixWatch {
    /// Opens the watch; the server has confirmed it when this returns.
    async fn open(&mut self) -> Result<Stream, CallError> {
        let range = self.client.keys.starting(&self.prefix);
        let create = WatchCreate {
            key: range.0,
            range_end: range.1,
            start_revision: start_after(self.revision),
            watch_id: 1,
        };
        let kind = Some(WatchKind::Create(create));
        // The server would end the stream if our side of it ended.
        let messages = tokio_stream::once(WatchRequest { kind }).chain(tokio_stream::pending());
        let session = &self.client.session;
        let (live, mut stream) = session
            .stream("/etcdserverpb.Watch/Watch", messages)
            .await?;
        let created: WatchResponse = session.next_message(&live, &mut stream).await?;
        if created.canceled {
            return Err(CallError::Status(
                tonic::Status::unavailable(created.cancel_reason),
                "watch".into(),
            ));
        }
        Ok((live, stream))
    }

    async fn run(mut self, stream: Stream, sender: EventSender) {
        let mut stream = Some(stream);
        loop {
            let (live, mut responses) = match stream.take() {
                Some(stream) => stream,
                None => match self.reopen(&sender).await {
                    Some(stream) => stream,
                    None => return,
                },
            };
            loop {
                let message = tokio::select! {
                    message = responses.message() => message,
                    () = sender.closed() => return,
                    () = self.client.watches.closed.wait_closed() => return,
                };
                match message {
                    Ok(Some(response)) if !response.canceled => {
                        if !self.send(&response.events, &sender) {
                            return;
                        }
                    }
                    _ => break,
                }
            }
            self.client.session.give_up(&live);
        }
    }

    /// Continues after the last revision, or from a new listing if that revision has been compacted.
    async fn reopen(&mut self, sender: &EventSender) -> Option<Stream> {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            match self.open().await {
                Ok(stream) => return Some(stream),
                Err(error) => tracing::debug!(?error, "cannot open a watch for events"),
            }
            if let Ok((names, revision)) = self.client.list_all(&self.prefix).await {
                (self.names, self.revision) = (names, revision);
            }
            tokio::select! {
                () = backoff.wait(&self.client.clock) => {}
                () = sender.closed() => return None,
                () = self.client.watches.closed.wait_closed() => return None,
            }
        }
    }

    /// Sends the lock events of a response; `false` if the receiver is gone.
    fn send(&mut self, events: &[WatchEvent], sender: &EventSender) -> bool {
        for (at, step) in steps(events) {
            // One revision may concern several names: a lease that expires.
            let mut concerned: Vec<Name> = Vec::new();
            for event in step {
                let key = event.kv.as_ref().map_or(&[][..], |kv| &kv.key);
                if let Some((name, _)) = self.client.keys.parse(key)
                    && !concerned.contains(&name)
                {
                    concerned.push(name);
                }
            }
            for name in concerned {
                let state = self.names.entry(name.clone()).or_default();
                for change in state.apply(&self.client.keys, &name, step) {
                    if !sender.send(change.event(&name)) {
                        return false;
                    }
                }
                if state.queue.is_empty() && state.delays.is_empty() {
                    self.names.remove(&name);
                }
            }
            self.revision = self.revision.max(at);
        }
        true
    }
}
