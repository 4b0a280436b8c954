//! Keeping holds.
//!
//! The driver's pings keep a session alive by themselves. What a renewal adds is the proof: one
//! transaction for all holds of a session, which the leader commits with a majority, says that the
//! session lived and that the nodes were there when it was sent or later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Ending, LostReason, RenewReply, Renewal};
use clinch_core::{BootTime, Error, Result};
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

/// Handles renewals; see [`Store::renew`](clinch_core::store::Store::renew).
pub(crate) async fn renew(core: &Arc<Core>, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
    let mut replies = vec![RenewReply::Unknown; renewals.len()];
    let mut failed = None;
    let mut due: BTreeMap<i64, (Arc<Session>, Vec<Due>)> = BTreeMap::new();
    let sent = core.clock.now();
    for (at, renewal) in renewals.iter().enumerate() {
        let reply = match prepare(core, renewal, sent).await {
            Ok(Ok((entry, node))) => {
                let session = entry.state().session.clone();
                let (_, group) = due
                    .entry(session.id)
                    .or_insert_with(|| (session, Vec::new()));
                group.push(Due {
                    at,
                    renewal: renewal.clone(),
                    entry,
                    node,
                });
                continue;
            }
            Ok(Err(reason)) => RenewReply::Lost(reason),
            // Nothing else is prepared: each could take as long.
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        if let Some(slot) = replies.get_mut(at) {
            *slot = reply;
        }
    }
    for (session, group) in due.into_values() {
        let (answers, error) = of_session(core, &session, group).await;
        for (at, reply) in answers {
            if let Some(slot) = replies.get_mut(at) {
                *slot = reply;
            }
        }
        if error.is_some() {
            // Nothing else is asked: each question could take as long.
            failed = error;
            break;
        }
    }
    let known = |reply: &RenewReply| *reply != RenewReply::Unknown;
    match failed {
        Some(error) if !replies.iter().any(known) => Err(error),
        _ => Ok(replies),
    }
}

/// Renews holds of one session, up to the first failure.
async fn of_session(
    core: &Arc<Core>,
    session: &Session,
    mut group: Vec<Due>,
) -> (Vec<(usize, RenewReply)>, Option<Error>) {
    let mut replies = Vec::with_capacity(group.len());
    while !group.is_empty() {
        let rest = group.split_off(group.len().min(MOST));
        if let Err(error) = together(core, session, group, &mut replies).await {
            return (replies, Some(error));
        }
        group = rest;
    }
    (replies, None)
}

/// The node of a hold that can be renewed, or why it cannot.
async fn prepare(
    core: &Arc<Core>,
    renewal: &Renewal,
    now: BootTime,
) -> Result<Result<(Arc<Entry>, Node), LostReason>> {
    let hold = &renewal.hold;
    let Some(entry) = core.book.find(hold.request) else {
        let past = core.book.past(hold.request);
        return Ok(Err(past.map_or(LostReason::Forgotten, |past| past.reason)));
    };
    let Some(node) = held(&entry, hold.seq) else {
        return Ok(Err(LostReason::Forgotten));
    };
    if let Err(reason) = begin(core, &entry, now, renewal.lease) {
        return Ok(Err(reason));
    }
    stretch(core, &entry, renewal.lease).await?;
    Ok(Ok((entry, node)))
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

/// Moves a claim to a longer session, if this lease needs one: a transaction of that session takes
/// its node away and makes it again at the same place in line. The token stays.
pub(crate) async fn stretch(core: &Arc<Core>, entry: &Arc<Entry>, lease: Duration) -> Result<()> {
    let needed = core
        .sessions
        .config
        .session_for(lease, entry.claim.lock_delay);
    let (node, old, mut record) = {
        let state = entry.state();
        let Some(node) = state.node.clone() else {
            return Ok(());
        };
        if state.session.timeout >= needed {
            return Ok(());
        }
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
