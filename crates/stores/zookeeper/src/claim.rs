//! Claims a name.

use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply};
use clinch_core::{Effect, Error, ErrorKind, Result};
use zookeeper_client::Error as Zk;

use crate::cleanup;
use crate::client::Client;
use crate::connection::optional;
use crate::create_node::create_node;
use crate::decide_turn::{
    Step, claim_failed, decide_turn, list_and_decide, queued, refuse_if_busy,
};
use crate::error::request_error;
use crate::move_node::move_if_needed;
use crate::own_claim::{Node, OwnClaim, State};
use crate::release::lost_reason;
use crate::remove_node::find_node;

/// Attempts before a claim gives up because nodes change between its requests.
const ATTEMPTS: usize = 8;

/// Handles a claim; see [`Store::claim`](clinch_core::store::Store::claim).
pub(crate) async fn claim(client: &Arc<Client>, claim: &Claim) -> Result<ClaimReply> {
    if let Some(ended) = client.ledger.ended(claim.request) {
        return Ok(ClaimReply::Gone(ended.reason));
    }
    let own = match client.ledger.get(claim.request) {
        Some(own) => own,
        None => {
            let (lease, lock_delay) = (claim.lease, claim.lock_delay);
            let session = client.sessions.for_claim(lease, lock_delay).await?;
            let folder = client.paths.folder(&claim.name);
            let now = client.clock.now();
            match client.ledger.enter(claim, folder, session, now) {
                Ok(own) => {
                    cleanup::schedule(client, now + claim.lease);
                    own
                }
                Err(ended) => return Ok(ClaimReply::Gone(ended.reason)),
            }
        }
    };
    for _ in 0..ATTEMPTS {
        let sent = client.clock.now();
        if let Err(reason) = client.ledger.extend(&own, sent, claim.lease) {
            return Ok(ClaimReply::Gone(reason));
        }
        move_if_needed(client, &own, claim.lease).await?;
        match attempt(client, &own, claim.queue).await? {
            Step::Reply(reply) => return Ok(reply),
            Step::Retry => {}
        }
    }
    Err(Error::new(
        ErrorKind::Unreachable,
        "the folder of the lock is removed and created again and again",
    )
    .with_effect(Effect::Possible))
}

async fn attempt(client: &Arc<Client>, own: &Arc<OwnClaim>, may_queue: bool) -> Result<Step> {
    let (node, sent) = {
        let state = own.state();
        (state.node.clone(), state.sent)
    };
    match (node, sent) {
        (Some(node), _) => repeat(client, own, &node, may_queue).await,
        (None, true) => search_node(client, own).await,
        (None, false) => {
            if !may_queue && let Some(reply) = refuse_if_busy(client, own).await? {
                return Ok(Step::Reply(reply));
            }
            create_node(client, own, may_queue).await
        }
    }
}

/// Repeats a claim whose node is known. A write that the leader commits proves that the session and the
/// node are alive; a read could be answered by a server that is cut off.
async fn repeat(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    node: &Node,
    may_queue: bool,
) -> Result<Step> {
    let (session, look) = {
        let state = own.state();
        let look = Look::needed(&state, &own.claim, may_queue);
        (state.session.clone(), look)
    };
    let path = own.path(node);
    let requests = async {
        let driver = session.driver(1 + u64::from(look != Look::None))?;
        let mut check = driver.new_multi_writer();
        check.add_check_version(&path, -1)?;
        let check = check.commit();
        let listing = (look == Look::List).then(|| driver.get_children(&own.folder));
        let ahead = match &look {
            Look::At(child) => Some(driver.check_stat(child)),
            Look::List | Look::None => None,
        };
        let replies = async { tokio::join!(check, optional(listing), optional(ahead)) };
        session.with_timeout(replies).await
    };
    let (checked, listing, ahead) = match requests.await {
        Ok(replies) => replies,
        Err(error) => return claim_failed(client, own, error),
    };
    match checked.map_err(Zk::from) {
        Ok(_) => {}
        Err(Zk::NoNode) => {
            let reason = lost_reason(client, own).await.map_err(request_error)?;
            return Ok(Step::Reply(ClaimReply::Gone(reason)));
        }
        Err(error) => return claim_failed(client, own, error),
    }
    let grant = own.state().granted.clone();
    if let Some(grant) = grant {
        return Ok(Step::Reply(ClaimReply::Granted(grant)));
    }
    match (listing, ahead) {
        (Some(Ok(listing)), _) => decide_turn(client, own, node, listing, None, may_queue).await,
        (Some(Err(Zk::NoNode)), _) => Ok(Step::Retry),
        (Some(Err(error)), _) | (_, Some(Err(error))) => claim_failed(client, own, error),
        // The watched node is gone, and its watch has not fired yet.
        (None, Some(Ok(None))) => list_and_decide(client, own, node, may_queue).await,
        (None, _) => Ok(queued(own.state().ahead)),
    }
}

/// How a repeated claim finds out whether its turn has come. Watches are faster, but they are hints: a
/// repeated claim must be granted without them.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It holds already.
    None,
    /// Its turn cannot come while this node exists. The cost does not depend on the number of waiters.
    At(String),
    List,
}

impl Look {
    fn needed(state: &State, claim: &Claim, may_queue: bool) -> Self {
        // A waiter of a semaphore can be granted while the node that it watches exists.
        let one_by_one = matches!(claim.limit, 1 | u32::MAX);
        match &state.watched_path {
            _ if state.granted.is_some() => Self::None,
            Some(child) if state.waiting && may_queue && one_by_one => Self::At(child.clone()),
            _ => Self::List,
        }
    }
}

/// Searches the node of a claim whose reply was lost.
///
/// The servers apply the requests of a session in order, also when it moves from one server to another.
/// So after a `sync` in the same session, the listing has the node if there ever will be one.
async fn search_node(client: &Arc<Client>, own: &Arc<OwnClaim>) -> Result<Step> {
    match find_node(own).await {
        Ok(Some(node)) => own.state().node = Some(node),
        Ok(None) => own.state().sent = false,
        Err(error) => return claim_failed(client, own, error),
    }
    Ok(Step::Retry)
}
