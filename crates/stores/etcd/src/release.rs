//! Ends of claims by request: release, withdrawal, eviction.

use clinch_core::store::{Claim, Ending, Evicted, Hold, ReleaseReply};
use clinch_core::{LostReason, Name, RequestId, Result};

use crate::client::Client;
use crate::error::CallError;
use crate::keys::KeySlot;
use crate::leases::seconds;
use crate::ledger::OwnClaim;
use crate::lock_state::{Delay, Participant, Standing};
use crate::predecessor::EndRecord;
use crate::txn::{self, TxnReply};
use crate::wire::{Op, TxnRequest};

impl Client {
    pub(crate) async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let request = hold.request;
        if let Some(ended) = self.ledger.ended(request) {
            let released = ended.reason == LostReason::Released && ended.seq == Some(hold.seq);
            return Ok(match released {
                true => ReleaseReply::Released,
                false => ReleaseReply::WasLost(ended.reason),
            });
        }
        let own = self.ledger.get(request);
        let Some(own) = own.filter(|own| own.seq == Some(hold.seq)) else {
            return Ok(ReleaseReply::WasLost(LostReason::Forgotten));
        };
        let repeated = own.releasing;
        self.ledger.update(request, |own| own.releasing = true);
        let reply = self.delete(request, &own, hold.seq, true).await;
        let mut reply = reply.inspect_err(|error| {
            if !error.may_have_taken_effect() {
                self.ledger.update(request, |own| own.releasing = repeated);
            }
        })?;
        if reply.succeeded {
            self.ledger.end(request, LostReason::Released);
            return Ok(ReleaseReply::Released);
        }
        let reason = match self.recorded_reason(&own, &mut reply)? {
            Some(reason) => reason,
            // An earlier copy of this release may have arrived; other holds have replaced its end record.
            None => match (repeated, self.reason_without_record(&own)) {
                (true, LostReason::Forgotten) => LostReason::Released,
                (_, reason) => reason,
            },
        };
        self.lost(&own, request, reason);
        Ok(match reason {
            LostReason::Released => ReleaseReply::Released,
            reason => ReleaseReply::WasLost(reason),
        })
    }

    /// Deletes an existing claim and leaves an end record. If the claim is gone, reads its end record.
    async fn delete(
        &self,
        request: RequestId,
        own: &OwnClaim,
        seq: u64,
        held: bool,
    ) -> Result<TxnReply, CallError> {
        loop {
            let retention = self.leases.retention().await?;
            let end = EndRecord::new(seq, &own.record.owner(), Ending::Released).bytes();
            let mut success = vec![txn::delete(&own.key)];
            success.extend(own.delay_key.as_deref().map(txn::delete));
            if held {
                success.push(txn::put(
                    &self.keys.ended(&own.name),
                    end.clone(),
                    retention,
                ));
            }
            let mut failure: Vec<Op> = self.read_end(&own.name, request).into();
            // The tombstone of a withdrawal tells watchers how the claim ended. That of an unconfirmed
            // claim refuses a copy that is still under way.
            if own.unconfirmed || !held {
                let gone = txn::put(&self.keys.gone(&own.name, request), end, retention);
                success.push(gone.clone());
                failure.extend(own.unconfirmed.then_some(gone));
            }
            let txn = TxnRequest {
                compare: vec![txn::created(&own.key, seq)],
                success,
                failure,
            };
            match txn::run(&self.session, txn).await {
                Err(error) if error.is_lease_not_found() => self.leases.forget_retention(retention),
                reply => return reply,
            }
        }
    }

    pub(crate) async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let request = claim.request;
        if self.ledger.ended(request).is_some() {
            return Ok(());
        }
        self.watches.unwatch(&claim.name, request);
        let own = self.ledger.get(request);
        match own.as_ref().and_then(|own| Some((own, own.seq?))) {
            Some((own, seq)) => {
                let held = own.grant.is_some();
                let mut reply = self.delete(request, own, seq, held).await?;
                let reason = match reply.succeeded {
                    true => LostReason::Released,
                    // It ended earlier, and may have left a delay key in its slot.
                    false => self.end_reason(own, &mut reply)?,
                };
                self.ledger.end(request, reason);
            }
            None => self.withdraw_unconfirmed(claim).await?,
        }
        Ok(())
    }

    /// Withdraws a claim that may or may not have arrived: first its tombstone prevents a later arrival,
    /// then the claim is deleted if it exists.
    pub(crate) async fn withdraw_unconfirmed(&self, claim: &Claim) -> Result<(), CallError> {
        let (name, request) = (&claim.name, claim.request);
        let end = |seq| EndRecord::new(seq, &claim.owner, Ending::Released).bytes();
        let mut reply = loop {
            let retention = self.leases.retention().await?;
            let mut ops = vec![txn::put(&self.keys.gone(name, request), end(0), retention)];
            ops.extend(self.listing(name));
            match txn::run(&self.session, TxnRequest::always(ops)).await {
                Err(error) if error.is_lease_not_found() => self.leases.forget_retention(retention),
                reply => break reply?,
            }
        };
        reply.skip(1);
        let state = self.read_listing(name, &mut reply)?;
        if let Some((seq, found)) = state.find(request) {
            let mut success = vec![txn::delete(&found.key)];
            let delay = found
                .slot
                .map(|slot| self.keys.delay(name, claim.limit, slot));
            success.extend(delay.as_deref().map(txn::delete));
            // Watchers read the end record in the same revision as the deletion.
            let key = match state.standing(seq) {
                Some(Standing::Holds) => self.keys.ended(name),
                _ => self.keys.gone(name, request),
            };
            let retention = self.leases.retention().await?;
            success.push(txn::put(&key, end(seq), retention));
            let txn = TxnRequest::when(vec![txn::created(&found.key, seq)], success);
            txn::run(&self.session, txn).await?;
        }
        self.ledger.end(request, LostReason::Released);
        Ok(())
    }

    pub(crate) async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let state = self.list(name).await.map_err(CallError::without_effect)?;
        let mut evicted = Evicted::default();
        let matches = |other: u64| seq.is_none_or(|seq| seq == other);
        let holders = state.holders();
        for (victim, participant) in state.queue.iter().take(holders) {
            if !matches(*victim) {
                continue;
            }
            let delay = participant
                .slot
                .filter(|slot| state.delays.contains_key(slot));
            if self.evict_hold(name, *victim, participant, delay).await? {
                evicted.seqs.push(*victim);
            }
        }
        if seq.is_some() || holders == 0 {
            for (slot, delay) in state.running_delays() {
                if matches(delay.seq) && self.end_delay(name, slot, delay).await? {
                    evicted.delays.push(delay.seq);
                }
            }
        }
        Ok(evicted)
    }

    /// Ends a running lock-delay, unless its slot has been used again since.
    async fn end_delay(
        &self,
        name: &Name,
        slot: KeySlot,
        delay: &Delay,
    ) -> Result<bool, CallError> {
        let limit = delay.record.limit;
        let key = self.keys.delay(name, limit, slot);
        let txn = TxnRequest::when(
            vec![
                txn::modified(&key, delay.mod_revision),
                txn::absent(&self.keys.claim(name, limit, slot)),
            ],
            vec![txn::delete(&key)],
        );
        Ok(txn::run(&self.session, txn).await?.succeeded)
    }

    async fn evict_hold(
        &self,
        name: &Name,
        seq: u64,
        victim: &Participant,
        delay: Option<KeySlot>,
    ) -> Result<bool, CallError> {
        let retention = self.leases.retention().await?;
        let end = EndRecord::new(seq, &victim.owner(), Ending::Evicted).bytes();
        let mut success = vec![
            txn::delete(&victim.key),
            txn::put(&self.keys.ended(name), end.clone(), retention),
        ];
        if let Some(request) = victim.request() {
            // For the victim, which may read it long after other holds have replaced the end record.
            success.push(txn::put(&self.keys.gone(name, request), end, retention));
        }
        if let (Some(slot), Some(record)) = (delay, &victim.record) {
            // On a lease of its own, so that the delay ends: the victim extends its own delay lease.
            let lease = self.leases.grant(seconds(record.delay())).await?.id;
            let key = self.keys.delay(name, record.limit, slot);
            success.push(txn::put(&key, record.delay_bytes(seq), lease));
        }
        let txn = TxnRequest::when(vec![txn::created(&victim.key, seq)], success);
        Ok(txn::run(&self.session, txn).await?.succeeded)
    }
}
