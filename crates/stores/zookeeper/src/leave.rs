//! Giving up: releases, withdrawals, and what the janitor takes away.

use std::sync::Arc;

use clinch_core::store::{Claim, Ending, Hold, LostReason, ReleaseReply};
use clinch_core::{RequestId, Result};
use zookeeper_client::{CreateMode, Error as Zk, MultiWriteResult, Stat};

use crate::book::{Entry, Habit, Left, Node};
use crate::core::Core;
use crate::error::{is_dead, sending};
use crate::notice;
use crate::places;
use crate::record::{How, Record, Word};

/// Handles a release; see [`Store::release`](clinch_core::store::Store::release).
pub(crate) async fn release(core: &Core, hold: &Hold) -> Result<ReleaseReply> {
    let Some(entry) = core.book.find(hold.request) else {
        return Ok(match core.book.past(hold.request) {
            Some(past) if past.ending == Ending::Released && past.seq == Some(hold.seq) => {
                ReleaseReply::Released
            }
            Some(past) => ReleaseReply::WasLost(past.reason),
            None => ReleaseReply::WasLost(LostReason::Forgotten),
        });
    };
    let Some(node) = held(&entry, hold.seq) else {
        return Ok(ReleaseReply::WasLost(LostReason::Forgotten));
    };
    let again = {
        let mut state = entry.state();
        // It ran out: the janitor takes it away, after its lock-delay.
        if !state.leaving && core.clock.now() >= state.until {
            return Ok(ReleaseReply::WasLost(LostReason::Expired));
        }
        std::mem::replace(&mut state.leaving, true)
    };
    match remove(core, &entry, &node, Some(How::Released)).await {
        Ok(true) => {
            core.book
                .end(&entry, Ending::Released, LostReason::Released);
            Ok(ReleaseReply::Released)
        }
        // Our own earlier release, whose answer was lost.
        Ok(false) if again => {
            core.book
                .end(&entry, Ending::Released, LostReason::Released);
            Ok(ReleaseReply::Released)
        }
        Ok(false) => {
            let reason = why(core, &entry).await.map_err(sending)?;
            Ok(ReleaseReply::WasLost(reason))
        }
        Err(error) if is_dead(&error) => {
            core.book.end(&entry, Ending::Expired, LostReason::Expired);
            Ok(ReleaseReply::WasLost(LostReason::Expired))
        }
        Err(error) => Err(sending(error)),
    }
}

/// The node of a hold, if the number is right.
pub(crate) fn held(entry: &Entry, seq: u64) -> Option<Node> {
    let state = entry.state();
    let held = state.granted.as_ref().is_some_and(|grant| grant.seq == seq);
    state.node.clone().filter(|_| held)
}

/// Handles a withdrawal; see [`Store::withdraw`](clinch_core::store::Store::withdraw).
///
/// A claim that was sent stays with the session that it was sent in, and that session's requests
/// are kept in order: whatever is still under way comes before the withdrawal. If the session has
/// ended, the servers refuse what comes late.
pub(crate) async fn withdraw(core: &Core, claim: &Claim) -> Result<()> {
    let Some(entry) = core.book.find(claim.request) else {
        core.book.forbid(claim.request);
        return Ok(());
    };
    let again = entry.state().leaving;
    if give_back(core, &entry).await? || again {
        core.book
            .end(&entry, Ending::Released, LostReason::Released);
    } else {
        // It had ended before, and not by its own will.
        why(core, &entry).await.map_err(sending)?;
    }
    Ok(())
}

/// Takes back a claim that was refused: nothing is left of it, and it may be made again.
pub(crate) async fn retract(core: &Core, entry: &Entry) -> Result<()> {
    give_back(core, entry).await?;
    core.book.forget(entry);
    Ok(())
}

/// Sees that a claim has no node, now or later; `false` when it had one that was taken away before.
async fn give_back(core: &Core, entry: &Entry) -> Result<bool> {
    let (node, sent, dead, granted) = {
        let mut state = entry.state();
        state.leaving = true;
        let dead = state.session.is_dead();
        (
            state.node.clone(),
            state.sent,
            dead,
            state.granted.is_some(),
        )
    };
    let removed = async {
        let node = match node {
            Some(node) => Some(node),
            None if sent => find_node(entry).await?,
            None => None,
        };
        match node {
            Some(node) => remove(core, entry, &node, granted.then_some(How::Released)).await,
            None => Ok(true),
        }
    };
    let removed = match dead {
        true => Ok(true),
        false => removed.await,
    };
    match removed {
        Ok(removed) => Ok(removed),
        Err(error) if is_dead(&error) => Ok(true),
        Err(error) => Err(sending(error)),
    }
}

/// Takes away what has run out; `false` when it should be tried again.
pub(crate) async fn expire(core: &Core, entry: &Entry) -> bool {
    let (node, sent, dead, granted) = {
        let mut state = entry.state();
        // A renewal may have come in the last moment; from here on none does.
        if state.kept_until(&entry.claim) > core.clock.now() {
            return false;
        }
        state.leaving = true;
        let dead = state.session.is_dead();
        (
            state.node.clone(),
            state.sent,
            dead,
            state.granted.is_some(),
        )
    };
    let removed = async {
        let node = match node {
            Some(node) => Some(node),
            None if sent => find_node(entry).await?,
            None => None,
        };
        match node {
            Some(node) => remove(core, entry, &node, granted.then_some(How::Expired)).await,
            None => Ok(false),
        }
    };
    let done = dead || removed.await.map_or_else(|error| is_dead(&error), |_| true);
    if done {
        core.book.end(entry, Ending::Expired, LostReason::Expired);
    }
    done
}

/// Deletes a node, and leaves the word that goes with it; `false` when it was gone.
///
/// The order of the parts tells listeners what happened, see `scene`. Who leaves the queue changes
/// its own node before, so that the next in line can tell it from a claim that vanished.
async fn remove(core: &Core, entry: &Entry, node: &Node, how: Option<How>) -> Result<bool, Zk> {
    let recorded = entry.state().recorded.clone();
    // A claim that said that it holds, and never did, takes its word back.
    let (word, version) = match (how, recorded) {
        (Some(how), _) => (Some(entry.word(Some(node), how)), None),
        (None, Some(left)) => (Some(left.word), Some(left.version + 1)),
        (None, None) => (None, None),
    };
    match attempt(entry, node, how, word.as_ref(), version).await {
        // Somebody has said something since.
        Err(Zk::BadVersion) => {
            let removed = attempt(entry, node, how, None, None).await?;
            Ok(removed.is_some())
        }
        Ok(Some(results)) => {
            if let (Some(How::Released), Some(MultiWriteResult::SetData { stat })) =
                (how, results.first())
            {
                core.book.learn(&entry.folder, habit(entry, node, stat));
            }
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn attempt(
    entry: &Entry,
    node: &Node,
    how: Option<How>,
    word: Option<&Word>,
    version: Option<i32>,
) -> Result<Option<Vec<MultiWriteResult>>, Zk> {
    let (session, record) = {
        let state = entry.state();
        (state.session.clone(), state.record.write())
    };
    let client = session.client(1)?;
    let path = entry.path(node);
    let mut writer = client.new_multi_writer();
    if let Some(word) = word {
        writer.add_set_data(&entry.folder, &word.write(), version)?;
    }
    if how != Some(How::Released) {
        writer.add_set_data(&path, &record, None)?;
    }
    writer.add_delete(&path, None)?;
    match session.within(writer.commit()).await?.map_err(Zk::from) {
        Ok(results) => Ok(Some(results)),
        Err(Zk::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How we leave a folder in which the word was our own, just before our node went.
fn habit(entry: &Entry, node: &Node, stat: &Stat) -> Habit {
    if stat.num_children != 1 {
        return Habit::Busy;
    }
    Habit::Quiet(Box::new(Left {
        folder: stat.czxid,
        version: stat.version,
        word: entry.word(Some(node), How::Released),
        written: stat.mzxid,
    }))
}

/// The node of a claim whose answer was lost.
pub(crate) async fn find_node(entry: &Entry) -> Result<Option<Node>, Zk> {
    let session = entry.state().session.clone();
    let client = session.client(2)?;
    let synced = client.sync(&entry.folder);
    let listed = client.get_children(&entry.folder);
    let (synced, listed) = session
        .within(async { tokio::join!(synced, listed) })
        .await?;
    synced?;
    let names = match listed {
        Ok((names, _)) => names,
        Err(Zk::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(name) = find(&names, entry.request()) else {
        return Ok(None);
    };
    let path = format!("{}/{name}", entry.folder);
    let client = session.client(1)?;
    let stat = session.within(client.check_stat(&path)).await??;
    // Another session's node is not ours, whatever its name.
    let stat = stat.filter(|stat| stat.ephemeral_owner == session.id);
    let number = name
        .strip_prefix(&entry.prefix)
        .and_then(|number| number.parse().ok());
    Ok(stat.zip(number).map(|(stat, number)| Node {
        number,
        seq: u64::try_from(stat.czxid).unwrap_or_default(),
        name: name.clone(),
    }))
}

fn find(names: &[String], request: RequestId) -> Option<&String> {
    let start = format!("_c_{request}-");
    names.iter().find(|name| name.starts_with(&start))
}

/// Why a node is gone whose session lives; the claim has ended with it.
pub(crate) async fn why(core: &Core, entry: &Entry) -> Result<LostReason, Zk> {
    let word = match notice::read(entry).await {
        Ok((word, _)) => word,
        Err(Zk::NoNode) => None,
        Err(error) if is_dead(&error) => None,
        Err(error) => return Err(error),
    };
    let word = word.as_ref().and_then(|word| word.about(entry.request()));
    let word = word.filter(|word| !word.is_holding());
    let (ending, reason) = match word {
        Some(word) => (word.ending(), LostReason::from(word.ending())),
        None if entry.state().session.is_dead() => (Ending::Expired, LostReason::Expired),
        None => (Ending::Expired, LostReason::Forgotten),
    };
    core.book.end(entry, ending, reason);
    Ok(reason)
}

/// What is to be broken: a hold, as `inspect` saw it.
pub(crate) struct Victim {
    pub(crate) child: places::Child,
    pub(crate) word: Word,
    pub(crate) lock_delay: std::time::Duration,
    pub(crate) data: Vec<u8>,
}

/// Breaks one hold; `false` when it was gone.
///
/// A lock-delay is a node at the same place in line, made in the same transaction, in a session that
/// nobody keeps alive: the servers count the time, and libraries that share the lock wait as well.
pub(crate) async fn evict(core: &Arc<Core>, folder: &str, mut victim: Victim) -> Result<bool> {
    let config = &core.sessions.config;
    let session = match victim.lock_delay.is_zero() {
        true => core.sessions.base().await?,
        false => {
            let length = victim.lock_delay + config.tick;
            core.sessions.abandoned(length).await?
        }
    };
    let path = format!("{folder}/{}", victim.child.name);
    let delay = places::delay(&victim.child.name).filter(|_| !victim.lock_delay.is_zero());
    victim.word.delayed = delay.is_some();
    let broken = async {
        let client = session.client(1)?;
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&path, &victim.data, None)?;
        writer.add_set_data(folder, &victim.word.write(), None)?;
        if let Some(delay) = &delay {
            let options = session.options(CreateMode::Ephemeral);
            // Its token cannot be told from when the node was made.
            let record = victim.word.record.clone();
            let record = record.map(|record| Record {
                seq: Some(victim.word.seq),
                ..record
            });
            let data = record.map_or(victim.data.clone(), |record| record.write());
            writer.add_create(&format!("{folder}/{delay}"), &data, &options)?;
        }
        writer.add_delete(&path, None)?;
        session.within(writer.commit()).await?.map_err(Zk::from)
    };
    match broken.await {
        Ok(_) => Ok(true),
        Err(Zk::NoNode) => Ok(false),
        Err(error) => Err(sending(error)),
    }
}

/// Ends a lock-delay; `false` when it was over.
pub(crate) async fn end_delay(core: &Arc<Core>, path: &str) -> Result<bool> {
    let base = core.sessions.base().await?;
    let deleted = async {
        let client = base.client(1)?;
        base.within(client.delete(path, None)).await?
    };
    match deleted.await {
        Ok(()) => Ok(true),
        Err(Zk::NoNode) => Ok(false),
        Err(error) => Err(sending(error)),
    }
}
