//! Making the node of a claim.

use std::sync::Arc;

use clinch_core::Result;
use zookeeper_client::{CreateMode, Error as Zk, MultiWriteResult};

use crate::book::{Entry, Habit, Left, Node};
use crate::claim::{Step, died, optional};
use crate::core::Core;
use crate::error::{is_dead, is_unknown, sending};
use crate::judge::{granted, judge, look};
use crate::notice::Before;
use crate::record::How;

/// Makes the node and looks who is ahead, all in one flight.
pub(crate) async fn fresh(core: &Arc<Core>, entry: &Arc<Entry>, queue: bool) -> Result<Step> {
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
        core.book.forget(entry);
    }
    died(core, entry, error)
}
