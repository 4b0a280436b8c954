//! Moves the node of a claim to a longer session.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::Result;
use zookeeper_client::{CreateMode, Error as Zk};

use crate::client::Client;
use crate::error::request_error;
use crate::own_claim::OwnClaim;

/// Whether this lease needs a longer session than the claim's.
pub(crate) fn must_move(client: &Client, own: &OwnClaim, lease: Duration) -> bool {
    let lock_delay = own.claim.lock_delay;
    let needed = client.sessions.config.session_for(lease, lock_delay);
    own.state().session.timeout < needed
}

/// Moves a claim to a longer session if this lease needs one: a transaction of that session deletes its
/// node and creates it again with the same number. The sequence number stays.
pub(crate) async fn move_if_needed(
    client: &Arc<Client>,
    own: &Arc<OwnClaim>,
    lease: Duration,
) -> Result<()> {
    if !must_move(client, own, lease) {
        return Ok(());
    }
    let (node, old, mut record) = {
        let state = own.state();
        let Some(node) = state.node.clone() else {
            return Ok(());
        };
        (node, state.session.clone(), state.record.clone())
    };
    let lock_delay = own.claim.lock_delay;
    let session = client.sessions.for_claim(lease, lock_delay).await?;
    record.seq = Some(node.seq);
    let path = own.path(&node);
    let moved = async {
        let driver = session.driver(1)?;
        let mut writer = driver.new_multi_writer();
        let options = session.options(CreateMode::Ephemeral);
        writer.add_set_data(&path, &record.write(), None)?;
        writer.add_delete(&path, None)?;
        writer.add_create(&path, &record.write(), &options)?;
        let committed = session.with_timeout(writer.commit()).await?;
        committed.map_err(Zk::from)
    };
    match moved.await {
        Ok(_) => {
            client.ledger.set_session(own, &old, session);
            own.state().record = record;
            Ok(())
        }
        // The request that follows finds out that the node is gone.
        Err(Zk::NoNode) => Ok(()),
        Err(error) => Err(request_error(error)),
    }
}
