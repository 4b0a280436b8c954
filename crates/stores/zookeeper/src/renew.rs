//! Keeping holds.
//!
//! The driver's pings keep a session alive by themselves. What a renewal adds is the proof: one
//! transaction for all holds of a session, which the leader commits with a majority, says that the
//! session lived and that the nodes were there when it was sent or later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Ending, LostReason, RenewReply, Renewal};
use clinch_core::{BootTime, Error, Result, keeper};
use zookeeper_client::{CreateMode, Error as Zk, MultiWriteError};

use crate::book::{Entry, Node};
use crate::claim::begin;
use crate::core::Core;
use crate::doubt;
use crate::error::{is_dead, sending};
use crate::leave::{held, why};
use crate::session::Session;

/// Nodes in one transaction: well below the size that servers accept.
const MOST: usize = 500;

/// A renewal that is to be sent.
struct Due {
    at: usize,
    renewal: Renewal,
    entry: Arc<Entry>,
    node: Node,
}

/// What came of some of them, and why there is not more.
type Part = (Vec<(usize, RenewReply)>, Option<Error>);

/// Handles renewals; see [`Store::renew`](clinch_core::store::Store::renew).
///
/// All sessions are asked at the same time, so that one that is silent costs only its own holds.
pub(crate) async fn renew(core: &Arc<Core>, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
    let mut replies = vec![RenewReply::Unknown; renewals.len()];
    let mut failed = None;
    let sent = core.clock.now();
    let mut due: BTreeMap<(i64, Option<usize>), Vec<Due>> = BTreeMap::new();
    let mut answers: Vec<(usize, RenewReply)> = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        match prepare(core, renewal, sent) {
            Ok((entry, node)) => {
                let session = entry.state().session.id;
                // One that has to move to another session is on its own: that may fail.
                let alone = needs_more(core, &entry, renewal.lease).then_some(at);
                due.entry((session, alone)).or_default().push(Due {
                    at,
                    renewal: renewal.clone(),
                    entry,
                    node,
                });
            }
            Err(reason) => answers.push((at, RenewReply::Lost(reason))),
        }
    }
    // Whoever asks waits for a third of the lease. What takes longer goes on in the background.
    let shortest = renewals.iter().map(|renewal| renewal.lease).min();
    let end = sent + shortest.unwrap_or_default() / 4;
    let mut parts = Vec::new();
    for group in due.into_values() {
        let core = core.clone();
        let part = async move { of_session(&core, group).await };
        parts.push(keeper::handle()?.spawn(part));
    }
    for part in parts {
        let (some, error) = tokio::select! {
            biased;
            done = part => done.unwrap_or_else(|_| (Vec::new(), Some(sending(Zk::Timeout)))),
            () = core.clock.sleep_until(end) => (Vec::new(), Some(sending(Zk::Timeout))),
        };
        answers.extend(some);
        failed = error.or(failed);
    }
    for (at, reply) in answers {
        if let Some(slot) = replies.get_mut(at) {
            *slot = reply;
        }
    }
    let known = |reply: &RenewReply| *reply != RenewReply::Unknown;
    match failed {
        Some(error) if !replies.iter().any(known) => Err(error),
        _ => Ok(replies),
    }
}

/// Renews holds of one session, or one that has to move to another, up to the first failure.
async fn of_session(core: &Arc<Core>, mut group: Vec<Due>) -> Part {
    let mut replies = Vec::with_capacity(group.len());
    for due in &group {
        if let Err(error) = stretch(core, &due.entry, due.renewal.lease).await {
            return (replies, Some(error));
        }
    }
    let Some(session) = group.first().map(|due| due.entry.state().session.clone()) else {
        return (replies, None);
    };
    while !group.is_empty() {
        let rest = group.split_off(group.len().min(MOST));
        if let Err(error) = together(core, &session, group, &mut replies).await {
            return (replies, Some(error));
        }
        group = rest;
    }
    (replies, None)
}

/// The node of a hold that can be renewed, or why it cannot.
fn prepare(
    core: &Arc<Core>,
    renewal: &Renewal,
    now: BootTime,
) -> Result<(Arc<Entry>, Node), LostReason> {
    let hold = &renewal.hold;
    let Some(entry) = core.book.find(hold.request) else {
        let past = core.book.past(hold.request);
        return Err(past.map_or(LostReason::Forgotten, |past| past.reason));
    };
    let Some(node) = held(&entry, hold.seq) else {
        return Err(LostReason::Forgotten);
    };
    begin(core, &entry, now, renewal.lease)?;
    Ok((entry, node))
}

/// Renews holds of one session; whoever is gone is taken out, and the rest is tried again.
async fn together(
    core: &Arc<Core>,
    session: &Session,
    mut group: Vec<Due>,
    replies: &mut Vec<(usize, RenewReply)>,
) -> Result<()> {
    while !group.is_empty() {
        match commit(session, &group).await {
            Ok(()) => {
                for due in group.drain(..) {
                    doubt::guard(core, &due.entry, &due.node);
                    replies.push((due.at, RenewReply::Held));
                }
            }
            Err(MultiWriteError::OperationFailed {
                index,
                source: Zk::NoNode,
            }) if index < group.len() => {
                let gone = group.remove(index);
                let reason = why(core, &gone.entry).await.map_err(sending)?;
                replies.push((gone.at, RenewReply::Lost(reason)));
            }
            Err(error) if is_dead(&Zk::from(error.clone())) => {
                for due in group.drain(..) {
                    core.book
                        .end(&due.entry, Ending::Expired, LostReason::Expired);
                    replies.push((due.at, RenewReply::Lost(LostReason::Expired)));
                }
            }
            Err(error) => return Err(sending(error.into())),
        }
    }
    Ok(())
}

async fn commit(session: &Session, group: &[Due]) -> Result<(), MultiWriteError> {
    let client = session.client(1)?;
    let mut writer = client.new_multi_writer();
    for due in group {
        let path = due.entry.path(&due.node);
        match &due.renewal.value {
            None => writer.add_check_version(&path, -1)?,
            Some(value) => {
                let record = {
                    let mut state = due.entry.state();
                    state.record.value = Some(value.clone());
                    state.record.write()
                };
                writer.add_set_data(&path, &record, None)?;
            }
        }
    }
    session.within(writer.commit()).await??;
    Ok(())
}

/// Whether this lease needs a longer session than the one that the claim lives in.
fn needs_more(core: &Core, entry: &Entry, lease: Duration) -> bool {
    let lock_delay = entry.claim.lock_delay;
    let needed = core.sessions.config.session_for(lease, lock_delay);
    entry.state().session.timeout < needed
}

/// Moves a claim to a longer session, if this lease needs one: a transaction of that session takes
/// its node away and makes it again at the same place in line. The token stays.
pub(crate) async fn stretch(core: &Arc<Core>, entry: &Arc<Entry>, lease: Duration) -> Result<()> {
    if !needs_more(core, entry, lease) {
        return Ok(());
    }
    let (node, old, mut record) = {
        let state = entry.state();
        let Some(node) = state.node.clone() else {
            return Ok(());
        };
        (node, state.session.clone(), state.record.clone())
    };
    let session = core
        .sessions
        .for_claim(lease, entry.claim.lock_delay)
        .await?;
    record.seq = Some(node.seq);
    let path = entry.path(&node);
    let moved = async {
        let client = session.client(1)?;
        let mut writer = client.new_multi_writer();
        let options = session.options(CreateMode::Ephemeral);
        writer.add_set_data(&path, &record.write(), None)?;
        writer.add_delete(&path, None)?;
        writer.add_create(&path, &record.write(), &options)?;
        session.within(writer.commit()).await?.map_err(Zk::from)
    };
    match moved.await {
        Ok(_) => {
            core.book.moved(entry, &old, session);
            entry.state().record = record;
            Ok(())
        }
        // What follows finds out that it is gone.
        Err(Zk::NoNode) => Ok(()),
        Err(error) => Err(sending(error)),
    }
}
