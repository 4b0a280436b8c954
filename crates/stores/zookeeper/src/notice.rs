//! How the hold before a grant ended.
//!
//! Whoever gives a hold up, or breaks one, writes a word into the lock's folder in the same
//! transaction. A hold that vanishes without a word has expired. Nothing is told where it is not
//! certain.

use clinch_core::store::{Ending, Predecessor};
use clinch_core::{OwnerId, RequestId};
use zookeeper_client::{Error as Zk, Stat};

use crate::book::{Entry, Node};
use crate::record::{Record, Word};

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

/// For a claim that was granted at once.
pub(crate) fn at_once(entry: &Entry, node: &Node, before: Option<&Before>) -> Option<Predecessor> {
    let before = before?;
    let word = Word::read(&before.data)?;
    // The last change of the children was the one that came with the word: nobody came and went
    // without one since.
    let certain = before.stat.pzxid == before.stat.mzxid || is_next(entry, node, &word);
    certain.then(|| word.predecessor())
}

/// For a claim that was granted at once and did not read the word before.
pub(crate) async fn fetch(
    entry: &Entry,
    node: &Node,
    stat: &Stat,
) -> Result<Option<Predecessor>, Zk> {
    if stat.data_length == 0 {
        return Ok(None);
    }
    let word = read(entry).await?.0;
    let word = word.filter(|word| is_next(entry, node, word));
    Ok(word.map(|word| word.predecessor()))
}

/// For a claim that has waited for the one that it has seen.
pub(crate) fn after(
    entry: &Entry,
    node: &Node,
    seen: Option<&Seen>,
    word: Option<&Word>,
    stat: &Stat,
) -> Option<Predecessor> {
    let said = || word.map(Word::predecessor);
    let Some(seen) = seen else {
        return word
            .filter(|word| is_next(entry, node, word))
            .and_then(|_| said());
    };
    let about = |request| word.is_some_and(|word| word.is_about(request));
    if seen.request.is_some_and(about) || stat.pzxid == stat.mzxid {
        return said();
    }
    if seen.spoke {
        return word
            .filter(|word| is_next(entry, node, word))
            .and_then(|_| said());
    }
    let record = seen.record.as_ref()?;
    Some(Predecessor {
        ending: Ending::Expired,
        seq: record.seq.unwrap_or(seen.seq),
        owner: OwnerId::new(record.owner.as_str()),
    })
}

/// The word of the folder, and the folder's counters.
pub(crate) async fn read(entry: &Entry) -> Result<(Option<Word>, Stat), Zk> {
    let session = entry.state().session.clone();
    let client = session.client(1)?;
    let (data, stat) = session.within(client.get_data(&entry.folder)).await??;
    Ok((Word::read(&data), stat))
}

/// Whether a mutex's word is about the claim directly before this one: whoever was earlier had ended
/// before that one was granted.
fn is_next(entry: &Entry, node: &Node, word: &Word) -> bool {
    entry.claim.limit == 1 && word.number + 1 == node.number
}
