//! Decides whether a claim holds, by a listing of the lock's folder.

use std::sync::Arc;

use clinch_core::store::{Busy, ClaimReply, Grant, LostReason, Predecessor, Queued};
use clinch_core::{Effect, Result};
use zookeeper_client::{Error as Zk, Stat};

use crate::client::Client;
use crate::error::{ends_session, request_error};
use crate::folders::FolderState;
use crate::own_claim::{Node, OwnClaim};
use crate::predecessor::{self, FolderBefore};
use crate::queue::Queue;
use crate::{release, wakes};

/// The result of one attempt of a claim.
pub(crate) enum Step {
    Reply(ClaimReply),
    /// Something changed between its requests: try again.
    Retry,
}

/// A claim that must not queue lists the folder before it creates a node: a refusal then costs one read.
pub(crate) async fn refuse_if_busy(client: &Client, own: &OwnClaim) -> Result<Option<ClaimReply>> {
    let names = match list(own).await {
        Ok((names, _)) => names,
        Err(Zk::NoNode) => return Ok(None),
        Err(error) => {
            client.ledger.forget(own);
            // Only a read was sent.
            return Err(request_error(error).with_effect(Effect::None));
        }
    };
    let queue = Queue::parse(&names).and_then(|queue| {
        queue.check_limit(queue.children.len(), &own.claim)?;
        Ok(queue)
    });
    let queue = queue.inspect_err(|_| client.ledger.forget(own))?;
    if queue.has_room_for(&own.claim) {
        return Ok(None);
    }
    client.ledger.forget(own);
    Ok(Some(ClaimReply::Busy(Busy::default())))
}

async fn list(own: &OwnClaim) -> Result<(Vec<String>, Stat), Zk> {
    let session = own.state().session.clone();
    let driver = session.driver(1)?;
    let listing = driver.get_children(&own.folder);
    session.with_timeout(listing).await?
}

/// Lists the folder and decides.
pub(crate) async fn list_and_decide(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    node: &Node,
    may_queue: bool,
) -> Result<Step> {
    match list(own).await {
        Ok(listing) => decide_turn(client, own, node, listing, None, may_queue).await,
        Err(Zk::NoNode) => Ok(Step::Retry),
        Err(error) => claim_failed(client, own, error),
    }
}

/// Decides by a listing and the stat of the folder.
pub(crate) async fn decide_turn(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    node: &Node,
    (names, stat): (Vec<String>, Stat),
    before: Option<FolderBefore>,
    may_queue: bool,
) -> Result<Step> {
    let found = Queue::parse(&names).and_then(|queue| {
        let at = queue.position(&node.name);
        if let Some(at) = at {
            queue.check_limit(at, &own.claim)?;
        }
        Ok((queue, at))
    });
    let (queue, at) = match found {
        Ok((queue, Some(at))) => (queue, at),
        // Its node was deleted. The next attempt finds out why.
        Ok((_, None)) => return Ok(Step::Retry),
        Err(error) => {
            release::retract(client, own).await?;
            return Err(error);
        }
    };
    if queue.children.len() > 1 {
        client.folders.set(&own.folder, FolderState::Busy);
    }
    if at < queue.holders {
        let predecessor = match &before {
            Some(before) => predecessor::from_folder(own, node, before),
            None => predecessor::fetch(own, node, &stat, &queue)
                .await
                .map_err(request_error)?,
        };
        predecessor::record_hold(client, own, node, false);
        return Ok(granted(own, node, predecessor));
    }
    if !may_queue {
        release::retract(client, own).await?;
        return Ok(Step::Reply(ClaimReply::Busy(Busy::default())));
    }
    let ahead = at - queue.holders;
    own.state().ahead = ahead;
    wakes::wait_for_turn(client, own, queue)?;
    Ok(queued(ahead))
}

pub(crate) fn granted(own: &OwnClaim, node: &Node, predecessor: Option<Predecessor>) -> Step {
    let grant = Grant::new(node.seq, predecessor);
    let grant = own.state().granted.get_or_insert(grant).clone();
    Step::Reply(ClaimReply::Granted(grant))
}

pub(crate) fn queued(ahead: usize) -> Step {
    let queued = Queued::new(ahead, None).with_wakes_kept(true);
    Step::Reply(ClaimReply::Queued(queued))
}

/// The result of a claim after a failed request: if its session has ended, so has the claim.
pub(crate) fn claim_failed(client: &Client, own: &OwnClaim, error: Zk) -> Result<Step> {
    if ends_session(&error) {
        client.ledger.expire(own);
        return Ok(Step::Reply(ClaimReply::Gone(LostReason::Expired)));
    }
    Err(request_error(error))
}
