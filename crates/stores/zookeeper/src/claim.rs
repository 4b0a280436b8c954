//! Asking to hold a name.

use std::sync::Arc;

use clinch_core::store::line;
use clinch_core::store::{Busy, Claim, ClaimReply, Ending, Grant, LostReason, Queued};
use clinch_core::{BootTime, Effect, Error, ErrorKind, Result};
use zookeeper_client::{CreateMode, Error as Zk, Stat};

use crate::book::{Entry, Habit, Node};
use crate::core::{Core, created};
use crate::error::{is_dead, is_unknown, sending};
use crate::notice::{self, Before};
use crate::places::Line;
use crate::{leave, renew, wakes};

/// How often a step begins anew because something went between its requests.
const TRIES: usize = 8;

/// What one try came to.
enum Step {
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
fn died(core: &Core, entry: &Entry, error: Zk) -> Result<Step> {
    if is_dead(&error) {
        core.book.end(entry, Ending::Expired, LostReason::Expired);
        return Ok(Step::Done(ClaimReply::Gone(LostReason::Expired)));
    }
    Err(sending(error))
}

/// A try does not take a place in the queue in order to learn that the name is taken.
async fn look_first(core: &Core, entry: &Entry) -> Result<Option<ClaimReply>> {
    let session = entry.state().session.clone();
    let listed = async {
        let client = session.client(1)?;
        session.within(client.get_children(&entry.folder)).await?
    };
    let names = match listed.await {
        Ok((names, _)) => names,
        Err(Zk::NoNode) => return Ok(None),
        Err(error) => {
            // Nothing was asked for that could have taken effect.
            forget(core, entry);
            return Err(sending(error).with_effect(Effect::None));
        }
    };
    let claim = &entry.claim;
    let line = Line::read(&claim.name, &names).and_then(|line| {
        line.check_limit(line.children.len(), claim)?;
        Ok(line)
    });
    let line = line.inspect_err(|_| forget(core, entry))?;
    let (units, limit) = (claim.units, claim.limit);
    let all = line.children.iter().map(|child| child.place);
    let with_me = all.chain([line::Place { units, limit }]);
    if line::holders(0, with_me) > line.children.len() {
        return Ok(None);
    }
    forget(core, entry);
    Ok(Some(ClaimReply::Busy(Busy::default())))
}

/// Nothing was sent for this claim.
fn forget(core: &Core, entry: &Entry) {
    core.book.forget(entry);
}

/// Makes the node and looks who is ahead, all in one flight.
async fn fresh(core: &Arc<Core>, entry: &Arc<Entry>, queue: bool) -> Result<Step> {
    let habit = core.book.habit(&entry.folder);
    let (session, data) = {
        let mut state = entry.state();
        state.sent = true;
        (state.session.clone(), state.record.write())
    };
    let path = format!("{}/{}", entry.folder, entry.prefix);
    let options = session.options(CreateMode::EphemeralSequential);
    // Where nobody was the last time, the folder's counters tell whether somebody is ahead: no list
    // is needed. Where somebody was, the list is, and the folder's last word comes with the turn.
    let (wants_word, wants_list) = (habit != Some(Habit::Busy), habit != Some(Habit::Quiet));
    let flight = async {
        let client = session.client(1 + u64::from(wants_word) + u64::from(wants_list))?;
        let word = wants_word.then(|| client.get_data(&entry.folder));
        let made = client.create(&path, &data, &options);
        let list = wants_list.then(|| client.get_children(&entry.folder));
        let flight = async { tokio::join!(optional(word), made, optional(list)) };
        session.within(flight).await
    };
    let (word, made, list) = match flight.await {
        Ok(answers) => answers,
        Err(error) => return died(core, entry, error),
    };
    let (stat, sequence) = match made {
        Ok(made) => made,
        Err(Zk::NoNode) => {
            entry.state().sent = false;
            let made = session.make_folder(&entry.folder).await;
            return made.map_or_else(|error| died(core, entry, error), |()| Ok(Step::Again));
        }
        Err(error) => {
            if !is_unknown(&error) && !is_dead(&error) {
                forget(core, entry);
            }
            return died(core, entry, error);
        }
    };
    core.saw(stat.mtime);
    let node = Node {
        name: format!("{}{sequence}", entry.prefix),
        number: sequence.into_i64(),
        seq: u64::try_from(stat.czxid).unwrap_or_default(),
    };
    entry.state().node = Some(node.clone());
    let before = match word {
        Some(Ok((data, stat))) => Some(Before { data, stat }),
        _ => None,
    };
    if let Some(before) = &before
        && before.stat.num_children == 0
        && created(&before.stat) == node.number
    {
        core.book.learn(&entry.folder, Habit::Quiet);
        let predecessor = notice::at_once(entry, &node, Some(before));
        return Ok(granted(entry, &node, predecessor));
    }
    match list {
        Some(Ok((names, stat))) => judge(core, entry, &node, names, stat, before, queue).await,
        Some(Err(error)) => died(core, entry, error),
        None => look(core, entry, &node, before, queue).await,
    }
}

/// An answer, if one was asked for.
async fn optional<T>(asked: Option<impl Future<Output = T>>) -> Option<T> {
    match asked {
        Some(asked) => Some(asked.await),
        None => None,
    }
}

/// Lists once more.
async fn look(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    node: &Node,
    before: Option<Before>,
    queue: bool,
) -> Result<Step> {
    let session = entry.state().session.clone();
    let listed = async {
        let client = session.client(1)?;
        session.within(client.get_children(&entry.folder)).await?
    };
    match listed.await {
        Ok((names, stat)) => judge(core, entry, node, names, stat, before, queue).await,
        Err(Zk::NoNode) => Ok(Step::Again),
        Err(error) => died(core, entry, error),
    }
}

/// Decides by a listing.
async fn judge(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    node: &Node,
    names: Vec<String>,
    stat: Stat,
    before: Option<Before>,
    queue: bool,
) -> Result<Step> {
    let claim = &entry.claim;
    let judged = Line::read(&claim.name, &names).and_then(|line| {
        let at = line.position(&node.name);
        if let Some(at) = at {
            line.check_limit(at, claim)?;
        }
        Ok((line, at))
    });
    let (line, at) = match judged {
        Ok((line, Some(at))) => (line, at),
        // It was taken away meanwhile: the next try finds out why.
        Ok((_, None)) => return Ok(Step::Again),
        Err(error) => {
            leave::withdraw(core, claim).await?;
            return Err(error);
        }
    };
    let habit = match line.children.len() {
        1 => Habit::Quiet,
        _ => Habit::Busy,
    };
    core.book.learn(&entry.folder, habit);
    if at < line.holders {
        let predecessor = match &before {
            Some(before) => notice::at_once(entry, node, Some(before)),
            None => notice::fetch(entry, node, &stat).await.map_err(sending)?,
        };
        return Ok(granted(entry, node, predecessor));
    }
    if !queue {
        leave::withdraw(core, claim).await?;
        return Ok(Step::Done(ClaimReply::Busy(Busy::default())));
    }
    let ahead = at - line.holders;
    entry.state().ahead = ahead;
    wakes::attend(core, entry, line)?;
    Ok(Step::Done(ClaimReply::Queued(Queued {
        ahead,
        retry_after: None,
        wakes_kept: true,
    })))
}

fn granted(
    entry: &Entry,
    node: &Node,
    predecessor: Option<clinch_core::store::Predecessor>,
) -> Step {
    let grant = Grant {
        seq: node.seq,
        predecessor,
    };
    let mut state = entry.state();
    let grant = state.granted.get_or_insert(grant).clone();
    Step::Done(ClaimReply::Granted(grant))
}

/// A claim whose node is known: proves that the session and the node are alive, by a write that the
/// leader commits; a read could come from a server that is cut off.
async fn again(core: &Arc<Core>, entry: &Arc<Entry>, node: &Node, queue: bool) -> Result<Step> {
    let (session, watched) = {
        let state = entry.state();
        (state.session.clone(), state.watched)
    };
    let wants_list = entry.state().granted.is_none() && (!watched || !queue);
    let path = entry.path(node);
    let flight = async {
        let client = session.client(1 + u64::from(wants_list))?;
        let mut check = client.new_multi_writer();
        check.add_check_version(&path, -1)?;
        let check = check.commit();
        let list = wants_list.then(|| client.get_children(&entry.folder));
        let flight = async { tokio::join!(check, optional(list)) };
        session.within(flight).await
    };
    let (checked, list) = match flight.await {
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
    let (grant, ahead) = {
        let state = entry.state();
        (state.granted.clone(), state.ahead)
    };
    if let Some(grant) = grant {
        return Ok(Step::Done(ClaimReply::Granted(grant)));
    }
    match list {
        Some(Ok((names, stat))) => judge(core, entry, node, names, stat, None, queue).await,
        Some(Err(Zk::NoNode)) => Ok(Step::Again),
        Some(Err(error)) => died(core, entry, error),
        None => Ok(Step::Done(ClaimReply::Queued(Queued {
            ahead,
            retry_after: None,
            wakes_kept: true,
        }))),
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
