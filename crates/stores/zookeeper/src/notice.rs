//! How the hold before a grant ended.
//!
//! Whoever gives a hold up, or breaks one, writes a word into the lock's folder in the same
//! transaction. A hold that vanishes without a word has expired. Nothing is told where it is not
//! certain.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::store::{Ending, Predecessor};
use clinch_core::{OwnerId, RequestId, keeper};
use zookeeper_client::{Error as Zk, Stat};

use crate::book::{Entry, Node};
use crate::core::Core;
use crate::places::{Child, Line};
use crate::record::{How, Record, Word};

/// The folder as it was just before our node was made.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// A claim that we watched while it was ahead of us.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) request: Option<RequestId>,
    /// Who it is; `None` for one of another library.
    pub(crate) record: Option<Record>,
    pub(crate) seq: u64,
    /// Whether it said something before it went, so that it has not just vanished.
    pub(crate) spoke: bool,
}

/// For a claim that was granted at once, by the folder as it was before.
pub(crate) fn at_once(entry: &Entry, node: &Node, before: &Before) -> Option<Predecessor> {
    let word = Word::read(&before.data)?;
    entry.state().before = Some(word.clone());
    // The last change of the children was the one that came with the word: nobody came and went
    // without one since. Who said that it holds, and holds no more, has expired.
    let certain = before.stat.pzxid == before.stat.mzxid
        || word.is_holding() && entry.is_exclusive()
        || is_next(entry, node, &word);
    certain.then(|| word.predecessor(before.stat.mzxid))
}

/// For a claim that was granted at once and did not read the word before.
pub(crate) async fn fetch(
    entry: &Entry,
    node: &Node,
    stat: &Stat,
    line: &Line,
) -> Result<Option<Predecessor>, Zk> {
    if stat.data_length == 0 {
        return Ok(None);
    }
    let (word, stat) = read(entry).await?;
    // Who said so and waits behind us was wrong.
    let waits = |word: &Word| {
        let mut requests = line.children.iter().filter_map(Child::request);
        requests.any(|request| word.is_about(request))
    };
    let vanished = |word: &Word| word.is_holding() && entry.is_exclusive() && !waits(word);
    let word = word.filter(|word| vanished(word) || is_next(entry, node, word));
    Ok(word.map(|word| word.predecessor(stat.mzxid)))
}

/// For a claim that has waited for the one that it has seen.
pub(crate) fn after(
    entry: &Entry,
    node: &Node,
    seen: Option<&Seen>,
    word: Option<&Word>,
    stat: &Stat,
) -> Option<Predecessor> {
    let said = || word.map(|word| word.predecessor(stat.mzxid));
    let next = || {
        word.filter(|word| is_next(entry, node, word))
            .and_then(|_| said())
    };
    let Some(seen) = seen else {
        return next();
    };
    let about = |request| word.is_some_and(|word| word.is_about(request));
    if seen.request.is_some_and(about) || stat.pzxid == stat.mzxid {
        return said();
    }
    if seen.spoke {
        return next();
    }
    let record = seen.record.as_ref()?;
    Some(Predecessor::new(
        Ending::Expired,
        record.seq.unwrap_or(seen.seq),
        OwnerId::new(record.owner.as_str()),
    ))
}

/// The word of the folder, and the folder's counters.
pub(crate) async fn read(entry: &Entry) -> Result<(Option<Word>, Stat), Zk> {
    let session = entry.state().session.clone();
    let client = session.client(1)?;
    let (data, stat) = session.within(client.get_data(&entry.folder)).await??;
    let word = Word::read(&data);
    entry.state().before = word.clone();
    Ok((word, stat))
}

/// Whether a mutex's word is about the claim directly before this one: whoever was earlier had ended
/// before that one was granted.
fn is_next(entry: &Entry, node: &Node, word: &Word) -> bool {
    entry.claim.limit == 1 && word.number + 1 == node.number
}

/// How long a hold that was waited for is kept before the folder says so: most are over by then, and
/// whoever is in line sees them anyway.
const SOON: Duration = Duration::from_millis(100);

/// Lets the folder say that this claim holds alone, so that its death is known also if nobody is in
/// line when it dies. In the background: nobody waits for it.
pub(crate) fn record(core: &Arc<Core>, entry: &Arc<Entry>, node: &Node, waited: bool) {
    if !entry.is_exclusive() || entry.state().recorded.is_some() {
        return;
    }
    let (core, entry, node) = (core.clone(), entry.clone(), node.clone());
    let recording = async move {
        if waited {
            core.clock.sleep(SOON).await;
        }
        // It is a hint for whoever comes after a death: nothing depends on it here.
        let _ = write(&entry, &node).await;
    };
    if let Err(error) = keeper::spawn(recording) {
        tracing::warn!(%error, "the death of this holder may go unnoticed");
    }
}

async fn write(entry: &Entry, node: &Node) -> Result<(), Zk> {
    let (session, record) = {
        let state = entry.state();
        if state.leaving || entry.has_ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        (state.session.clone(), state.record.write())
    };
    let client = session.client(1)?;
    let mut writer = client.new_multi_writer();
    let path = entry.path(node);
    // Only as long as the node is there.
    writer.add_check_version(&path, -1)?;
    let word = entry.word(Some(node), How::Holding);
    writer.add_set_data(&entry.folder, &word.write(), None)?;
    writer.add_set_data(&path, &record, None)?;
    session.within(writer.commit()).await??;
    Ok(())
}
