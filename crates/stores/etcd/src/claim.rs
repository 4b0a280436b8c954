//! Claiming: one transaction puts the claim's key and lists the claims before it.

use clinch_core::store::{Busy, Claim, ClaimReply, Ending, mismatch};
use clinch_core::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::error::CallError;
use crate::keys::Kind;
use crate::lock_state::LockState;
use crate::predecessor::{EndRecord, grant_record};
use crate::standing::{Attempt, checked_seq};
use crate::txn::{self, TxnReply};
use crate::wire::{Op, TxnRequest};

/// How often a claim begins again if its leases have ended, or if other clients changed a semaphore
/// between the read and the write.
const ROUNDS: usize = 16;

impl Client {
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let until = self.clock.now() + claim.lease;
        for _ in 0..ROUNDS {
            let own = match self.ledger.enter(claim, &self.keys) {
                Ok(own) => own,
                Err(ended) => return Ok(ClaimReply::Gone(ended.reason)),
            };
            // Getting leases sends no part of the claim itself.
            let leases = async {
                let lease = self
                    .leases
                    .get(claim.lease, claim.lock_delay, until)
                    .await?;
                Ok::<_, CallError>((lease, self.leases.retention().await?))
            };
            let (lease, retention) = leases.await.map_err(CallError::without_effect)?;
            let attempt = Attempt {
                claim,
                confirmed: lease.confirmed(),
                lease: lease.clone(),
                retention,
                until,
                own,
            };
            let reply = match attempt.own.seq {
                Some(seq) => self.repeat(&attempt, seq).await,
                None => self.create(&attempt).await,
            };
            match reply {
                Err(error) if error.is_lease_not_found() => self.leases.discard(&lease),
                Ok(None) => {}
                Ok(Some(reply)) => return Ok(reply),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(
            ErrorKind::Unreachable,
            "other clients keep changing this lock between read and write",
        ))
    }

    /// Creates the claim, or finds that it exists; `None`: begin again.
    async fn create(&self, attempt: &Attempt<'_>) -> Result<Option<ClaimReply>, CallError> {
        let (name, request) = (&attempt.claim.name, attempt.claim.request);
        let absent = [
            txn::absent(&attempt.own.key),
            txn::absent(&self.keys.gone(name, request)),
        ];
        let mut free = absent.to_vec();
        free.push(txn::empty(self.keys.claims(name)));
        free.push(txn::empty(self.keys.delays(name)));
        let record = grant_record(0, &attempt.claim.owner);
        let mut take = vec![
            txn::replace(&self.keys.held(name), record, attempt.retention),
            txn::get(&self.keys.ended(name)),
            attempt.put(),
        ];
        take.extend(attempt.put_delay(0));
        let mut look: Vec<Op> = self.listing(name).into();
        look.push(txn::get(&self.keys.gone(name, request)));
        let otherwise = match attempt.claim.queue {
            false => look,
            true => {
                let mut compare = absent.to_vec();
                let others = self.keys.other_limits(name, attempt.claim.limit);
                compare.extend(others.into_iter().map(txn::empty));
                let mut enqueue = vec![attempt.put()];
                enqueue.extend(self.listing(name));
                vec![txn::nested(TxnRequest {
                    compare,
                    success: enqueue,
                    failure: look,
                })]
            }
        };
        let txn = TxnRequest {
            compare: free,
            success: take,
            failure: otherwise,
        };
        let mut reply = self.send_create(attempt, txn).await?;
        if reply.succeeded {
            let mut before = LockState::new(reply.revision);
            if let Some(kv) = reply.previous()? {
                before.add(Kind::Held, kv);
            }
            if let Some(kv) = reply.key()? {
                before.add(Kind::Ended, kv);
            }
            let seq = checked_seq(reply.revision)?;
            return self
                .grant(attempt, seq, before.predecessor(seq), reply.term)
                .await;
        }
        if attempt.claim.queue {
            reply = reply.nested()?;
            if reply.succeeded {
                reply.skip(1);
                let state = self.read_listing(name, &mut reply)?;
                return self.reply_to(attempt, state, reply.term).await;
            }
        }
        let state = self.read_listing(name, &mut reply)?;
        let gone = reply.key()?;
        if state.find(request).is_some() {
            return self.reply_to(attempt, state, reply.term).await;
        }
        if let Some(gone) = gone {
            let ending = EndRecord::read(&gone.value).map(|end| end.ending());
            let reason = ending.unwrap_or(Ending::Released).into();
            self.ledger.end(request, reason);
            return Ok(Some(ClaimReply::Gone(reason)));
        }
        self.not_created(attempt, state).await
    }

    /// The claim does not exist and was not created: the name is taken, or has another limit.
    async fn not_created(
        &self,
        attempt: &Attempt<'_>,
        state: LockState,
    ) -> Result<Option<ClaimReply>, CallError> {
        let name = &attempt.claim.name;
        if let Some(other) = state.other_limit(attempt.claim.limit) {
            self.withdraw_copies(attempt).await?;
            return Err(mismatch(name, other, attempt.claim.limit).into());
        }
        if attempt.claim.queue {
            // What prevented it is gone already.
            return Ok(None);
        }
        if !state.has_room(attempt.own.record.place()) {
            self.withdraw_copies(attempt).await?;
            return Ok(Some(ClaimReply::Busy(Busy::default())));
        }
        // There is room: optimistic concurrency, create the claim if nothing was created since the listing.
        let mut compare = vec![
            txn::absent(&attempt.own.key),
            txn::absent(&self.keys.gone(name, attempt.claim.request)),
        ];
        for range in [self.keys.claims(name), self.keys.delays(name)] {
            compare.push(txn::none_after(range, state.revision));
        }
        let mut success = vec![attempt.put()];
        success.extend(attempt.put_delay(0));
        let record = grant_record(0, &attempt.claim.owner);
        success.push(txn::put(&self.keys.held(name), record, attempt.retention));
        let reply = self
            .send_create(attempt, TxnRequest::when(compare, success))
            .await?;
        if !reply.succeeded {
            return Ok(None);
        }
        let seq = checked_seq(reply.revision)?;
        self.grant(attempt, seq, state.predecessor(seq), reply.term)
            .await
    }

    /// Runs a transaction that may create the claim. While its outcome is unknown, the claim is marked as
    /// unconfirmed.
    async fn send_create(
        &self,
        attempt: &Attempt<'_>,
        txn: TxnRequest,
    ) -> Result<TxnReply, CallError> {
        let (request, before) = (attempt.claim.request, attempt.own.unconfirmed);
        self.ledger.update(request, |own| {
            own.unconfirmed = true;
            own.lease = Some(attempt.lease.clone());
        });
        let reply = txn::run(&self.session, txn).await;
        let definite = match &reply {
            Ok(_) => true,
            Err(error) => !error.may_have_taken_effect(),
        };
        if definite {
            self.ledger.update(request, |own| own.unconfirmed = before);
        }
        reply
    }

    /// Before a "no": ensures that no earlier copy of the claim arrives after it.
    async fn withdraw_copies(&self, attempt: &Attempt<'_>) -> Result<(), CallError> {
        match attempt.own.unconfirmed {
            true => self.withdraw_unconfirmed(attempt.claim).await,
            false => {
                self.ledger.forget(attempt.claim.request);
                Ok(())
            }
        }
    }

    /// Repeats a claim that existed with this sequence number; moves it to the attempt's lease if needed.
    async fn repeat(
        &self,
        attempt: &Attempt<'_>,
        seq: u64,
    ) -> Result<Option<ClaimReply>, CallError> {
        let (name, request) = (&attempt.claim.name, attempt.claim.request);
        let same_lease = attempt
            .own
            .lease
            .as_ref()
            .is_some_and(|lease| lease.id == attempt.lease.id);
        let mut success = Vec::new();
        let mut record = attempt.own.record.clone();
        record.set_lease(attempt.claim.lease);
        if !same_lease {
            success.push(txn::put(&attempt.own.key, record.bytes(), attempt.lease.id));
            if attempt.own.grant.is_some() {
                success.extend(attempt.put_delay(seq));
            }
        }
        let puts = success.len();
        success.extend(self.listing(name));
        let txn = TxnRequest {
            compare: vec![txn::created(&attempt.own.key, seq)],
            success,
            failure: self.read_end(name, request).into(),
        };
        let mut reply = txn::run(&self.session, txn).await?;
        if !reply.succeeded {
            let reason = self.end_reason(&attempt.own, &mut reply)?;
            self.lost(&attempt.own, request, reason);
            return Ok(Some(ClaimReply::Gone(reason)));
        }
        if !same_lease {
            self.ledger.update(request, |own| {
                own.lease = Some(attempt.lease.clone());
                own.record = record;
            });
        }
        reply.skip(puts);
        let state = self.read_listing(name, &mut reply)?;
        self.reply_to(attempt, state, reply.term).await
    }
}
