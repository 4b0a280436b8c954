//! Finds and deletes the node of a claim.

use zookeeper_client::{Error as Zk, MultiWriteResult, Stat};

use crate::client::Client;
use crate::folders::{FolderState, LeftFolder};
use crate::own_claim::{Node, OwnClaim};
use crate::record::{FolderRecord, HoldState};

/// Deletes a node and writes the folder record that goes with it; `false` if the node was gone. `ending`
/// is `None` for a claim that did not hold.
///
/// Listeners infer from the order of the writes what happened, see `observed_lock`. A claim that leaves the
/// queue writes its own node first, so that the next waiter can tell it from one that expired.
pub(crate) async fn remove_node(
    client: &Client,
    own: &OwnClaim,
    node: &Node,
    ending: Option<HoldState>,
) -> Result<bool, Zk> {
    let replaced = own.state().replaced.clone();
    let (record, version) = match (ending, replaced) {
        (Some(ending), _) => (Some(own.folder_record(Some(node), ending)), None),
        // It marked the folder as held and never held it: restore the record before.
        (None, Some(left)) => (Some(left.record), Some(left.version + 1)),
        (None, None) => (None, None),
    };
    match delete(own, node, ending, record.as_ref(), version).await {
        // Another client has written the folder since.
        Err(Zk::BadVersion) => {
            let removed = delete(own, node, ending, None, None).await?;
            Ok(removed.is_some())
        }
        Ok(Some(results)) => {
            if let (Some(HoldState::Released), Some(MultiWriteResult::SetData { stat })) =
                (ending, results.first())
            {
                let state = folder_after_release(own, node, stat);
                client.folders.set(&own.folder, state);
            }
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn delete(
    own: &OwnClaim,
    node: &Node,
    ending: Option<HoldState>,
    record: Option<&FolderRecord>,
    version: Option<i32>,
) -> Result<Option<Vec<MultiWriteResult>>, Zk> {
    let (session, data) = {
        let state = own.state();
        (state.session.clone(), state.record.write())
    };
    let driver = session.driver(1)?;
    let path = own.path(node);
    let mut writer = driver.new_multi_writer();
    if let Some(record) = record {
        writer.add_set_data(&own.folder, &record.write(), version)?;
    }
    if ending != Some(HoldState::Released) {
        writer.add_set_data(&path, &data, None)?;
    }
    writer.add_delete(&path, None)?;
    let committed = session.with_timeout(writer.commit()).await?;
    match committed.map_err(Zk::from) {
        Ok(results) => Ok(Some(results)),
        Err(Zk::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The folder after the release, by its stat from before the node was deleted in the same transaction.
fn folder_after_release(own: &OwnClaim, node: &Node, stat: &Stat) -> FolderState {
    if stat.num_children != 1 {
        return FolderState::Busy;
    }
    FolderState::Quiet(Box::new(LeftFolder {
        created: stat.czxid,
        version: stat.version,
        record: own.folder_record(Some(node), HoldState::Released),
        written: stat.mzxid,
    }))
}

/// The node of a claim whose reply was lost, if there is one.
pub(crate) async fn find_node(own: &OwnClaim) -> Result<Option<Node>, Zk> {
    let session = own.state().session.clone();
    let driver = session.driver(2)?;
    let synced = driver.sync(&own.folder);
    let listing = driver.get_children(&own.folder);
    let replies = async { tokio::join!(synced, listing) };
    let (synced, listing) = session.with_timeout(replies).await?;
    synced?;
    let names = match listing {
        Ok((names, _)) => names,
        Err(Zk::NoNode) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(name) = names.iter().find(|name| name.starts_with(&own.prefix)) else {
        return Ok(None);
    };
    let driver = session.driver(1)?;
    let path = format!("{}/{name}", own.folder);
    let stat = session.with_timeout(driver.check_stat(&path)).await??;
    // A node of another session is not this claim's, whatever its name.
    let stat = stat.filter(|stat| stat.ephemeral_owner == session.id);
    Ok(stat.map(|stat| Node::new(name.clone(), &own.prefix, stat.czxid)))
}
