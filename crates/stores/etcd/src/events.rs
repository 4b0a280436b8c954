//! Live events: a watch on all names that start with the prefix, and what its changes mean.

use std::collections::BTreeMap;
use std::time::Duration;

use clinch_core::store::{EventSender, Events};
use clinch_core::{Name, Result, keeper};
use tonic::Streaming;
use tonic::codegen::tokio_stream::{self, StreamExt};

use crate::core::Core;
use crate::error::Trouble;
use crate::mirror::{Mirror, revision};
use crate::session::Live;
use crate::wire::{WatchCreate, WatchEvent, WatchKind, WatchRequest, WatchResponse};

/// All names with a prefix, kept up by a watch.
struct Watching {
    core: Core,
    prefix: String,
    names: BTreeMap<Name, Mirror>,
    /// Everything up to here has been told.
    revision: u64,
}

type Stream = (Live, Streaming<WatchResponse>);

impl Core {
    pub(crate) async fn events(&self, prefix: &str) -> Result<Events> {
        let (names, revision) = self.all(prefix).await.map_err(Trouble::of_a_read)?;
        let mut watching = Watching {
            core: self.clone(),
            prefix: prefix.to_owned(),
            names,
            revision,
        };
        let (sender, events) = Events::channel();
        let (open, opened) = tokio::sync::oneshot::channel();
        keeper::spawn(async move {
            match watching.open().await {
                Ok(stream) => {
                    let _ = open.send(Ok(()));
                    watching.run(stream, sender).await;
                }
                Err(trouble) => drop(open.send(Err(trouble.of_a_read()))),
            }
        })?;
        opened
            .await
            .unwrap_or_else(|_| Err(crate::error::strange()))?;
        Ok(events)
    }
}

impl Watching {
    /// Opens the watch; it stands when this returns.
    async fn open(&mut self) -> Result<Stream, Trouble> {
        let span = self.core.keys.starting(&self.prefix);
        let create = WatchCreate {
            key: span.0,
            range_end: span.1,
            start_revision: i64::try_from(self.revision).unwrap_or(i64::MAX) + 1,
            watch_id: 1,
        };
        let kind = Some(WatchKind::Create(create));
        // The stream would end with our side of it.
        let messages = tokio_stream::once(WatchRequest { kind }).chain(tokio_stream::pending());
        let session = &self.core.session;
        let (live, mut stream) = session
            .stream("/etcdserverpb.Watch/Watch", messages)
            .await?;
        let created: WatchResponse = session.soon(&live, &mut stream).await?;
        if created.canceled {
            return Err(Trouble::Theirs(
                tonic::Status::unavailable(created.cancel_reason),
                "watch".into(),
            ));
        }
        Ok((live, stream))
    }

    async fn run(mut self, stream: Stream, sender: EventSender) {
        let mut stream = Some(stream);
        loop {
            let (live, mut hearing) = match stream.take() {
                Some(stream) => stream,
                None => match self.reopen(&sender).await {
                    Some(stream) => stream,
                    None => return,
                },
            };
            loop {
                let message = tokio::select! {
                    message = hearing.message() => message,
                    () = sender.closed() => return,
                    () = self.core.ears.closed() => return,
                };
                match message {
                    Ok(Some(response)) if !response.canceled => {
                        if !self.tell(&response.events, &sender) {
                            return;
                        }
                    }
                    _ => break,
                }
            }
            self.core.session.give_up(&live);
        }
    }

    /// Goes on after the last revision; where that has been compacted, from a new listing.
    async fn reopen(&mut self, sender: &EventSender) -> Option<Stream> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.open().await {
                Ok(stream) => return Some(stream),
                Err(trouble) => tracing::debug!(?trouble, "cannot watch"),
            }
            if let Ok((names, revision)) = self.core.all(&self.prefix).await {
                (self.names, self.revision) = (names, revision);
            }
            tokio::select! {
                () = self.core.clock.sleep(pause) => {}
                () = sender.closed() => return None,
                () = self.core.ears.closed() => return None,
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Tells what a response means; `false` when nobody listens any more.
    fn tell(&mut self, events: &[WatchEvent], sender: &EventSender) -> bool {
        let of = |event: &WatchEvent| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
        for step in events.chunk_by(|a, b| of(a) == of(b)) {
            // One revision may concern several names: a lease that ends.
            let mut concerned: Vec<Name> = Vec::new();
            for event in step {
                let key = event.kv.as_ref().map_or(&[][..], |kv| &kv.key);
                if let Some((name, _)) = self.core.keys.parse(key)
                    && !concerned.contains(&name)
                {
                    concerned.push(name);
                }
            }
            let at = step.first().map_or(0, of);
            for name in concerned {
                let mirror = self.names.entry(name.clone()).or_default();
                for change in mirror.apply(&self.core.keys, &name, step) {
                    if !sender.send(change.event(&name)) {
                        return false;
                    }
                }
                if mirror.line.is_empty() && mirror.delays.is_empty() {
                    self.names.remove(&name);
                }
            }
            self.revision = self.revision.max(revision(at));
        }
        true
    }
}
