//! Claiming: one transaction that puts the claim's key and tells who stands before it.

use std::sync::Arc;

use clinch_core::store::{Busy, Claim, ClaimReply, Ending, mismatch};
use clinch_core::{BootTime, Error, ErrorKind, Result};

use crate::core::{Core, held};
use crate::error::Trouble;
use crate::lease::Lease;
use crate::mirror::Mirror;
use crate::ours::Mine;
use crate::record::Word;
use crate::stand::number;
use crate::txn::{self, Done};
use crate::wire::{Op, TxnRequest};

/// How often a claim begins again when its leases turn out to have ended, or when others came
/// between a look at a semaphore and the claim.
const ROUNDS: usize = 16;

/// One attempt at a claim.
pub(crate) struct Attempt<'a> {
    pub(crate) claim: &'a Claim,
    pub(crate) mine: Mine,
    pub(crate) lease: Arc<Lease>,
    /// What was known about the lease before anything was sent.
    pub(crate) word: (BootTime, u64),
    /// What words hang on.
    pub(crate) memory: i64,
    /// The lease must live until then.
    pub(crate) until: BootTime,
}

impl Core {
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        let until = self.clock.now() + claim.lease;
        for _ in 0..ROUNDS {
            let mine = match self.ours.begin(claim, &self.keys) {
                Ok(mine) => mine,
                Err(past) => return Ok(ClaimReply::Gone(past.reason)),
            };
            // Until here nothing of the claim itself has been sent.
            let leases = async {
                let lease = self
                    .leases
                    .get(claim.lease, claim.lock_delay, until)
                    .await?;
                Ok::<_, Trouble>((lease, self.leases.memory().await?))
            };
            let (lease, memory) = leases.await.map_err(Trouble::of_a_read)?;
            let attempt = Attempt {
                claim,
                word: lease.word(),
                lease: lease.clone(),
                memory,
                until,
                mine,
            };
            let reply = match attempt.mine.seq {
                Some(seq) => self.again(&attempt, seq).await,
                None => self.first(&attempt).await,
            };
            match reply {
                Err(trouble) if trouble.is_lease_not_found() => self.leases.doubt(&lease),
                Ok(None) => {}
                Ok(Some(reply)) => return Ok(reply),
                Err(trouble) => return Err(trouble.into()),
            }
        }
        Err(Error::new(
            ErrorKind::Unreachable,
            "others keep coming between",
        ))
    }

    /// Creates the claim, or finds that it is there.
    async fn first(&self, at: &Attempt<'_>) -> Result<Option<ClaimReply>, Trouble> {
        let (name, request) = (&at.claim.name, at.claim.request);
        let fresh = [
            txn::absent(&at.mine.key),
            txn::absent(&self.keys.gone(name, request)),
        ];
        let mut alone = fresh.to_vec();
        alone.push(txn::empty(self.keys.line(name)));
        alone.push(txn::empty(self.keys.delays(name)));
        let mut take = vec![
            txn::replace(
                &self.keys.held(name),
                held(0, &at.claim.owner).bytes(),
                at.memory,
            ),
            txn::get(&self.keys.ended(name)),
        ];
        take.extend(self.put(at));
        take.extend(self.put_delay(at, 0));
        let mut look: Vec<Op> = self.listing(name).into();
        look.push(txn::get(&self.keys.gone(name, request)));
        let otherwise = match at.claim.queue {
            false => look,
            true => {
                let mut compare = fresh.to_vec();
                let others = self.keys.other_limits(name, at.claim.limit);
                compare.extend(others.into_iter().map(txn::empty));
                let mut queue: Vec<Op> = self.put(at).into();
                queue.extend(self.listing(name));
                vec![txn::nested(TxnRequest {
                    compare,
                    success: queue,
                    failure: look,
                })]
            }
        };
        let mut done = self
            .create(
                at,
                TxnRequest {
                    compare: alone,
                    success: take,
                    failure: otherwise,
                },
            )
            .await?;
        if done.succeeded {
            let mut before = Mirror::new(done.revision);
            if let Some(kv) = done.previous()? {
                before.add(crate::keys::Kind::Held, kv);
            }
            if let Some(kv) = done.key()? {
                before.add(crate::keys::Kind::Ended, kv);
            }
            let seq = number(done.revision)?;
            return self
                .granted(at, seq, before.predecessor(seq), done.term)
                .await;
        }
        if at.claim.queue {
            done = done.nested()?;
            if done.succeeded {
                done.replies.next();
                let mirror = self.read_listing(name, &mut done)?;
                return self.found(at, mirror, done.term).await;
            }
        }
        let mirror = self.read_listing(name, &mut done)?;
        let gone = done.key()?;
        if mirror.find(request).is_some() {
            return self.found(at, mirror, done.term).await;
        }
        if let Some(gone) = gone {
            let word = Word::read(&gone.value).map(|word| word.ending());
            let reason = word.unwrap_or(Ending::Released).into();
            self.ours.end(request, reason);
            return Ok(Some(ClaimReply::Gone(reason)));
        }
        self.not_there(at, mirror).await
    }

    /// The claim is not there, and was not put.
    async fn not_there(
        &self,
        at: &Attempt<'_>,
        mirror: Mirror,
    ) -> Result<Option<ClaimReply>, Trouble> {
        let name = &at.claim.name;
        if let Some(other) = mirror.other_limit(at.claim.limit) {
            self.nothing_left(at).await?;
            return Err(mismatch(name, other, at.claim.limit).into());
        }
        if at.claim.queue {
            // What kept it out was gone in the next moment: once more.
            return Ok(None);
        }
        if !mirror.has_room(at.mine.record.place()) {
            self.nothing_left(at).await?;
            return Ok(Some(ClaimReply::Busy(Busy::default())));
        }
        // There is room, unless somebody has come meanwhile.
        let mut compare = vec![
            txn::absent(&at.mine.key),
            txn::absent(&self.keys.gone(name, at.claim.request)),
        ];
        for span in [self.keys.line(name), self.keys.delays(name)] {
            compare.push(txn::nothing_after(span, mirror.revision));
        }
        let mut success: Vec<Op> = self.put(at).into();
        success.extend(self.put_delay(at, 0));
        success.push(txn::put(
            &self.keys.held(name),
            held(0, &at.claim.owner).bytes(),
            at.memory,
        ));
        let txn = TxnRequest {
            compare,
            success,
            failure: Vec::new(),
        };
        let done = self.create(at, txn).await?;
        if !done.succeeded {
            return Ok(None);
        }
        let seq = number(done.revision)?;
        let before = mirror.predecessor(seq);
        self.granted(at, seq, before, done.term).await
    }

    /// Runs a transaction that may create the claim, and remembers that it may have.
    async fn create(&self, at: &Attempt<'_>, txn: TxnRequest) -> Result<Done, Trouble> {
        let (request, before) = (at.claim.request, at.mine.unknown);
        self.ours.update(request, |mine| {
            mine.unknown = true;
            mine.lease = Some(at.lease.clone());
        });
        let done = txn::run(&self.session, txn).await;
        let definite = match &done {
            Ok(_) => true,
            Err(trouble) => !trouble.may_have_taken_effect(),
        };
        if definite {
            self.ours.update(request, |mine| mine.unknown = before);
        }
        done
    }

    /// Makes sure that no earlier copy of the claim comes after a "no".
    async fn nothing_left(&self, at: &Attempt<'_>) -> Result<(), Trouble> {
        match at.mine.unknown {
            true => self.withdraw_unknown(at.claim).await,
            false => {
                self.ours.forget(at.claim.request);
                Ok(())
            }
        }
    }

    fn put(&self, at: &Attempt<'_>) -> [Op; 1] {
        [txn::put(&at.mine.key, at.mine.record.bytes(), at.lease.id)]
    }

    /// Puts what stays of the hold with this number; 0 where it gets the number in this transaction.
    pub(crate) fn put_delay(&self, at: &Attempt<'_>, seq: u64) -> Option<Op> {
        let (key, lease) = (at.mine.delay.as_ref()?, at.lease.companion?);
        Some(txn::put(key, at.mine.record.delay_bytes(seq), lease))
    }
}
