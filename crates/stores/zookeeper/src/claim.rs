//! Asking to hold a name.

use std::sync::Arc;

use clinch_core::store::line;
use clinch_core::store::{Busy, Claim, ClaimReply, Ending, Grant, LostReason, Queued};
use clinch_core::{BootTime, Effect, Error, ErrorKind, Result};
use zookeeper_client::{CreateMode, Error as Zk, MultiWriteResult, Stat};

use crate::book::{Entry, Habit, Left, Node};
use crate::core::Core;
use crate::error::{is_dead, is_unknown, sending};
use crate::notice::{self, Before};
use crate::places::Line;
use crate::record::How;
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
    if let Some(Habit::Quiet(left)) = &habit
        && entry.is_exclusive()
    {
        return quick(core, entry, left, queue).await;
    }
    let (session, data) = {
        let mut state = entry.state();
        state.sent = true;
        (state.session.clone(), state.record.write())
    };
    let path = format!("{}/{}", entry.folder, entry.prefix);
    let options = session.options(CreateMode::EphemeralSequential);
    // Where somebody was the last time, the folder's word comes with the turn.
    let wants_word = habit != Some(Habit::Busy);
    let flight = async {
        let client = session.client(2 + u64::from(wants_word))?;
        let word = wants_word.then(|| client.get_data(&entry.folder));
        let made = client.create(&path, &data, &options);
        let list = client.get_children(&entry.folder);
        let flight = async { tokio::join!(optional(word), made, list) };
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
        Err(error) => return refused(core, entry, error),
    };
    core.saw(stat.ctime);
    let node = arrived(entry, format!("{}{sequence}", entry.prefix), stat.czxid);
    let before = match word {
        Some(Ok((data, stat))) => Some(Before { data, stat }),
        _ => None,
    };
    match list {
        Ok((names, stat)) => judge(core, entry, &node, names, stat, before, queue).await,
        Err(error) => died(core, entry, error),
    }
}

/// Makes the node where nobody was when we left: if the folder's word is still ours, and there are
/// no children, nobody is ahead, and no list is needed. The word is from now on that we hold.
async fn quick(core: &Arc<Core>, entry: &Arc<Entry>, left: &Left, queue: bool) -> Result<Step> {
    let (session, data) = {
        let mut state = entry.state();
        state.sent = true;
        state.recorded = Some(Box::new(left.clone()));
        state.before = Some(left.word.clone());
        (state.session.clone(), state.record.write())
    };
    let path = format!("{}/{}", entry.folder, entry.prefix);
    let word = entry.word(None, How::Holding).write();
    let flight = async {
        let client = session.client(1)?;
        let mut writer = client.new_multi_writer();
        let options = session.options(CreateMode::EphemeralSequential);
        writer.add_set_data(&entry.folder, &word, Some(left.version))?;
        writer.add_create(&path, &data, &options)?;
        session.within(writer.commit()).await?.map_err(Zk::from)
    };
    let results = match flight.await {
        Ok(results) => results,
        Err(Zk::BadVersion | Zk::NoNode) => {
            core.book.unlearn(&entry.folder);
            let mut state = entry.state();
            (state.sent, state.recorded) = (false, None);
            return Ok(Step::Again);
        }
        Err(error) => return refused(core, entry, error),
    };
    let mut results = results.into_iter();
    let (Some(MultiWriteResult::SetData { stat }), Some(MultiWriteResult::Create { path, .. })) =
        (results.next(), results.next())
    else {
        return Err(sending(Zk::UnexpectedError(
            "not the answer to a claim".to_owned(),
        )));
    };
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    // One transaction has one zxid, which some servers tell only here.
    core.saw(stat.mtime);
    let node = arrived(entry, name, stat.mzxid);
    if stat.num_children > 0 {
        return look(core, entry, &node, queue).await;
    }
    let same = stat.czxid == left.folder;
    let predecessor = same.then(|| left.word.predecessor(left.written));
    Ok(granted(entry, &node, predecessor))
}

/// The node is there.
fn arrived(entry: &Entry, name: String, zxid: i64) -> Node {
    let number = name
        .strip_prefix(&entry.prefix)
        .and_then(|n| n.parse().ok());
    let node = Node {
        number: number.unwrap_or_default(),
        seq: u64::try_from(zxid).unwrap_or_default(),
        name,
    };
    entry.state().node = Some(node.clone());
    node
}

/// The node could not be made, or nobody knows.
fn refused(core: &Core, entry: &Entry, error: Zk) -> Result<Step> {
    if !is_unknown(&error) && !is_dead(&error) {
        forget(core, entry);
    }
    died(core, entry, error)
}

/// An answer, if one was asked for.
async fn optional<T>(asked: Option<impl Future<Output = T>>) -> Option<T> {
    match asked {
        Some(asked) => Some(asked.await),
        None => None,
    }
}

/// Lists once more.
async fn look(core: &Arc<Core>, entry: &Arc<Entry>, node: &Node, queue: bool) -> Result<Step> {
    let session = entry.state().session.clone();
    let listed = async {
        let client = session.client(1)?;
        session.within(client.get_children(&entry.folder)).await?
    };
    match listed.await {
        Ok((names, stat)) => judge(core, entry, node, names, stat, None, queue).await,
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
    if line.children.len() > 1 {
        core.book.learn(&entry.folder, Habit::Busy);
    }
    if at < line.holders {
        let predecessor = match &before {
            Some(before) => notice::at_once(entry, node, before),
            None => notice::fetch(entry, node, &stat, &line)
                .await
                .map_err(sending)?,
        };
        notice::record(core, entry, node, false);
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
