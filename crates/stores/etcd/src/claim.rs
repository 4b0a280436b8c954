//! Claiming: one transaction that puts the claim's key and tells who stands before it.

use std::sync::Arc;

use clinch_core::store::{Busy, Claim, ClaimReply, Ending, Grant, Queued, mismatch};
use clinch_core::{BootTime, Effect, Error, ErrorKind, LostReason, MAX_SEQ, Result};

use crate::core::{Core, held};
use crate::error::{Trouble, strange};
use crate::leases::Lease;
use crate::mirror::{Mirror, Standing};
use crate::ours::Mine;
use crate::record::Word;
use crate::txn::{self, Done};
use crate::wakes::Follow;
use crate::wire::{Op, TxnRequest};

/// How often a claim begins again when its leases turn out to have ended, or when others came
/// between a look at a semaphore and the claim.
const ROUNDS: usize = 16;

/// One attempt at a claim.
struct Attempt<'a> {
    claim: &'a Claim,
    mine: Mine,
    lease: Arc<Lease>,
    /// What was known about the lease before anything was sent.
    word: (BootTime, u64),
    /// What words hang on.
    memory: i64,
    /// The lease must live until then.
    until: BootTime,
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
        take.extend(self.put_delay(at));
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
        success.extend(self.put_delay(at));
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

    fn put_delay(&self, at: &Attempt<'_>) -> Option<Op> {
        let (key, lease) = (at.mine.delay.as_ref()?, at.lease.companion?);
        Some(txn::put(key, at.mine.record.bytes(), lease))
    }

    /// The claim's key is there, in this listing.
    async fn found(
        &self,
        at: &Attempt<'_>,
        mirror: Mirror,
        term: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
        let request = at.claim.request;
        let (seq, party) = mirror.find(request).ok_or_else(strange)?;
        let seq = number(seq)?;
        let moved = party.lease != at.lease.id;
        self.ours.update(request, |mine| mine.seq = Some(seq));
        if moved {
            // Put by an earlier attempt, on another lease: move it.
            self.ours.update(request, |mine| mine.lease = None);
            return Ok(None);
        }
        let known = self.ours.get(request).and_then(|mine| mine.grant);
        if let Some(grant) = known {
            return self.granted(at, seq, grant.predecessor, term).await;
        }
        match mirror.standing(seq).ok_or_else(strange)? {
            Standing::Holds => {
                let before = mirror.predecessor(seq);
                self.holds(
                    at,
                    seq,
                    before,
                    mirror.delays.contains_key(&at.mine.seat),
                    term,
                )
                .await
            }
            Standing::Waits(ahead) => {
                self.leases
                    .proven(&at.lease, at.word, term, at.until)
                    .await?;
                match self.ears.follow(&at.claim.name, request, seq, mirror) {
                    Follow::Waiting => Ok(Some(ClaimReply::Queued(Queued {
                        ahead,
                        retry_after: None,
                        wakes_kept: true,
                    }))),
                    Follow::Granted(grant) => {
                        self.holds(at, seq, grant.predecessor, false, term).await
                    }
                    // What happened to it is asked for.
                    Follow::Gone => Ok(None),
                }
            }
        }
    }

    /// The claim has reached the front.
    async fn holds(
        &self,
        at: &Attempt<'_>,
        seq: u64,
        before: Option<clinch_core::store::Predecessor>,
        delay_is_there: bool,
        term: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
        if let (false, Some(put)) = (delay_is_there, self.put_delay(at)) {
            let txn = TxnRequest {
                compare: vec![txn::created(&at.mine.key, seq)],
                success: vec![put],
                failure: Vec::new(),
            };
            if !txn::run(&self.session, txn).await?.succeeded {
                return Ok(None);
            }
        }
        self.note(at.claim.request);
        self.granted(at, seq, before, term).await
    }

    /// The claim holds.
    async fn granted(
        &self,
        at: &Attempt<'_>,
        seq: u64,
        predecessor: Option<clinch_core::store::Predecessor>,
        term: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
        let grant = Grant { seq, predecessor };
        self.ours.update(at.claim.request, |mine| {
            mine.seq = Some(seq);
            mine.grant = Some(grant.clone());
        });
        self.ears.unfollow(&at.claim.name, at.claim.request);
        self.leases
            .proven(&at.lease, at.word, term, at.until)
            .await?;
        Ok(Some(ClaimReply::Granted(grant)))
    }

    /// The claim was there with this number: whether it still is, and how it stands.
    async fn again(&self, at: &Attempt<'_>, seq: u64) -> Result<Option<ClaimReply>, Trouble> {
        let (name, request) = (&at.claim.name, at.claim.request);
        let same = at
            .mine
            .lease
            .as_ref()
            .is_some_and(|lease| lease.id == at.lease.id);
        let mut success = Vec::new();
        let mut record = at.mine.record.clone();
        record.set_lease(at.claim.lease);
        if !same {
            success.push(txn::put(&at.mine.key, record.bytes(), at.lease.id));
            if at.mine.grant.is_some() {
                success.extend(self.put_delay(at));
            }
        }
        let puts = success.len();
        success.extend(self.listing(name));
        let txn = TxnRequest {
            compare: vec![txn::created(&at.mine.key, seq)],
            success,
            failure: self.words(name, request).into(),
        };
        let mut done = txn::run(&self.session, txn).await?;
        if !done.succeeded {
            let word = self.reason(&at.mine, &mut done)?;
            let reason = word.unwrap_or_else(|| self.reason_without_word(&at.mine));
            self.lost(&at.mine, request, reason);
            return Ok(Some(ClaimReply::Gone(reason)));
        }
        if !same {
            self.ours.update(request, |mine| {
                mine.lease = Some(at.lease.clone());
                mine.record = record;
            });
        }
        done.replies.by_ref().take(puts).for_each(drop);
        let mirror = self.read_listing(name, &mut done)?;
        self.found(at, mirror, done.term).await
    }

    /// One of our claims has ended without our doing.
    pub(crate) fn lost(&self, mine: &Mine, request: clinch_core::RequestId, reason: LostReason) {
        self.ours.end(request, reason);
        self.ears.unfollow(&mine.name, request);
        self.settle_later(mine.clone(), request, reason);
    }
}

impl Trouble {
    pub(crate) fn may_have_taken_effect(&self) -> bool {
        match self {
            Self::Ours(error) => error.may_have_taken_effect(),
            Self::Theirs(status, to) => {
                let error = Error::from(Self::Theirs(status.clone(), to.clone()));
                error.may_have_taken_effect()
            }
        }
    }
}

/// A revision as the number of a claim.
fn number(revision: u64) -> Result<u64, Trouble> {
    if revision > MAX_SEQ {
        let text = format!("the revision {revision} is beyond what a token can carry");
        let error = Error::new(ErrorKind::Unsupported, text);
        return Err(error.with_effect(Effect::Possible).into());
    }
    Ok(revision)
}
