//! Waiting for one's turn: one watch for each waiter, on what it really waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::store::{Grant, Wake};
use clinch_core::{Result, keeper};
use zookeeper_client::{Error as Zk, EventType, OneshotWatcher};

use crate::book::{Entry, Node};
use crate::core::Core;
use crate::error::is_dead;
use crate::notice::{self, Seen};
use crate::places::{Child, Line, Target};
use crate::record::Record;

/// The pause after a failure: the driver looks for another server meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// Watches for the turn of a queued claim, unless somebody does already.
pub(crate) fn attend(core: &Arc<Core>, entry: &Arc<Entry>, line: Line) -> Result<()> {
    {
        let mut state = entry.state();
        if state.watched {
            return Ok(());
        }
        state.watched = true;
    }
    let (core, entry) = (core.clone(), entry.clone());
    keeper::spawn(async move {
        let told = {
            let gone = entry.gone.notified();
            let mut gone = std::pin::pin!(gone);
            gone.as_mut().enable();
            if entry.has_ended.load(Ordering::SeqCst) {
                return;
            }
            tokio::select! {
                () = gone => return,
                told = wait(&core, &entry, line) => told,
            }
        };
        entry.state().watched = false;
        core.wakes.deliver(entry.request(), told);
    })
}

/// Waits for the turn; a hint where only a new claim can tell.
async fn wait(core: &Arc<Core>, entry: &Arc<Entry>, line: Line) -> Wake {
    let Some(node) = entry.state().node.clone() else {
        return Wake::Hint;
    };
    let mut line = Some(line);
    loop {
        let round = match line.take() {
            Some(line) => rest(entry, &node, &line).await,
            None => look(entry, &node).await,
        };
        match round {
            Ok(Round::Turn(grant)) => {
                let known = entry.state().granted.clone();
                tell_next(entry, &node);
                // A repeated claim may have seen it before.
                if known.is_none() {
                    notice::record(core, entry, &node, true);
                }
                let grant = entry.state().granted.get_or_insert(grant).clone();
                return Wake::Granted(grant);
            }
            Ok(Round::Line(next)) => line = Some(next),
            Ok(Round::Look) => {}
            Ok(Round::Gone) => return Wake::Hint,
            Err(error) if is_dead(&error) => return Wake::Hint,
            // Some server will answer, or the session ends.
            Err(_) => core.clock.sleep(PAUSE).await,
        }
    }
}

/// What a round of waiting came to.
enum Round {
    Turn(Grant),
    /// Not yet; this is how it stands.
    Line(Line),
    /// Something has changed.
    Look,
    /// Our own node is not there.
    Gone,
}

/// Sets the watch and waits until it fires.
async fn rest(entry: &Entry, node: &Node, line: &Line) -> Result<Round, Zk> {
    let Some(at) = line.position(&node.name) else {
        return Ok(Round::Gone);
    };
    let session = entry.state().session.clone();
    match line.target(at) {
        None => Ok(Round::Look),
        Some(Target::Folder) => {
            entry.state().target = None;
            let client = session.client(1)?;
            let watching = client.get_and_watch_children(&entry.folder);
            let (names, _, watcher) = session.within(watching).await??;
            // It may have changed since it was listed; then there is nothing to wait for.
            let same = names.len() == line.children.len()
                && names.iter().all(|name| line.position(name).is_some());
            if same {
                drop(client);
                watch(watcher).await?;
            }
            Ok(Round::Look)
        }
        Some(Target::Child(child)) => {
            let client = session.client(1)?;
            let path = format!("{}/{}", entry.folder, child.name);
            entry.state().target = Some(path.clone());
            let (data, stat, watcher) =
                match session.within(client.get_and_watch_data(&path)).await? {
                    Ok(watched) => watched,
                    // It went between the list and the watch.
                    Err(Zk::NoNode) => return turn_after(entry, node, &child).await,
                    Err(error) => return Err(error),
                };
            entry.state().seen = Some(Seen {
                request: child.request(),
                record: Record::read(&data),
                seq: u64::try_from(stat.czxid).unwrap_or_default(),
                spoke: false,
            });
            // While we wait, the driver must be free to end.
            drop(client);
            match watch(watcher).await? {
                EventType::NodeDeleted => turn_after(entry, node, &child).await,
                _ => {
                    // It left by itself, was evicted, or tells that it holds.
                    if let Some(seen) = &mut entry.state().seen {
                        seen.spoke = true;
                    }
                    Ok(Round::Look)
                }
            }
        }
    }
}

async fn watch(watcher: OneshotWatcher) -> Result<EventType, Zk> {
    let event = watcher.changed().await;
    match event.event_type {
        EventType::Session => Err(Zk::SessionExpired),
        kind => Ok(kind),
    }
}

/// The claim directly ahead has gone. Where the folder's word is that it gave a mutex up, it is our
/// turn: nobody was ahead of it. Otherwise the list tells.
async fn turn_after(entry: &Entry, node: &Node, child: &Child) -> Result<Round, Zk> {
    if entry.claim.limit != 1 {
        return Ok(Round::Look);
    }
    let (word, stat) = notice::read(entry).await?;
    let word = word.filter(|word| {
        let about = |request| word.is_about(request);
        !word.delayed && !word.is_holding() && child.request().is_some_and(about)
    });
    Ok(word.map_or(Round::Look, |word| {
        Round::Turn(Grant::new(node.seq, Some(word.predecessor(stat.mzxid))))
    }))
}

/// Lists, to see whether it is our turn.
async fn look(entry: &Entry, node: &Node) -> Result<Round, Zk> {
    let session = entry.state().session.clone();
    let client = session.client(1)?;
    let listed = session.within(client.get_children(&entry.folder)).await?;
    let (names, stat) = match listed {
        Err(Zk::NoNode) => return Ok(Round::Gone),
        listed => listed?,
    };
    // Others may have put something else there; the next claim says so.
    let Ok(line) = Line::read(&names) else {
        return Ok(Round::Gone);
    };
    let Some(at) = line.position(&node.name) else {
        return Ok(Round::Gone);
    };
    entry.state().ahead = at.saturating_sub(line.holders);
    if at >= line.holders {
        return Ok(Round::Line(line));
    }
    let seen = entry.state().seen.clone();
    let word = match stat.data_length {
        0 => None,
        _ => notice::read(entry).await?.0,
    };
    Ok(Round::Turn(Grant::new(
        node.seq,
        notice::after(entry, node, seen.as_ref(), word.as_ref(), &stat),
    )))
}

/// The next waiter of a semaphore watches us until we hold; from then on it looks itself.
fn tell_next(entry: &Entry, node: &Node) {
    if matches!(entry.claim.limit, 1 | u32::MAX) {
        return;
    }
    let (session, data) = {
        let state = entry.state();
        (state.session.clone(), state.record.write())
    };
    if let Ok(client) = session.client(1) {
        // Sent when it is called; nobody needs the answer.
        drop(client.set_data(&entry.path(node), &data, None));
    }
}
