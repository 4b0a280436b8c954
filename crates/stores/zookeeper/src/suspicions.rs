//! Suspicions: losses that are noticed before a renewal reports them.
//!
//! A session without a connection may have ended. A node that is missing was deleted by another client.
//! Neither is proof: the engine marks the guards as suspect and renews them at once, and the reply
//! decides.

use std::sync::Arc;

use clinch_core::store::{Suspicion, SuspicionRegistry};
use clinch_core::{RequestId, Result, keeper};
use zookeeper_client::{Error as Zk, EventType, StateWatcher};

use crate::ledger::Ledger;
use crate::own_claim::{Node, OwnClaim};

/// Watches the connections of sessions.
#[derive(Debug)]
pub(crate) struct ConnectionObserver {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) suspicions: Arc<SuspicionRegistry>,
}

impl ConnectionObserver {
    /// Suspects the holds of a session whenever its connection is lost, until the session ends. Also when
    /// there is a new connection: then a renewal can reach the servers.
    pub(crate) fn watch(&self, session: i64, mut state: StateWatcher) -> Result<()> {
        let (ledger, suspicions) = (self.ledger.clone(), self.suspicions.clone());
        state.state();
        keeper::spawn(async move {
            // Every change counts: the watcher keeps only the latest state, and after a quick reconnect
            // that is the same as before.
            while !state.changed().await.is_terminated() {
                suspect(&suspicions, ledger.held_in(session));
            }
            suspect(&suspicions, ledger.held_in(session));
        })
    }
}

fn suspect(suspicions: &SuspicionRegistry, requests: Vec<RequestId>) {
    if !requests.is_empty() {
        suspicions.deliver(&Suspicion::Of(requests));
    }
}

/// Watches the node of a hold that was renewed. Most holds end before their first renewal and pay
/// nothing for the watch.
pub(crate) fn watch_node(suspicions: &Arc<SuspicionRegistry>, own: &Arc<OwnClaim>, node: &Node) {
    if std::mem::replace(&mut own.state().node_watched, true) {
        return;
    }
    let (suspicions, own, path) = (suspicions.clone(), own.clone(), own.path(node));
    let watching = async move {
        let deleted = own.ended.closing().or(wait_deleted(&own, &path)).await;
        let Some(deleted) = deleted else { return };
        let releasing = {
            let mut state = own.state();
            // After a failure the next renewal sets the watch again.
            state.node_watched = false;
            state.releasing
        };
        if deleted.is_ok() && !releasing {
            suspect(&suspicions, vec![own.request()]);
        }
    };
    if let Err(error) = keeper::spawn(watching) {
        tracing::warn!(%error, "an eviction will be noticed by the next renewal");
    }
}

/// Completes when the node does not exist.
async fn wait_deleted(own: &OwnClaim, path: &str) -> Result<(), Zk> {
    loop {
        let session = own.state().session.clone();
        let driver = session.driver(1)?;
        let watching = driver.check_and_watch_stat(path);
        let (stat, watcher) = session.with_timeout(watching).await??;
        // The session ends with the last reference to the driver.
        drop(driver);
        if stat.is_none() {
            return Ok(());
        }
        match watcher.changed().await.event_type {
            EventType::NodeDeleted => return Ok(()),
            EventType::Session => return Err(Zk::SessionExpired),
            // Its data has changed.
            _ => {}
        }
    }
}
