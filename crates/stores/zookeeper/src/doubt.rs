//! Losses that are heard of before a renewal tells them.
//!
//! A session that has lost its connection may be at its end, and a node that has gone from its place
//! was taken away by somebody. Neither is proof here: the engine is told, calls the guards suspect,
//! and renews them at once. The answer to that is the proof.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clinch_core::store::{Suspicion, SuspicionRegistry};
use clinch_core::{Result, keeper};
use zookeeper_client::{Error as Zk, EventType, StateWatcher};

use crate::book::{Book, Entry, Node};
use crate::core::Core;

/// Watches the connections of sessions.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) book: Arc<Book>,
    pub(crate) suspicions: Arc<SuspicionRegistry>,
}

impl Observer {
    /// From now on until the session ends, its holds are in doubt whenever its connection is lost.
    /// And when there is a new one: then a renewal gets through, and clears them.
    pub(crate) fn watch(&self, session: i64, mut state: StateWatcher) -> Result<()> {
        let (book, suspicions) = (self.book.clone(), self.suspicions.clone());
        state.state();
        keeper::spawn(async move {
            // A change may have been missed: a connection that was lost and is back looks the same,
            // so every change counts, whatever it is.
            while !state.changed().await.is_terminated() {
                tell(&suspicions, book.held_in(session));
            }
            tell(&suspicions, book.held_in(session));
        })
    }
}

fn tell(suspicions: &SuspicionRegistry, requests: Vec<clinch_core::RequestId>) {
    if !requests.is_empty() {
        suspicions.deliver(&Suspicion::Of(requests));
    }
}

/// Watches over the node of a hold that has lasted for a renewal: most are over by then, and pay
/// nothing for it.
pub(crate) fn guard(core: &Arc<Core>, entry: &Arc<Entry>, node: &Node) {
    if std::mem::replace(&mut entry.state().guarded, true) {
        return;
    }
    let (suspicions, entry, path) = (core.suspicions.clone(), entry.clone(), entry.path(node));
    let guarding = async move {
        let gone = entry.gone.notified();
        let mut gone = std::pin::pin!(gone);
        gone.as_mut().enable();
        if entry.has_ended.load(Ordering::SeqCst) {
            return;
        }
        let taken = tokio::select! {
            () = gone => return,
            taken = taken(&entry, &path) => taken,
        };
        let leaving = {
            let mut state = entry.state();
            // After a failure the next renewal sets the watch again.
            state.guarded = false;
            state.leaving
        };
        if taken.is_ok() && !leaving {
            tell(&suspicions, vec![entry.request()]);
        }
    };
    if let Err(error) = keeper::spawn(guarding) {
        tracing::warn!(%error, "an eviction will be noticed by the next renewal");
    }
}

/// Completes when the node is not there.
async fn taken(entry: &Entry, path: &str) -> Result<(), Zk> {
    loop {
        let session = entry.state().session.clone();
        let client = session.client(1)?;
        let (stat, watcher) = session.within(client.check_and_watch_stat(path)).await??;
        // While we wait, the driver must be free to end.
        drop(client);
        if stat.is_none() {
            return Ok(());
        }
        match watcher.changed().await.event_type {
            EventType::NodeDeleted => return Ok(()),
            EventType::Session => return Err(Zk::SessionExpired),
            // Its data have changed.
            _ => {}
        }
    }
}
