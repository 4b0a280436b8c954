//! Asking to hold a name.

use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply, Ending, LostReason, Queued};
use clinch_core::{BootTime, Effect, Error, ErrorKind, Result};
use zookeeper_client::Error as Zk;

use crate::book::{Entry, Node, State};
use crate::core::Core;
use crate::error::{is_dead, sending};
use crate::fresh::fresh;
use crate::judge::{self, judge, look_first};
use crate::{leave, renew};

/// How often a step begins anew because something went between its requests.
const TRIES: usize = 8;

/// What one try came to.
pub(crate) enum Step {
    Done(ClaimReply),
    Again,
}

/// Handles a claim; see [`Store::claim`](clinch_core::store::Store::claim).
pub(crate) async fn claim(core: &Arc<Core>, claim: &Claim) -> Result<ClaimReply> {
    if let Some(past) = core.book.past(claim.request) {
        return Ok(ClaimReply::Gone(past.reason));
    }
    let entry = match core.book.find(claim.request) {
        Some(entry) => entry,
        None => {
            let session = core
                .sessions
                .for_claim(claim.lease, claim.lock_delay)
                .await?;
            let folder = core.paths.folder(&claim.name);
            let now = core.clock.now();
            match core.book.enter(claim, folder, session, now) {
                Ok(entry) => {
                    crate::janitor::expect(core, now + claim.lease);
                    entry
                }
                Err(past) => return Ok(ClaimReply::Gone(past.reason)),
            }
        }
    };
    for _ in 0..TRIES {
        let sent = core.clock.now();
        if let Err(reason) = begin(core, &entry, sent, claim.lease) {
            return Ok(ClaimReply::Gone(reason));
        }
        renew::stretch(core, &entry, claim.lease).await?;
        match step(core, &entry, claim.queue).await? {
            Step::Done(reply) => return Ok(reply),
            Step::Again => {}
        }
    }
    Err(Error::new(
        ErrorKind::Unreachable,
        "the folder of the lock comes and goes",
    )
    .with_effect(Effect::Possible))
}

/// A request that keeps a claim is about to be sent: why it must not be, if the claim has ended.
///
/// The claim is kept for its new lease from now on, whatever comes of the request: its answer may
/// say that it was heard, and then it must still be there.
pub(crate) fn begin(
    core: &Core,
    entry: &Entry,
    sent: BootTime,
    lease: std::time::Duration,
) -> Result<(), LostReason> {
    if let Some(past) = core.book.past(entry.request()) {
        return Err(past.reason);
    }
    let dead = {
        let mut state = entry.state();
        let dead = state.session.is_dead();
        if !dead {
            // The janitor takes it away.
            if sent >= state.until {
                return Err(LostReason::Expired);
            }
            if state.leaving {
                return Err(LostReason::Released);
            }
            state.lease = lease;
            state.until = state.until.max(sent + lease);
        }
        dead
    };
    if dead {
        core.book.end(entry, Ending::Expired, LostReason::Expired);
        return Err(LostReason::Expired);
    }
    Ok(())
}

async fn step(core: &Arc<Core>, entry: &Arc<Entry>, queue: bool) -> Result<Step> {
    let (node, sent) = {
        let state = entry.state();
        (state.node.clone(), state.sent)
    };
    match (node, sent) {
        (Some(node), _) => again(core, entry, &node, queue).await,
        (None, true) => search(core, entry).await,
        (None, false) => {
            if !queue && let Some(reply) = look_first(core, entry).await? {
                return Ok(Step::Done(reply));
            }
            fresh(core, entry, queue).await
        }
    }
}

/// The session has ended under a request.
pub(crate) fn died(core: &Core, entry: &Entry, error: Zk) -> Result<Step> {
    if is_dead(&error) {
        core.book.end(entry, Ending::Expired, LostReason::Expired);
        return Ok(Step::Done(ClaimReply::Gone(LostReason::Expired)));
    }
    Err(sending(error))
}

/// A claim whose node is known: proves that the session and the node are alive, by a write that the
/// leader commits; a read could come from a server that is cut off.
async fn again(core: &Arc<Core>, entry: &Arc<Entry>, node: &Node, queue: bool) -> Result<Step> {
    let (session, look) = {
        let state = entry.state();
        let look = Look::needed(&state, &entry.claim, queue);
        (state.session.clone(), look)
    };
    let path = entry.path(node);
    let flight = async {
        let client = session.client(1 + u64::from(look != Look::None))?;
        let mut check = client.new_multi_writer();
        check.add_check_version(&path, -1)?;
        let check = check.commit();
        let list = (look == Look::List).then(|| client.get_children(&entry.folder));
        let ahead = match &look {
            Look::At(child) => Some(client.check_stat(child)),
            Look::List | Look::None => None,
        };
        let flight = async { tokio::join!(check, optional(list), optional(ahead)) };
        session.within(flight).await
    };
    let (checked, list, ahead) = match flight.await {
        Ok(answers) => answers,
        Err(error) => return died(core, entry, error),
    };
    match checked.map_err(Zk::from) {
        Ok(_) => {}
        Err(Zk::NoNode) => {
            let reason = leave::why(core, entry).await.map_err(sending)?;
            return Ok(Step::Done(ClaimReply::Gone(reason)));
        }
        Err(error) => return died(core, entry, error),
    }
    let grant = entry.state().granted.clone();
    if let Some(grant) = grant {
        return Ok(Step::Done(ClaimReply::Granted(grant)));
    }
    match (list, ahead) {
        (Some(Ok((names, stat))), _) => judge(core, entry, node, names, stat, None, queue).await,
        (Some(Err(Zk::NoNode)), _) => Ok(Step::Again),
        (Some(Err(error)), _) | (_, Some(Err(error))) => died(core, entry, error),
        // It has gone, and its watch has not told yet.
        (None, Some(Ok(None))) => judge::look(core, entry, node, queue).await,
        (None, _) => Ok(Step::Done(ClaimReply::Queued(
            Queued::new(entry.state().ahead, None).with_wakes_kept(true),
        ))),
    }
}

/// How a repeated claim sees whether its turn has come. Watches tell that sooner, but they are hints:
/// a claim that is repeated must get in without.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It holds.
    None,
    /// Nothing changes while this one is there. A look at it costs the same whatever the number of
    /// waiters.
    At(String),
    List,
}

impl Look {
    fn needed(state: &State, claim: &Claim, queue: bool) -> Self {
        // A waiter of a semaphore can get in while the one ahead, which it watches, is there.
        let one_by_one = matches!(claim.limit, 1 | u32::MAX);
        match &state.target {
            _ if state.granted.is_some() => Self::None,
            Some(child) if state.watched && queue && one_by_one => Self::At(child.clone()),
            _ => Self::List,
        }
    }
}

/// A claim whose answer was lost: is there a node of it?
///
/// The session is the one that the claim was sent in, and the servers keep a session's requests in
/// order, also when it moves from one to another: with a `sync` before, the list has the node if
/// there is one or will be one.
async fn search(core: &Arc<Core>, entry: &Arc<Entry>) -> Result<Step> {
    match leave::find_node(entry).await {
        Ok(Some(node)) => entry.state().node = Some(node),
        Ok(None) => entry.state().sent = false,
        Err(error) => return died(core, entry, error),
    }
    Ok(Step::Again)
}

/// An answer, if one was asked for.
pub(crate) async fn optional<T>(asked: Option<impl Future<Output = T>>) -> Option<T> {
    match asked {
        Some(asked) => Some(asked.await),
        None => None,
    }
}
