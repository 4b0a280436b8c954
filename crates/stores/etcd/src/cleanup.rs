//! Cleanup after own claims that ended without a release: expired, evicted, deleted.

use clinch_core::store::Ending;
use clinch_core::{LostReason, RequestId, keeper};

use crate::client::Client;
use crate::error::CallError;
use crate::leases::seconds;
use crate::ledger::OwnClaim;
use crate::predecessor::EndRecord;
use crate::txn;
use crate::wire::TxnRequest;

impl Client {
    /// An own claim has ended without a release.
    pub(crate) fn lost(&self, own: &OwnClaim, request: RequestId, reason: LostReason) {
        self.ledger.end(request, reason);
        self.watches.unwatch(&own.name, request);
        let delayed = own.grant.is_some() && own.delay_key.is_some();
        // An eviction has started the lock-delay already, and a release needs none. Otherwise the delay key
        // may be attached to a delay lease that other holds extend.
        let restart_delay =
            delayed && !matches!(reason, LostReason::Evicted | LostReason::Released);
        if !own.unconfirmed && !restart_delay {
            return;
        }
        let (client, own) = (self.clone(), own.clone());
        let cleaning = async move {
            if let Err(error) = client.clean_up(own, request, restart_delay).await {
                tracing::warn!(?error, "an ended claim could not be cleaned up");
            }
        };
        if let Err(error) = keeper::spawn(cleaning) {
            tracing::warn!(%error, "an ended claim is not cleaned up");
        }
    }

    async fn clean_up(
        &self,
        own: OwnClaim,
        request: RequestId,
        restart_delay: bool,
    ) -> Result<(), CallError> {
        let retention = self.leases.retention().await?;
        if own.unconfirmed {
            let end = EndRecord::new(0, &own.record.owner(), Ending::Expired).bytes();
            let txn = TxnRequest::always(vec![
                txn::put(&self.keys.gone(&own.name, request), end, retention),
                txn::delete(&own.key),
            ]);
            txn::run(&self.session, txn).await?;
        }
        if let (true, Some(key), Some(lease)) = (restart_delay, &own.delay_key, &own.lease)
            && let (Some(delay_lease), Some(seq)) = (lease.delay_lease, own.seq)
        {
            // The lock-delay begins with the loss, on a lease of its own: other holds may extend the
            // shared delay lease.
            let lease = self.leases.grant(seconds(own.record.delay())).await?.id;
            let put = txn::put(key, own.record.delay_bytes(seq), lease);
            let txn = TxnRequest::when(vec![txn::on_lease(key, delay_lease)], vec![put]);
            txn::run(&self.session, txn).await?;
        }
        Ok(())
    }
}
