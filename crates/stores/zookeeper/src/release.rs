//! Ends claims: release, withdrawal, expiry and eviction.

use std::sync::Arc;

use clinch_core::store::{Claim, Ending, Evicted, Hold, LostReason, ReleaseReply};
use clinch_core::{Name, Result};
use zookeeper_client::{CreateMode, Error as Zk};

use crate::client::Client;
use crate::error::{ends_session, request_error};
use crate::inspect::{self, Party};
use crate::keys;
use crate::own_claim::OwnClaim;
use crate::predecessor;
use crate::record::{FolderRecord, HoldState, Record};
use crate::remove_node::{find_node, remove_node};

/// Handles a release; see [`Store::release`](clinch_core::store::Store::release).
pub(crate) async fn release(client: &Client, hold: &Hold) -> Result<ReleaseReply> {
    let Some(own) = client.ledger.get(hold.request) else {
        return Ok(match client.ledger.ended(hold.request) {
            Some(ended) if ended.ending == Ending::Released && ended.seq == Some(hold.seq) => {
                ReleaseReply::Released
            }
            Some(ended) => ReleaseReply::WasLost(ended.reason),
            None => ReleaseReply::WasLost(LostReason::Forgotten),
        });
    };
    let Some(node) = own.held_node(hold.seq) else {
        return Ok(ReleaseReply::WasLost(LostReason::Forgotten));
    };
    let repeated = {
        let mut state = own.state();
        // Its lease has expired: cleanup removes it after its lock-delay.
        if !state.releasing && client.clock.now() >= state.deadline {
            return Ok(ReleaseReply::WasLost(LostReason::Expired));
        }
        std::mem::replace(&mut state.releasing, true)
    };
    let removed = remove_node(client, &own, &node, Some(HoldState::Released)).await;
    match removed {
        // If it was gone, an earlier release has removed it whose reply was lost.
        Ok(removed) if removed || repeated => {
            client.ledger.release(&own);
            Ok(ReleaseReply::Released)
        }
        Ok(_) => {
            let reason = lost_reason(client, &own).await.map_err(request_error)?;
            Ok(ReleaseReply::WasLost(reason))
        }
        Err(error) if ends_session(&error) => {
            client.ledger.expire(&own);
            Ok(ReleaseReply::WasLost(LostReason::Expired))
        }
        Err(error) => Err(request_error(error)),
    }
}

/// Handles a withdrawal; see [`Store::withdraw`](clinch_core::store::Store::withdraw).
///
/// The servers apply the requests of a session in order, so a claim that is still under way arrives before
/// its withdrawal. If the session has ended, the servers refuse what arrives late.
pub(crate) async fn withdraw(client: &Client, claim: &Claim) -> Result<()> {
    let own = match client.ledger.get(claim.request) {
        Some(own) => Some(own),
        None => client.ledger.forbid(claim.request),
    };
    let Some(own) = own else { return Ok(()) };
    let repeated = own.state().releasing;
    if remove_any_node(client, &own, HoldState::Released).await? || repeated {
        client.ledger.release(&own);
    } else {
        // It had ended before, and was not given up.
        lost_reason(client, &own).await.map_err(request_error)?;
    }
    Ok(())
}

/// Removes a claim that was refused. Nothing of it is left, and it may be repeated.
pub(crate) async fn retract(client: &Client, own: &OwnClaim) -> Result<()> {
    remove_any_node(client, own, HoldState::Released).await?;
    client.ledger.forget(own);
    Ok(())
}

/// Removes a claim whose lease has expired; `false` if that must be tried again.
pub(crate) async fn expire(client: &Client, own: &OwnClaim) -> bool {
    {
        let mut state = own.state();
        // It may have been renewed just now; after this it cannot be renewed any more.
        if state.kept_until(&own.claim) > client.clock.now() {
            return false;
        }
        state.releasing = true;
    }
    let removed = remove_any_node(client, own, HoldState::Expired).await;
    if removed.is_ok() {
        client.ledger.expire(own);
    }
    removed.is_ok()
}

/// Removes the node of a claim, if it has one or gets one by a request under way. `false` if another
/// client had removed it. `ending` is recorded if the claim held.
async fn remove_any_node(client: &Client, own: &OwnClaim, ending: HoldState) -> Result<bool> {
    let (node, sent, ending) = {
        let mut state = own.state();
        state.releasing = true;
        if state.session.has_ended() {
            return Ok(true);
        }
        let ending = state.granted.is_some().then_some(ending);
        (state.node.clone(), state.sent, ending)
    };
    let removed = async {
        let node = match node {
            None if sent => find_node(own).await?,
            node => node,
        };
        match node {
            Some(node) => remove_node(client, own, &node, ending).await,
            None => Ok(true),
        }
    };
    match removed.await {
        Ok(removed) => Ok(removed),
        Err(error) if ends_session(&error) => Ok(true),
        Err(error) => Err(request_error(error)),
    }
}

/// Why a node is gone although its session may be alive. Ends the claim.
pub(crate) async fn lost_reason(client: &Client, own: &OwnClaim) -> Result<LostReason, Zk> {
    let record = match predecessor::read(own).await {
        Ok((record, _)) => record,
        Err(Zk::NoNode) => None,
        Err(error) if ends_session(&error) => None,
        Err(error) => return Err(error),
    };
    let record = record
        .as_ref()
        .and_then(|one| one.of_request(own.request()));
    let (ending, reason) = match record.filter(|record| !record.is_holding()) {
        Some(record) => (record.ending(), LostReason::from(record.ending())),
        None if own.state().session.has_ended() => (Ending::Expired, LostReason::Expired),
        None => (Ending::Expired, LostReason::Forgotten),
    };
    client.ledger.end(own, ending, reason);
    Ok(reason)
}

/// Evicts holds; see [`Admin::evict`](clinch_core::store::Admin::evict).
pub(crate) async fn evict(client: &Arc<Client>, name: &Name, seq: Option<u64>) -> Result<Evicted> {
    let mut evicted = Evicted::default();
    let Some(parties) = inspect::parties(client, name).await? else {
        return Ok(evicted);
    };
    let folder = client.paths.folder(name);
    let is_meant = |party: &Party| seq.is_none_or(|seq| seq == party.seq());
    let delays: Vec<_> = parties.delays().cloned().collect();
    let holders: Vec<_> = parties.into_holders().collect();
    if seq.is_some() || holders.is_empty() {
        for delay in delays.iter().filter(|party| is_meant(party)) {
            if end_delay(client, &format!("{folder}/{}", delay.child.name)).await? {
                evicted.delays.push(delay.seq());
            }
        }
    }
    for holder in holders.iter().filter(|party| is_meant(party)) {
        if evict_one(client, &folder, holder).await? {
            evicted.seqs.push(holder.seq());
        }
    }
    Ok(evicted)
}

/// Evicts one hold; `false` if it was gone.
///
/// Its lock-delay is a node with the same number, created in the same transaction, in a session without
/// pings: the servers count the time, and clients of other libraries wait as well.
async fn evict_one(client: &Arc<Client>, folder: &str, holder: &Party) -> Result<bool> {
    let lock_delay = holder.record.as_ref().map(Record::lock_delay);
    let lock_delay = lock_delay.unwrap_or_default();
    let session = match lock_delay.is_zero() {
        true => client.sessions.base().await?,
        false => {
            let length = lock_delay + client.sessions.config.tick;
            client.sessions.abandoned(length).await?
        }
    };
    let path = format!("{folder}/{}", holder.child.name);
    let delay = keys::delay_name(&holder.child.name).filter(|_| !lock_delay.is_zero());
    let request = holder.child.request();
    let folder_record = FolderRecord {
        request: request.map(|id| id.to_string()).unwrap_or_default(),
        number: holder.child.number,
        seq: holder.seq(),
        owner: holder.owner().as_str().to_owned(),
        ending: HoldState::Evicted,
        delayed: delay.is_some(),
        record: holder.record.clone(),
        before: None,
    };
    let transaction = async {
        let driver = session.driver(1)?;
        let mut writer = driver.new_multi_writer();
        writer.add_set_data(&path, &holder.data, None)?;
        writer.add_set_data(folder, &folder_record.write(), None)?;
        if let Some(delay) = &delay {
            let options = session.options(CreateMode::Ephemeral);
            // The sequence number is not the zxid of this node.
            let record = holder.record.clone().map(|record| Record {
                seq: Some(holder.seq()),
                ..record
            });
            let data = record.map_or_else(|| holder.data.clone(), |record| record.write());
            writer.add_create(&format!("{folder}/{delay}"), &data, &options)?;
        }
        writer.add_delete(&path, None)?;
        let committed = session.with_timeout(writer.commit()).await?;
        committed.map_err(Zk::from)
    };
    match transaction.await {
        Ok(_) => Ok(true),
        Err(Zk::NoNode) => Ok(false),
        Err(error) => Err(request_error(error)),
    }
}

/// Ends a lock-delay; `false` if it was over.
async fn end_delay(client: &Arc<Client>, path: &str) -> Result<bool> {
    let base = client.sessions.base().await?;
    let deleted = async {
        let driver = base.driver(1)?;
        base.with_timeout(driver.delete(path, None)).await?
    };
    match deleted.await {
        Ok(()) => Ok(true),
        Err(Zk::NoNode) => Ok(false),
        Err(error) => Err(request_error(error)),
    }
}
