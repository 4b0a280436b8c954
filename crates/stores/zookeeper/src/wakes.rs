//! Waits for a claim's turn: one watch for each waiter, on the one node that it waits for.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Grant, Wake};
use clinch_core::{Result, keeper};
use zookeeper_client::{Error as Zk, EventType, OneshotWatcher};

use crate::client::Client;
use crate::error::ends_session;
use crate::keys::Child;
use crate::own_claim::{Node, OwnClaim, WatchedClaim};
use crate::predecessor;
use crate::queue::{Queue, Target};
use crate::record::Record;

/// The pause after a failure; the driver connects to another server meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts a task that waits for the turn of a queued claim, unless there is one.
pub(crate) fn wait_for_turn(client: &Arc<Client>, own: &Arc<OwnClaim>, queue: Queue) -> Result<()> {
    if std::mem::replace(&mut own.state().waiting, true) {
        return Ok(());
    }
    let (client, own) = (client.clone(), own.clone());
    keeper::spawn(async move {
        let waiting = wait(&client, &own, queue);
        if let Some(wake) = own.ended.closing().or(waiting).await {
            own.state().waiting = false;
            client.wakes.deliver(own.request(), wake);
        }
    })
}

/// Waits for the turn. Returns a hint if only a repeated claim can find out more.
async fn wait(client: &Arc<Client>, own: &Arc<OwnClaim>, queue: Queue) -> Wake {
    let Some(node) = own.state().node.clone() else {
        return Wake::Hint;
    };
    let mut queue = Some(queue);
    loop {
        let round = match queue.take() {
            Some(queue) => watch(own, &node, &queue).await,
            None => list(own, &node).await,
        };
        match round {
            Ok(Round::Turn(grant)) => {
                let known = own.state().granted.clone();
                touch_node(own, &node);
                // A repeated claim may have been granted meanwhile.
                if known.is_none() {
                    predecessor::record_hold(client, own, &node, true);
                }
                let grant = own.state().granted.get_or_insert(grant).clone();
                return Wake::Granted(grant);
            }
            Ok(Round::Waits(next)) => queue = Some(next),
            Ok(Round::Changed) => {}
            Ok(Round::Gone) => return Wake::Hint,
            Err(error) if ends_session(&error) => return Wake::Hint,
            // Another server will answer, or the session ends.
            Err(_) => client.clock.sleep(PAUSE).await,
        }
    }
}

/// The result of a round of waiting.
enum Round {
    Turn(Grant),
    /// It is not the claim's turn in this queue.
    Waits(Queue),
    /// The queue has changed.
    Changed,
    /// The claim's node does not exist.
    Gone,
}

/// Sets the watch and waits until it fires.
async fn watch(own: &OwnClaim, node: &Node, queue: &Queue) -> Result<Round, Zk> {
    let Some(at) = queue.position(&node.name) else {
        return Ok(Round::Gone);
    };
    match queue.target(at) {
        None => Ok(Round::Changed),
        Some(Target::Folder) => watch_folder(own, queue).await,
        Some(Target::Child(child)) => watch_child(own, node, &child).await,
    }
}

async fn watch_folder(own: &OwnClaim, queue: &Queue) -> Result<Round, Zk> {
    own.state().watched_path = None;
    let session = own.state().session.clone();
    let driver = session.driver(1)?;
    let watching = driver.get_and_watch_children(&own.folder);
    let (names, _, watcher) = session.with_timeout(watching).await??;
    // If it has changed since it was listed, there is nothing to wait for.
    let same = names.len() == queue.children.len()
        && names.iter().all(|name| queue.position(name).is_some());
    if same {
        // The session ends with the last reference to the driver.
        drop(driver);
        fired(watcher).await?;
    }
    Ok(Round::Changed)
}

async fn watch_child(own: &OwnClaim, node: &Node, child: &Child) -> Result<Round, Zk> {
    let session = own.state().session.clone();
    let driver = session.driver(1)?;
    let path = format!("{}/{}", own.folder, child.name);
    own.state().watched_path = Some(path.clone());
    let watching = driver.get_and_watch_data(&path);
    let (data, stat, watcher) = match session.with_timeout(watching).await? {
        Ok(watched) => watched,
        // It was deleted between the listing and the watch.
        Err(Zk::NoNode) => return turn_after(own, node, child).await,
        Err(error) => return Err(error),
    };
    own.state().watched_claim = Some(WatchedClaim {
        request: child.request(),
        record: Record::read(&data),
        seq: u64::try_from(stat.czxid).unwrap_or_default(),
        written: false,
    });
    drop(driver);
    match fired(watcher).await? {
        EventType::NodeDeleted => turn_after(own, node, child).await,
        _ => {
            // It leaves the queue, is evicted, or records that it holds.
            if let Some(watched) = &mut own.state().watched_claim {
                watched.written = true;
            }
            Ok(Round::Changed)
        }
    }
}

async fn fired(watcher: OneshotWatcher) -> Result<EventType, Zk> {
    let event = watcher.changed().await;
    match event.event_type {
        EventType::Session => Err(Zk::SessionExpired),
        kind => Ok(kind),
    }
}

/// The claim directly ahead is gone. If the folder record is about its hold of a mutex, no other claim
/// was ahead of it, and it is this claim's turn. Otherwise a listing decides.
async fn turn_after(own: &OwnClaim, node: &Node, child: &Child) -> Result<Round, Zk> {
    if own.claim.limit != 1 {
        return Ok(Round::Changed);
    }
    let (record, stat) = predecessor::read(own).await?;
    let record = record.filter(|record| {
        let is_recorded = |request| record.is_about(request);
        !record.delayed && !record.is_holding() && child.request().is_some_and(is_recorded)
    });
    Ok(record.map_or(Round::Changed, |record| {
        let predecessor = record.predecessor(stat.mzxid);
        Round::Turn(Grant::new(node.seq, Some(predecessor)))
    }))
}

/// Lists the folder to find out whether it is the claim's turn.
async fn list(own: &OwnClaim, node: &Node) -> Result<Round, Zk> {
    let session = own.state().session.clone();
    let driver = session.driver(1)?;
    let listing = driver.get_children(&own.folder);
    let (names, stat) = match session.with_timeout(listing).await? {
        Err(Zk::NoNode) => return Ok(Round::Gone),
        listing => listing?,
    };
    // If the folder has foreign nodes, the repeated claim reports them.
    let Ok(queue) = Queue::parse(&names) else {
        return Ok(Round::Gone);
    };
    let Some(at) = queue.position(&node.name) else {
        return Ok(Round::Gone);
    };
    own.state().ahead = at.saturating_sub(queue.holders);
    if at >= queue.holders {
        return Ok(Round::Waits(queue));
    }
    let watched = own.state().watched_claim.clone();
    let record = match stat.data_length {
        0 => None,
        _ => predecessor::read(own).await?.0,
    };
    let predecessor = predecessor::after_wait(own, node, watched.as_ref(), record.as_ref(), &stat);
    Ok(Round::Turn(Grant::new(node.seq, predecessor)))
}

/// Writes the node of a semaphore's new holder: the next waiter watches this node, and must now watch the
/// folder.
fn touch_node(own: &OwnClaim, node: &Node) {
    if matches!(own.claim.limit, 1 | u32::MAX) {
        return;
    }
    let (session, data) = {
        let state = own.state();
        (state.session.clone(), state.record.write())
    };
    if let Ok(driver) = session.driver(1) {
        // The driver sends it at once; the reply is not needed.
        drop(driver.set_data(&own.path(node), &data, None));
    }
}
