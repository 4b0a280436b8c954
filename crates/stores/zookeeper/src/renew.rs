//! Renews holds.
//!
//! The driver's pings keep a session alive. A renewal adds the proof: one transaction for all holds of a
//! session, which the leader commits with a majority. It proves that the session was alive and the nodes
//! existed when it was sent or later.

use std::collections::BTreeMap;
use std::sync::Arc;

use clinch_core::store::{LostReason, RenewReply, Renewal};
use clinch_core::{BootTime, Error, Result, keeper};
use zookeeper_client::{Error as Zk, MultiWriteError};

use crate::client::Client;
use crate::connection::Session;
use crate::error::{ends_session, request_error};
use crate::move_node::{move_if_needed, must_move};
use crate::own_claim::{Node, OwnClaim};
use crate::release::lost_reason;
use crate::suspicions;

/// Nodes in one transaction: well below the size that servers accept.
const TRANSACTION: usize = 500;

/// A renewal to send.
struct Due {
    /// Its position among the renewals.
    at: usize,
    renewal: Renewal,
    own: Arc<OwnClaim>,
    node: Node,
}

/// The replies to some renewals, and the error that ended them.
type Part = (Vec<(usize, RenewReply)>, Option<Error>);

/// Handles renewals; see [`Store::renew`](clinch_core::store::Store::renew).
///
/// All sessions are renewed at the same time, so that a silent one costs only its own holds.
pub(crate) async fn renew(client: &Arc<Client>, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
    let mut replies = vec![RenewReply::Unknown; renewals.len()];
    let mut failed = None;
    let sent = client.clock.now();
    let mut due: BTreeMap<(i64, Option<usize>), Vec<Due>> = BTreeMap::new();
    let mut received: Vec<(usize, RenewReply)> = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        match prepare(client, renewal, sent) {
            Ok((own, node)) => {
                let session = own.state().session.id;
                // One that must move to another session is renewed alone, because the move may fail.
                let alone = must_move(client, &own, renewal.lease).then_some(at);
                due.entry((session, alone)).or_default().push(Due {
                    at,
                    renewal: renewal.clone(),
                    own,
                    node,
                });
            }
            Err(reason) => received.push((at, RenewReply::Lost(reason))),
        }
    }
    // The engine waits for a third of the lease. What takes longer goes on in the background.
    let shortest = renewals.iter().map(|renewal| renewal.lease).min();
    let end = sent + shortest.unwrap_or_default() / 4;
    let mut parts = Vec::new();
    for group in due.into_values() {
        let client = client.clone();
        let part = async move { renew_session(&client, group).await };
        parts.push(keeper::handle()?.spawn(part));
    }
    for part in parts {
        let (some, error) = tokio::select! {
            biased;
            done = part => done.unwrap_or_else(|_| (Vec::new(), Some(request_error(Zk::Timeout)))),
            () = client.clock.sleep_until(end) => (Vec::new(), Some(request_error(Zk::Timeout))),
        };
        received.extend(some);
        failed = error.or(failed);
    }
    for (at, reply) in received {
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

/// Renews holds of one session, or one that must move to another, up to the first failure.
async fn renew_session(client: &Arc<Client>, mut group: Vec<Due>) -> Part {
    let mut replies = Vec::with_capacity(group.len());
    for due in &group {
        if let Err(error) = move_if_needed(client, &due.own, due.renewal.lease).await {
            return (replies, Some(error));
        }
    }
    let Some(session) = group.first().map(|due| due.own.state().session.clone()) else {
        return (replies, None);
    };
    while !group.is_empty() {
        let rest = group.split_off(group.len().min(TRANSACTION));
        if let Err(error) = renew_nodes(client, &session, group, &mut replies).await {
            return (replies, Some(error));
        }
        group = rest;
    }
    (replies, None)
}

/// Extends the deadline of a hold and returns its node; `Err` if it is lost.
fn prepare(
    client: &Arc<Client>,
    renewal: &Renewal,
    now: BootTime,
) -> Result<(Arc<OwnClaim>, Node), LostReason> {
    let hold = &renewal.hold;
    let Some(own) = client.ledger.get(hold.request) else {
        let ended = client.ledger.ended(hold.request);
        return Err(ended.map_or(LostReason::Forgotten, |ended| ended.reason));
    };
    let Some(node) = own.held_node(hold.seq) else {
        return Err(LostReason::Forgotten);
    };
    client.ledger.extend(&own, now, renewal.lease)?;
    Ok((own, node))
}

/// Renews nodes of one session. If one of them is gone, the others are tried again.
async fn renew_nodes(
    client: &Arc<Client>,
    session: &Session,
    mut group: Vec<Due>,
    replies: &mut Vec<(usize, RenewReply)>,
) -> Result<()> {
    while !group.is_empty() {
        match commit(session, &group).await {
            Ok(()) => {
                for due in group.drain(..) {
                    suspicions::watch_node(&client.suspicions, &due.own, &due.node);
                    replies.push((due.at, RenewReply::Held));
                }
            }
            Err(MultiWriteError::OperationFailed {
                index,
                source: Zk::NoNode,
            }) if index < group.len() => {
                let gone = group.remove(index);
                let reason = lost_reason(client, &gone.own)
                    .await
                    .map_err(request_error)?;
                replies.push((gone.at, RenewReply::Lost(reason)));
            }
            Err(error) if ends_session(&Zk::from(error.clone())) => {
                for due in group.drain(..) {
                    client.ledger.expire(&due.own);
                    replies.push((due.at, RenewReply::Lost(LostReason::Expired)));
                }
            }
            Err(error) => return Err(request_error(error.into())),
        }
    }
    Ok(())
}

async fn commit(session: &Session, group: &[Due]) -> Result<(), MultiWriteError> {
    let driver = session.driver(1)?;
    let mut writer = driver.new_multi_writer();
    for due in group {
        let path = due.own.path(&due.node);
        match &due.renewal.value {
            None => writer.add_check_version(&path, -1)?,
            Some(value) => {
                let record = {
                    let mut state = due.own.state();
                    state.record.value = Some(value.clone());
                    state.record.write()
                };
                writer.add_set_data(&path, &record, None)?;
            }
        }
    }
    session.with_timeout(writer.commit()).await??;
    Ok(())
}
