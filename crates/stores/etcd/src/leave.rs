//! The ends of claims: released, withdrawn, evicted, lost.

use clinch_core::store::{Claim, Ending, Evicted, Hold, ReleaseReply};
use clinch_core::{LostReason, Name, RequestId, Result, keeper};

use crate::core::Core;
use crate::error::Trouble;
use crate::keys::Seat;
use crate::lease::seconds;
use crate::mirror::{Delay, Party, Standing};
use crate::ours::Mine;
use crate::record::Word;
use crate::txn;
use crate::wire::{Op, TxnRequest};

impl Core {
    pub(crate) async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        let request = hold.request;
        if let Some(past) = self.ours.past(request) {
            let ours = past.reason == LostReason::Released && past.seq == Some(hold.seq);
            return Ok(match ours {
                true => ReleaseReply::Released,
                false => ReleaseReply::WasLost(past.reason),
            });
        }
        let mine = self.ours.get(request);
        let Some(mine) = mine.filter(|mine| mine.seq == Some(hold.seq)) else {
            return Ok(ReleaseReply::WasLost(LostReason::Forgotten));
        };
        let repeated = mine.leaving;
        self.ours.update(request, |mine| mine.leaving = true);
        let done = self.ending(request, &mine, hold.seq, true).await;
        let mut done = done.inspect_err(|trouble| {
            if !trouble.may_have_taken_effect() {
                self.ours.update(request, |mine| mine.leaving = repeated);
            }
        })?;
        if done.succeeded {
            self.ours.end(request, LostReason::Released);
            return Ok(ReleaseReply::Released);
        }
        let reason = match self.reason(&mine, &mut done)? {
            Some(reason) => reason,
            // Our own earlier release, whose reply was lost, and whose word others have replaced.
            None => match (repeated, self.reason_without_word(&mine)) {
                (true, LostReason::Forgotten) => LostReason::Released,
                (_, reason) => reason,
            },
        };
        self.lost(&mine, request, reason);
        Ok(match reason {
            LostReason::Released => ReleaseReply::Released,
            reason => ReleaseReply::WasLost(reason),
        })
    }

    /// Deletes a claim that is known to be there, with a word; else asks for the word about it.
    async fn ending(
        &self,
        request: RequestId,
        mine: &Mine,
        seq: u64,
        held: bool,
    ) -> Result<txn::Done, Trouble> {
        loop {
            let memory = self.leases.memory().await?;
            let word = Word::new(seq, &mine.record.owner(), Ending::Released).bytes();
            let mut success = vec![txn::delete(&mine.key)];
            success.extend(mine.delay.as_deref().map(txn::delete));
            if held {
                success.push(txn::put(&self.keys.ended(&mine.name), word.clone(), memory));
            }
            let mut failure: Vec<Op> = self.words(&mine.name, request).into();
            // A withdrawal leaves its word for those who listen; and a copy of the claim that is still
            // under way must find itself refused.
            if mine.unknown || !held {
                let gone = txn::put(&self.keys.gone(&mine.name, request), word, memory);
                success.push(gone.clone());
                failure.extend(mine.unknown.then_some(gone));
            }
            let txn = TxnRequest {
                compare: vec![txn::created(&mine.key, seq)],
                success,
                failure,
            };
            match txn::run(&self.session, txn).await {
                Err(trouble) if trouble.is_lease_not_found() => self.leases.forget_memory(memory),
                done => return done,
            }
        }
    }

    pub(crate) async fn withdraw(&self, claim: &Claim) -> Result<()> {
        let request = claim.request;
        if self.ours.past(request).is_some() {
            return Ok(());
        }
        self.ears.unfollow(&claim.name, request);
        let mine = self.ours.get(request);
        match mine.as_ref().and_then(|mine| Some((mine, mine.seq?))) {
            Some((mine, seq)) => {
                let held = mine.grant.is_some();
                let mut done = self.ending(request, mine, seq, held).await?;
                let reason = match done.succeeded {
                    true => LostReason::Released,
                    // It had ended before, and may have left a delay at its seat.
                    false => self
                        .reason(mine, &mut done)?
                        .unwrap_or_else(|| self.reason_without_word(mine)),
                };
                self.ours.end(request, reason);
            }
            None => self.withdraw_unknown(claim).await?,
        }
        Ok(())
    }

    /// Withdraws a claim of which it is not known whether it has arrived: first it is kept from
    /// arriving later, then what is there is deleted.
    pub(crate) async fn withdraw_unknown(&self, claim: &Claim) -> Result<(), Trouble> {
        let (name, request) = (&claim.name, claim.request);
        let word = |seq| Word::new(seq, &claim.owner, Ending::Released).bytes();
        let mut done = loop {
            let memory = self.leases.memory().await?;
            let mut success = vec![txn::put(&self.keys.gone(name, request), word(0), memory)];
            success.extend(self.listing(name));
            let txn = TxnRequest {
                success,
                ..TxnRequest::default()
            };
            match txn::run(&self.session, txn).await {
                Err(trouble) if trouble.is_lease_not_found() => self.leases.forget_memory(memory),
                done => break done?,
            }
        };
        done.replies.next();
        let mirror = self.read_listing(name, &mut done)?;
        if let Some((seq, party)) = mirror.find(request) {
            let mut success = vec![txn::delete(&party.key)];
            let delay = party
                .seat
                .map(|seat| self.keys.delay(name, claim.limit, seat));
            success.extend(delay.as_deref().map(txn::delete));
            if mirror.standing(seq) == Some(Standing::Holds) {
                let memory = self.leases.memory().await?;
                success.push(txn::put(&self.keys.ended(name), word(seq), memory));
            } else {
                // Those who listen are told again, with the deletion.
                let memory = self.leases.memory().await?;
                success.push(txn::put(&self.keys.gone(name, request), word(seq), memory));
            }
            let txn = TxnRequest {
                compare: vec![txn::created(&party.key, seq)],
                success,
                failure: Vec::new(),
            };
            txn::run(&self.session, txn).await?;
        }
        self.ours.end(request, LostReason::Released);
        Ok(())
    }

    pub(crate) async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let mirror = self.list(name).await.map_err(Trouble::of_a_read)?;
        let mut evicted = Evicted::default();
        let meant = |victim: u64| seq.is_none_or(|seq| seq == victim);
        let holders = mirror.holders();
        for (victim, party) in mirror.line.iter().take(holders) {
            if !meant(*victim) {
                continue;
            }
            let delay = party.seat.filter(|seat| mirror.delays.contains_key(seat));
            if self.evict_one(name, *victim, party, delay).await? {
                evicted.seqs.push(*victim);
            }
        }
        if seq.is_some() || holders == 0 {
            for (seat, delay) in mirror.running().filter(|(_, delay)| meant(delay.seq)) {
                if self.end_delay(name, seat, delay).await? {
                    evicted.delays.push(delay.seq);
                }
            }
        }
        Ok(evicted)
    }

    /// Ends a lock-delay, unless something has come to its seat since.
    async fn end_delay(&self, name: &Name, seat: Seat, delay: &Delay) -> Result<bool, Trouble> {
        let limit = delay.record.limit;
        let key = self.keys.delay(name, limit, seat);
        let txn = TxnRequest {
            compare: vec![
                txn::changed(&key, delay.put),
                txn::absent(&self.keys.claim(name, limit, seat)),
            ],
            success: vec![txn::delete(&key)],
            failure: Vec::new(),
        };
        Ok(txn::run(&self.session, txn).await?.succeeded)
    }

    async fn evict_one(
        &self,
        name: &Name,
        seq: u64,
        party: &Party,
        delay: Option<Seat>,
    ) -> Result<bool, Trouble> {
        let memory = self.leases.memory().await?;
        let word = Word::new(seq, &party.owner(), Ending::Evicted).bytes();
        let mut success = vec![
            txn::delete(&party.key),
            txn::put(&self.keys.ended(name), word.clone(), memory),
        ];
        if let Some(request) = party.request() {
            // For the victim: it may come long after others have held.
            success.push(txn::put(&self.keys.gone(name, request), word, memory));
        }
        if let (Some(seat), Some(record)) = (delay, &party.record) {
            // From now on exactly its length: the victim extends the lease that it hangs on.
            let (lease, ..) = self.leases.grant(seconds(record.delay())).await?;
            let key = self.keys.delay(name, record.limit, seat);
            success.push(txn::put(&key, record.delay_bytes(seq), lease));
        }
        let txn = TxnRequest {
            compare: vec![txn::created(&party.key, seq)],
            success,
            failure: Vec::new(),
        };
        Ok(txn::run(&self.session, txn).await?.succeeded)
    }

    /// Cleans up, in the background, after a claim that has ended without our doing.
    pub(crate) fn settle_later(&self, mine: Mine, request: RequestId, reason: LostReason) {
        let delayed = mine.grant.is_some() && mine.delay.is_some();
        // An evictor has set the delay going; an ended lease takes its companion with it.
        let stuck = delayed && !matches!(reason, LostReason::Evicted | LostReason::Released);
        if !mine.unknown && !stuck {
            return;
        }
        let core = self.clone();
        let settling = async move {
            if let Err(trouble) = core.settle(mine, request, stuck).await {
                tracing::warn!(?trouble, "a claim that has ended could not be cleaned up");
            }
        };
        if let Err(error) = keeper::spawn(settling) {
            tracing::warn!(%error, "a claim that has ended is not cleaned up");
        }
    }

    async fn settle(&self, mine: Mine, request: RequestId, stuck: bool) -> Result<(), Trouble> {
        let memory = self.leases.memory().await?;
        if mine.unknown {
            let word = Word::new(0, &mine.record.owner(), Ending::Expired).bytes();
            let txn = TxnRequest {
                success: vec![
                    txn::put(&self.keys.gone(&mine.name, request), word, memory),
                    txn::delete(&mine.key),
                ],
                ..TxnRequest::default()
            };
            txn::run(&self.session, txn).await?;
        }
        if let (true, Some(key), Some(lease)) = (stuck, &mine.delay, &mine.lease)
            && let (Some(companion), Some(seq)) = (lease.companion, mine.seq)
        {
            // The delay begins with the loss; the lease that it hangs on may live on with others.
            let (delay, ..) = self.leases.grant(seconds(mine.record.delay())).await?;
            let txn = TxnRequest {
                compare: vec![txn::on_lease(key, companion)],
                success: vec![txn::put(key, mine.record.delay_bytes(seq), delay)],
                failure: Vec::new(),
            };
            txn::run(&self.session, txn).await?;
        }
        Ok(())
    }
}
