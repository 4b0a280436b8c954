//! How the hold before a grant ended.
//!
//! A client that releases or evicts a hold writes the folder record in the same transaction. A hold that
//! is gone without such a record has expired. If the end is not certain, none is reported.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Ending, Predecessor};
use clinch_core::{OwnerId, keeper};
use zookeeper_client::{Error as Zk, Stat};

use crate::client::Client;
use crate::keys::Child;
use crate::own_claim::{Node, OwnClaim, WatchedClaim};
use crate::queue::Queue;
use crate::record::{FolderRecord, HoldState};

/// A hold that waited is recorded after this time: most have ended by then, and waiters watch the node.
const RECORD_DELAY: Duration = Duration::from_millis(100);

/// The folder just before the claim's node was created.
#[derive(Debug)]
pub(crate) struct FolderBefore {
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
}

/// The predecessor of a claim that was granted at once, by the folder as it was before.
pub(crate) fn from_folder(
    own: &OwnClaim,
    node: &Node,
    before: &FolderBefore,
) -> Option<Predecessor> {
    let record = FolderRecord::read(&before.data)?;
    own.state().found = Some(record.clone());
    // The first condition: the record was written with the latest change of the children, so no claim
    // came and went without a record since. The second: a holder that is gone has expired.
    let certain = before.stat.pzxid == before.stat.mzxid
        || record.is_holding() && own.is_exclusive()
        || is_next(own, node, &record);
    certain.then(|| record.predecessor(before.stat.mzxid))
}

/// The predecessor of a claim that was granted at once and has not read the folder record before.
pub(crate) async fn fetch(
    own: &OwnClaim,
    node: &Node,
    stat: &Stat,
    queue: &Queue,
) -> Result<Option<Predecessor>, Zk> {
    if stat.data_length == 0 {
        return Ok(None);
    }
    let (record, stat) = read(own).await?;
    // A claim that marked the folder as held and waits behind this one never held.
    let waits = |record: &FolderRecord| {
        let mut requests = queue.children.iter().filter_map(Child::request);
        requests.any(|request| record.is_about(request))
    };
    let expired =
        |record: &FolderRecord| record.is_holding() && own.is_exclusive() && !waits(record);
    let record = record.filter(|record| expired(record) || is_next(own, node, record));
    Ok(record.map(|record| record.predecessor(stat.mzxid)))
}

/// The predecessor of a claim that has waited and watched this claim ahead of it.
pub(crate) fn after_wait(
    own: &OwnClaim,
    node: &Node,
    watched: Option<&WatchedClaim>,
    record: Option<&FolderRecord>,
    stat: &Stat,
) -> Option<Predecessor> {
    let recorded = || record.map(|record| record.predecessor(stat.mzxid));
    let next = || {
        let next = record.filter(|record| is_next(own, node, record));
        next.and_then(|_| recorded())
    };
    let Some(watched) = watched else {
        return next();
    };
    let is_recorded = |request| record.is_some_and(|record| record.is_about(request));
    if watched.request.is_some_and(is_recorded) || stat.pzxid == stat.mzxid {
        return recorded();
    }
    if watched.written {
        return next();
    }
    let record = watched.record.as_ref()?;
    Some(Predecessor::new(
        Ending::Expired,
        record.seq.unwrap_or(watched.seq),
        OwnerId::new(record.owner.as_str()),
    ))
}

/// Reads the folder record and the folder's stat.
pub(crate) async fn read(own: &OwnClaim) -> Result<(Option<FolderRecord>, Stat), Zk> {
    let session = own.state().session.clone();
    let driver = session.driver(1)?;
    let reading = driver.get_data(&own.folder);
    let (data, stat) = session.with_timeout(reading).await??;
    let record = FolderRecord::read(&data);
    own.state().found = record.clone();
    Ok((record, stat))
}

/// Whether a mutex's record is about the claim directly before this one. All earlier claims had ended
/// before that one was granted.
fn is_next(own: &OwnClaim, node: &Node, record: &FolderRecord) -> bool {
    own.claim.limit == 1 && record.number + 1 == node.number
}

/// Records in the background that this claim holds exclusively, so that its expiry is known even if no
/// claim waits when it expires.
pub(crate) fn record_hold(client: &Arc<Client>, own: &Arc<OwnClaim>, node: &Node, waited: bool) {
    if !own.is_exclusive() || own.state().replaced.is_some() {
        return;
    }
    let (client, own, node) = (client.clone(), own.clone(), node.clone());
    let recording = async move {
        if waited {
            client.clock.sleep(RECORD_DELAY).await;
        }
        // It is a hint for the claim after an expiry: this claim does not depend on it.
        let _ = write_holding(&own, &node).await;
    };
    if let Err(error) = keeper::spawn(recording) {
        tracing::warn!(%error, "the expiry of this hold may not be reported to the next");
    }
}

async fn write_holding(own: &OwnClaim, node: &Node) -> Result<(), Zk> {
    let (session, data) = {
        let state = own.state();
        if state.releasing || own.ended.is_closed() {
            return Ok(());
        }
        (state.session.clone(), state.record.write())
    };
    let driver = session.driver(1)?;
    let mut writer = driver.new_multi_writer();
    let path = own.path(node);
    // Only if the node exists.
    writer.add_check_version(&path, -1)?;
    let record = own.folder_record(Some(node), HoldState::Holding);
    writer.add_set_data(&own.folder, &record.write(), None)?;
    writer.add_set_data(&path, &data, None)?;
    session.with_timeout(writer.commit()).await??;
    Ok(())
}
