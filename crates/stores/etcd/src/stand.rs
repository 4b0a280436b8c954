//! How a claim stands whose key is there, and repeating it.

use clinch_core::store::{ClaimReply, Grant, Predecessor, Queued};
use clinch_core::{Effect, Error, ErrorKind, LostReason, MAX_SEQ, RequestId};

use crate::claim::Attempt;
use crate::core::Core;
use crate::error::{Trouble, strange};
use crate::mirror::{Mirror, Standing};
use crate::ours::Mine;
use crate::txn;
use crate::wakes::Follow;
use crate::wire::TxnRequest;

impl Core {
    /// The claim's key is there, in this listing.
    pub(crate) async fn found(
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
        before: Option<Predecessor>,
        delay_is_there: bool,
        term: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
        if let (false, Some(put)) = (delay_is_there, self.put_delay(at, seq)) {
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
    pub(crate) async fn granted(
        &self,
        at: &Attempt<'_>,
        seq: u64,
        predecessor: Option<Predecessor>,
        term: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
        let grant = Grant { seq, predecessor };
        let now = self.clock.now();
        self.ours.update(at.claim.request, |mine| {
            mine.noted = mine.noted.or(Some(now));
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
    pub(crate) async fn again(
        &self,
        at: &Attempt<'_>,
        seq: u64,
    ) -> Result<Option<ClaimReply>, Trouble> {
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
                success.extend(self.put_delay(at, seq));
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
    pub(crate) fn lost(&self, mine: &Mine, request: RequestId, reason: LostReason) {
        self.ours.end(request, reason);
        self.ears.unfollow(&mine.name, request);
        self.settle_later(mine.clone(), request, reason);
    }
}

/// A revision as the number of a claim.
pub(crate) fn number(revision: u64) -> Result<u64, Trouble> {
    if revision > MAX_SEQ {
        let text = format!("the revision {revision} is beyond what a token can carry");
        let error = Error::new(ErrorKind::Unsupported, text);
        return Err(error.with_effect(Effect::Possible).into());
    }
    Ok(revision)
}
