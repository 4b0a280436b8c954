//! Fast path: one statement to take a free name, one to release a hold that no other claim waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply, Grant, Hold, LostReason, ReleaseReply};
use clinch_core::{Clock, Effect, Result};

use crate::client::Client;
use crate::dialect::{Release, Reply, Retake, Sent, Take};
use crate::record::{id, release_record, span};
use crate::row_cache::Free;
use crate::steps::Answer;
use crate::{Content, Failure, Row};

/// A statement on its way.
type Pending<'a, T> = Pin<Box<dyn Future<Output = Sent<Reply<T>>> + Send + 'a>>;

/// The outcome of the fast path.
pub(crate) enum Fast {
    /// The step is done.
    Done(Answer),
    /// The step needs the slow path; the row, if it is known.
    Row(Option<Row>),
    /// The same for a release of which a copy had no reply and may have taken effect.
    Unsure,
}

/// The slow path's answer to a release, if an earlier copy of it had no reply. That copy may have released
/// the hold, and the row may have forgotten it: only the engine can interpret such a "no".
pub(crate) fn unsure(answer: Result<Answer>, address: &str) -> Result<Answer> {
    use LostReason::{Expired, Forgotten, Released};
    match answer {
        Ok(Answer::Release(ReleaseReply::WasLost(Expired | Forgotten | Released))) => {
            Err(Failure::no_reply(address, "the reply to a release was lost").error)
        }
        answer => answer.map_err(|error| error.with_effect(Effect::Possible)),
    }
}

/// Sends the statements of the fast path.
#[derive(Debug)]
pub(crate) struct FastPath {
    pub(crate) client: Arc<Client>,
}

impl FastPath {
    /// Takes a free name, or extends the hold of a repeated claim.
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<Fast> {
        let Some(content) = Content::of_claim(claim) else {
            return Ok(Fast::Row(None));
        };
        let Client {
            cache,
            late,
            dialect,
            ..
        } = &*self.client;
        if let Some(free) = cache.take_free(&claim.name)
            && let Some(before) = cache.unwatched_until()
            && let Some(grant) = self.retake(claim, &content, free, before).await?
        {
            cache.held(claim, grant.seq);
            return Ok(Fast::Done(Answer::Claim(ClaimReply::Granted(grant))));
        }
        let take = Take {
            name: &claim.name,
            content: &content,
            lease: span(claim.lease),
            least_seq: self.client.highest.get() + 1,
            latest: late.deadline(claim.lease),
        };
        let mut unanswered = false;
        let reply = self.send(|| dialect.take(&take), &mut unanswered);
        let reply = reply.await;
        if unanswered {
            late.no_reply(claim.request, take.latest);
        }
        let Some(row) = reply? else {
            return Ok(Fast::Row(None));
        };
        late.saw_clock(row.now);
        if row.is_held_by(claim.request, take.lease) {
            let state = row.state(&claim.name)?;
            if let ClaimReply::Granted(grant) = state.standing(claim.request, row.moment()) {
                cache.held(claim, grant.seq);
                return Ok(Fast::Done(Answer::Claim(ClaimReply::Granted(grant))));
            }
        }
        Ok(Fast::Row(Some(row)))
    }

    /// Takes a name that this client itself released last, if its row is unchanged.
    ///
    /// A copy of the statement that arrives late finds another version and does nothing. If its own first
    /// copy was applied, the longer statement that follows finds the claim in the row. Should that one
    /// fail, the first copy must not be forgotten.
    async fn retake(
        &self,
        claim: &Claim,
        content: &Content,
        free: Free,
        before: u64,
    ) -> Result<Option<Grant>> {
        let Client {
            dialect,
            late,
            highest,
            ..
        } = &*self.client;
        let retake = Retake {
            name: &claim.name,
            content,
            lease: span(claim.lease),
            version: free.version,
            least_seq: free.version.max(highest.get()) + 1,
            before,
        };
        let mut unanswered = false;
        let reply = self.send(|| dialect.retake(&retake), &mut unanswered);
        let reply = reply.await;
        if unanswered {
            late.no_reply(claim.request, before);
        }
        Ok(reply?.map(|seq| Grant::new(seq, Some(free.before))))
    }

    /// Releases a hold.
    pub(crate) async fn release(&self, hold: &Hold) -> Result<Fast> {
        let Client { cache, dialect, .. } = &*self.client;
        let (request, record) = (id(hold.request), release_record(hold.request, hold.seq));
        let release = Release {
            name: &hold.name,
            request: &request,
            seq: hold.seq,
            record: &record,
            watch: cache.watch(),
        };
        let mut unanswered = false;
        let reply = self.send(|| dialect.release(&release), &mut unanswered);
        let Some(version) = reply.await? else {
            return Ok(match unanswered {
                true => Fast::Unsure,
                false => Fast::Row(None),
            });
        };
        cache.released(hold, version);
        Ok(Fast::Done(Answer::Release(ReleaseReply::Released)))
    }

    /// Sends a statement, and again if the engine has rolled it back. Sets `unanswered` if a copy of it had
    /// no reply: it may have been applied, or may still arrive. The error says so, too.
    async fn send<'a, T>(
        &self,
        statement: impl Fn() -> Pending<'a, T>,
        unanswered: &mut bool,
    ) -> Result<T> {
        let clock = Clock::boot();
        let give_up = clock.now() + self.client.dialect.timeout();
        loop {
            let failure = match statement().await {
                Ok(reply) => {
                    *unanswered |= reply.repeated;
                    return Ok(reply.value);
                }
                Err(failure) => failure,
            };
            *unanswered |= failure.unanswered;
            if !failure.is_conflict() || clock.now() >= give_up {
                // A refusal of the last copy does not apply to the first.
                return Err(match *unanswered {
                    true => failure.error.with_effect(Effect::Possible),
                    false => failure.error,
                });
            }
            self.client.conflicts.count(&failure);
        }
    }
}
