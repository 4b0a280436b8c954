//! Whose turn it is, by a listing of the lock's folder.

use std::sync::Arc;

use clinch_core::store::fifo;
use clinch_core::store::{Busy, ClaimReply, Grant, Predecessor, Queued};
use clinch_core::{Effect, Result};
use zookeeper_client::{Error as Zk, Stat};

use crate::book::{Entry, Habit, Node};
use crate::claim::{Step, died};
use crate::core::Core;
use crate::error::sending;
use crate::notice::{self, Before};
use crate::places::Line;
use crate::{leave, wakes};

/// A try does not take a place in the queue in order to learn that the name is taken.
pub(crate) async fn look_first(core: &Core, entry: &Entry) -> Result<Option<ClaimReply>> {
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
            core.book.forget(entry);
            return Err(sending(error).with_effect(Effect::None));
        }
    };
    let claim = &entry.claim;
    let line = Line::read(&names).and_then(|line| {
        line.check_limit(line.children.len(), claim)?;
        Ok(line)
    });
    let line = line.inspect_err(|_| core.book.forget(entry))?;
    let (units, limit) = (claim.units, claim.limit);
    let all = line.children.iter().map(|child| child.place);
    let with_me = all.chain([fifo::Place { units, limit }]);
    if fifo::holders(0, with_me) > line.children.len() {
        return Ok(None);
    }
    core.book.forget(entry);
    Ok(Some(ClaimReply::Busy(Busy::default())))
}

/// Lists once more.
pub(crate) async fn look(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    node: &Node,
    queue: bool,
) -> Result<Step> {
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
pub(crate) async fn judge(
    core: &Arc<Core>,
    entry: &Arc<Entry>,
    node: &Node,
    names: Vec<String>,
    stat: Stat,
    before: Option<Before>,
    queue: bool,
) -> Result<Step> {
    let claim = &entry.claim;
    let judged = Line::read(&names).and_then(|line| {
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
            leave::retract(core, entry).await?;
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
        leave::retract(core, entry).await?;
        return Ok(Step::Done(ClaimReply::Busy(Busy::default())));
    }
    let ahead = at - line.holders;
    entry.state().ahead = ahead;
    wakes::attend(core, entry, line)?;
    Ok(Step::Done(ClaimReply::Queued(
        Queued::new(ahead, None).with_wakes_kept(true),
    )))
}

pub(crate) fn granted(entry: &Entry, node: &Node, predecessor: Option<Predecessor>) -> Step {
    let grant = Grant::new(node.seq, predecessor);
    let mut state = entry.state();
    let grant = state.granted.get_or_insert(grant).clone();
    Step::Done(ClaimReply::Granted(grant))
}
