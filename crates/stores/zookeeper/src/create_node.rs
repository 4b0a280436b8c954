//! Creates the node of a claim.

use std::sync::Arc;

use clinch_core::Result;
use zookeeper_client::{CreateMode, Error as Zk, MultiWriteResult};

use crate::client::Client;
use crate::connection::optional;
use crate::decide_turn::{Step, claim_failed, decide_turn, granted, list_and_decide};
use crate::error::{ends_session, has_unknown_outcome, request_error};
use crate::folders::{FolderState, LeftFolder};
use crate::own_claim::{Node, OwnClaim};
use crate::predecessor::FolderBefore;
use crate::record::HoldState;

/// Creates the node and lists the folder in one round trip.
pub(crate) async fn create_node(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    may_queue: bool,
) -> Result<Step> {
    let folder = client.folders.get(&own.folder);
    if let Some(FolderState::Quiet(left)) = &folder
        && own.is_exclusive()
    {
        return create_in_quiet_folder(client, own, left, may_queue).await;
    }
    let (session, data) = {
        let mut state = own.state();
        state.sent = true;
        (state.session.clone(), state.record.write())
    };
    let path = format!("{}/{}", own.folder, own.prefix);
    let options = session.options(CreateMode::EphemeralSequential);
    // In a busy folder the claim will wait, and reads the record when its turn comes.
    let read_record = folder != Some(FolderState::Busy);
    let requests = async {
        let driver = session.driver(2 + u64::from(read_record))?;
        let record = read_record.then(|| driver.get_data(&own.folder));
        let created = driver.create(&path, &data, &options);
        let listing = driver.get_children(&own.folder);
        let replies = async { tokio::join!(optional(record), created, listing) };
        session.with_timeout(replies).await
    };
    let (record, created, listing) = match requests.await {
        Ok(replies) => replies,
        Err(error) => return claim_failed(client, own, error),
    };
    let (stat, sequence) = match created {
        Ok(created) => created,
        Err(Zk::NoNode) => {
            own.state().sent = false;
            return match session.create_folder(&own.folder).await {
                Ok(()) => Ok(Step::Retry),
                Err(error) => claim_failed(client, own, error),
            };
        }
        Err(error) => return creation_failed(client, own, error),
    };
    client.note_server_time(stat.ctime);
    let node = created_node(own, format!("{}{sequence}", own.prefix), stat.czxid);
    let before = match record {
        Some(Ok((data, stat))) => Some(FolderBefore { data, stat }),
        _ => None,
    };
    match listing {
        Ok(listing) => decide_turn(client, own, &node, listing, before, may_queue).await,
        Err(error) => claim_failed(client, own, error),
    }
}

/// Fast path: one transaction and no listing. If the folder's record is still the one that this client
/// left, and the folder has no children, the claim holds.
async fn create_in_quiet_folder(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    left: &LeftFolder,
    may_queue: bool,
) -> Result<Step> {
    let (session, data) = {
        let mut state = own.state();
        state.sent = true;
        state.replaced = Some(Box::new(left.clone()));
        state.found = Some(left.record.clone());
        (state.session.clone(), state.record.write())
    };
    let path = format!("{}/{}", own.folder, own.prefix);
    let record = own.folder_record(None, HoldState::Holding).write();
    let transaction = async {
        let driver = session.driver(1)?;
        let mut writer = driver.new_multi_writer();
        let options = session.options(CreateMode::EphemeralSequential);
        writer.add_set_data(&own.folder, &record, Some(left.version))?;
        writer.add_create(&path, &data, &options)?;
        let committed = session.with_timeout(writer.commit()).await?;
        committed.map_err(Zk::from)
    };
    let results = match transaction.await {
        Ok(results) => results,
        Err(Zk::BadVersion | Zk::NoNode) => {
            client.folders.remove(&own.folder);
            let mut state = own.state();
            (state.sent, state.replaced) = (false, None);
            return Ok(Step::Retry);
        }
        Err(error) => return creation_failed(client, own, error),
    };
    let mut results = results.into_iter();
    let (Some(MultiWriteResult::SetData { stat }), Some(MultiWriteResult::Create { path, .. })) =
        (results.next(), results.next())
    else {
        return Err(request_error(Zk::UnexpectedError(
            "not the reply to a claim".to_owned(),
        )));
    };
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    client.note_server_time(stat.mtime);
    // A transaction has one zxid. Some servers report it only in this result.
    let node = created_node(own, name, stat.mzxid);
    if stat.num_children > 0 {
        return list_and_decide(client, own, &node, may_queue).await;
    }
    let same_folder = stat.czxid == left.created;
    let predecessor = same_folder.then(|| left.record.predecessor(left.written));
    Ok(granted(own, &node, predecessor))
}

fn created_node(own: &OwnClaim, name: String, zxid: i64) -> Node {
    let node = Node::new(name, &own.prefix, zxid);
    own.state().node = Some(node.clone());
    node
}

/// The request to create the node was refused, or its outcome is unknown.
fn creation_failed(client: &Client, own: &OwnClaim, error: Zk) -> Result<Step> {
    if !has_unknown_outcome(&error) && !ends_session(&error) {
        client.ledger.forget(own);
    }
    claim_failed(client, own, error)
}
