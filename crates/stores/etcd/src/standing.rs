//! The reply to a claim whose key exists: granted or queued.

use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply, Grant, Predecessor, Queued};
use clinch_core::{BootTime, Effect, Error, ErrorKind, MAX_SEQ};

use crate::client::Client;
use crate::error::{CallError, unexpected_reply};
use crate::leases::{Confirmed, Lease};
use crate::ledger::OwnClaim;
use crate::lock_state::{LockState, Standing};
use crate::txn;
use crate::wakes::Watched;
use crate::wire::{Op, TxnRequest};

/// One attempt at a claim.
pub(crate) struct Attempt<'a> {
    pub(crate) claim: &'a Claim,
    /// The ledger's entry when the attempt began.
    pub(crate) own: OwnClaim,
    pub(crate) lease: Arc<Lease>,
    /// The last confirmation of the lease before a request was sent.
    pub(crate) confirmed: Confirmed,
    /// The retention lease.
    pub(crate) retention: i64,
    /// The lease must live until then.
    pub(crate) until: BootTime,
}

impl Attempt<'_> {
    /// Puts the claim's key.
    pub(crate) fn put(&self) -> Op {
        txn::put(&self.own.key, self.own.record.bytes(), self.lease.id)
    }

    /// Puts the delay key, if there is a lock-delay. `seq` is 0 if the same transaction creates the claim.
    pub(crate) fn put_delay(&self, seq: u64) -> Option<Op> {
        let (key, lease) = (self.own.delay_key.as_ref()?, self.lease.delay_lease?);
        Some(txn::put(key, self.own.record.delay_bytes(seq), lease))
    }
}

impl Client {
    /// The reply to a claim whose key is in this listing; `None`: begin again.
    pub(crate) async fn reply_to(
        &self,
        attempt: &Attempt<'_>,
        state: LockState,
        term: u64,
    ) -> Result<Option<ClaimReply>, CallError> {
        let request = attempt.claim.request;
        let (seq, found) = state.find(request).ok_or_else(unexpected_reply)?;
        let seq = checked_seq(seq)?;
        let other_lease = found.lease != attempt.lease.id;
        self.ledger.update(request, |own| own.seq = Some(seq));
        if other_lease {
            // An earlier attempt put it on another lease: the next round moves it.
            self.ledger.update(request, |own| own.lease = None);
            return Ok(None);
        }
        let known = self.ledger.get(request).and_then(|own| own.grant);
        if let Some(grant) = known {
            return self.grant(attempt, seq, grant.predecessor, term).await;
        }
        match state.standing(seq).ok_or_else(unexpected_reply)? {
            Standing::Holds => {
                let predecessor = state.predecessor(seq);
                let has_delay_key = state.delays.contains_key(&attempt.own.slot);
                self.grant_after_waiting(attempt, seq, predecessor, has_delay_key, term)
                    .await
            }
            Standing::Waits { ahead } => {
                self.leases
                    .ensure(&attempt.lease, attempt.confirmed, term, attempt.until)
                    .await?;
                match self.watches.watch(&attempt.claim.name, request, seq, state) {
                    Watched::Waits => {
                        let queued = Queued::new(ahead, None).with_wakes_kept(true);
                        Ok(Some(ClaimReply::Queued(queued)))
                    }
                    Watched::Granted(grant) => {
                        self.grant_after_waiting(attempt, seq, grant.predecessor, false, term)
                            .await
                    }
                    // The next round reads why.
                    Watched::Gone => Ok(None),
                }
            }
        }
    }

    /// The claim has reached the front of the queue; its delay key is put if it is missing.
    async fn grant_after_waiting(
        &self,
        attempt: &Attempt<'_>,
        seq: u64,
        predecessor: Option<Predecessor>,
        has_delay_key: bool,
        term: u64,
    ) -> Result<Option<ClaimReply>, CallError> {
        if let (false, Some(put)) = (has_delay_key, attempt.put_delay(seq)) {
            let txn = TxnRequest::when(vec![txn::created(&attempt.own.key, seq)], vec![put]);
            if !txn::run(&self.session, txn).await?.succeeded {
                return Ok(None);
            }
        }
        self.recorder.record_later(attempt.claim.request);
        self.grant(attempt, seq, predecessor, term).await
    }

    /// Enters the grant, and ensures that its lease lives long enough.
    pub(crate) async fn grant(
        &self,
        attempt: &Attempt<'_>,
        seq: u64,
        predecessor: Option<Predecessor>,
        term: u64,
    ) -> Result<Option<ClaimReply>, CallError> {
        let grant = Grant::new(seq, predecessor);
        let now = self.clock.now();
        self.ledger.update(attempt.claim.request, |own| {
            own.recorded = own.recorded.or(Some(now));
            own.seq = Some(seq);
            own.grant = Some(grant.clone());
        });
        self.watches
            .unwatch(&attempt.claim.name, attempt.claim.request);
        self.leases
            .ensure(&attempt.lease, attempt.confirmed, term, attempt.until)
            .await?;
        Ok(Some(ClaimReply::Granted(grant)))
    }
}

/// A revision as a sequence number; an error if it is too large for a token.
pub(crate) fn checked_seq(revision: u64) -> Result<u64, CallError> {
    if revision > MAX_SEQ {
        let text = format!("the revision {revision} is beyond what a token can carry");
        let error = Error::new(ErrorKind::Unsupported, text);
        return Err(error.with_effect(Effect::Possible).into());
    }
    Ok(revision)
}
