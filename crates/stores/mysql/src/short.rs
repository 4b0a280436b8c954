//! The short way: one statement to take a free name, one to give up a hold that nobody waits for.

use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply, Grant, Hold, LostReason, ReleaseReply};
use clinch_core::{Clock, Effect, Result};

use crate::error::Trouble;
use crate::known::{Free, Names};
use crate::late::Late;
use crate::pool::{How, Pool, Reply};
use crate::quiet::Quiet;
use crate::row::{Content, Key, MEMORY, Row, farewell, id, span};
use crate::sql::{Sql, names};
use crate::steps::Answer;

/// What came of it.
pub(crate) enum Tried {
    /// It is done.
    Done(Answer),
    /// It is not as simple; the row as it was, where that is known.
    Row(Option<Row>),
    /// The same for a release of which a copy was not answered, and may have taken effect.
    Unsure,
}

/// What the general way says of a release, if an earlier copy of it was not answered. That copy may have
/// given the hold up, and the row may have forgotten it: only the engine knows how to take such a "no".
pub(crate) fn unsure(answer: Result<Answer>, to: &str) -> Result<Answer> {
    use LostReason::{Expired, Forgotten, Released};
    match answer {
        Ok(Answer::Release(ReleaseReply::WasLost(Expired | Forgotten | Released))) => {
            let lost = Trouble::Lost("the reply to a release was lost".to_owned());
            Err(lost.into_error(to))
        }
        answer => answer.map_err(|error| error.with_effect(Effect::Possible)),
    }
}

/// Sends the statements of the short way.
#[derive(Debug)]
pub(crate) struct Short {
    pool: Arc<Pool>,
    /// Whether the server has `INSERT … RETURNING`.
    returning: bool,
    pub(crate) quiet: Arc<Quiet>,
    /// Names that this client has just used.
    pub(crate) known: Arc<Names>,
    pub(crate) late: Arc<Late>,
}

impl Short {
    pub(crate) fn new(pool: Arc<Pool>, returning: bool, ns: &str) -> Self {
        Self {
            quiet: Quiet::new(pool.clone(), ns.as_bytes()),
            late: pool.late.clone(),
            pool,
            returning,
            known: Arc::default(),
        }
    }

    /// Takes a free name, or extends the hold of a repeated claim. `seen` is the greatest token that
    /// this client knows of.
    pub(crate) async fn take(&self, key: &Key, claim: &Claim, seen: u64) -> Result<Tried> {
        let Some(content) = Content::of_claim(claim) else {
            return Ok(Tried::Row(None));
        };
        let lease = span(claim.lease);
        if let Some(free) = self.known.take_free(&claim.name)
            && let Some(quiet) = self.quiet.until()
            && let Some(grant) = self.retake(key, claim, &content, free, seen, quiet).await?
        {
            self.known.held(claim, grant.seq);
            return Ok(Tried::Done(Answer::Claim(ClaimReply::Granted(grant))));
        }
        let latest = self.late.latest(claim.lease);
        let sql = names::take(key, &content, lease, seen, latest, self.returning);
        let how = match self.returning {
            true => How::Prepared,
            false => How::Text,
        };
        let mut unanswered = false;
        let reply = self.send(&sql, how, &mut unanswered).await;
        if unanswered {
            self.late.no_reply(claim.request, latest);
        }
        let reply = reply?;
        let slack = reply.took;
        let values = reply.into_first_row();
        let row = values.and_then(|values| Row::read(&mut values.into_iter()));
        let Some(row) = row.map(|row| Row { slack, ..row }) else {
            return Ok(Tried::Row(None));
        };
        self.late.heard(row.now);
        if row.is_held_by(claim.request, lease) {
            let state = row.state(&claim.name)?;
            if let ClaimReply::Granted(grant) = state.standing(claim.request, row.moment()) {
                self.known.held(claim, grant.seq);
                return Ok(Tried::Done(Answer::Claim(ClaimReply::Granted(grant))));
            }
        }
        Ok(Tried::Row(Some(row)))
    }

    /// Takes a name that this client itself has given up last, if its row is still as it was left.
    ///
    /// A copy of the statement that comes late finds another version and does nothing, whatever has
    /// become of the claim; and if its own first copy was there before, the longer statement that
    /// follows finds the claim in the row. Should that one fail, the first copy must not be forgotten.
    async fn retake(
        &self,
        key: &Key,
        claim: &Claim,
        content: &Content,
        free: Free,
        seen: u64,
        quiet: u64,
    ) -> Result<Option<Grant>> {
        let lease = span(claim.lease);
        let sql = names::retake(key, content, lease, free.version, seen, quiet);
        let mut unanswered = false;
        let reply = self.send(&sql, How::Prepared, &mut unanswered).await;
        if unanswered {
            self.late.no_reply(claim.request, quiet);
        }
        Ok(reply?.number_if_changed().map(|seq| Grant {
            seq,
            predecessor: Some(free.before),
        }))
    }

    /// Gives up a hold.
    pub(crate) async fn give(&self, key: &Key, hold: &Hold) -> Result<Tried> {
        let (request, farewell) = (id(hold.request), farewell(hold.request, hold.seq));
        let watch = self.quiet.watch();
        let sql = names::give(key, &request, hold.seq, &farewell, MEMORY, watch);
        let mut unanswered = false;
        let reply = self.send(&sql, How::Prepared, &mut unanswered).await?;
        let Some(version) = reply.number_if_changed() else {
            return Ok(match unanswered {
                true => Tried::Unsure,
                false => Tried::Row(None),
            });
        };
        self.known.released(hold, version);
        Ok(Tried::Done(Answer::Release(ReleaseReply::Released)))
    }

    /// The server that it asks, for errors.
    pub(crate) fn to(&self) -> &str {
        self.pool.to()
    }

    /// Sends a statement, again where the server has rolled it back. Says whether a copy of it was not
    /// answered: it may have been applied, or may still arrive. An error says so, too.
    async fn send(&self, sql: &Sql, how: How, unanswered: &mut bool) -> Result<Reply> {
        let clock = Clock::boot();
        let give_up = clock.now() + self.pool.timeout();
        loop {
            let reply = self.pool.send(sql, how).await;
            *unanswered |= matches!(&reply, Ok(Reply { repeated: true, .. }));
            let trouble = match reply {
                Ok(Reply {
                    failed: Some(trouble),
                    ..
                }) => trouble,
                Ok(reply) => return Ok(reply),
                Err(trouble) => trouble,
            };
            *unanswered |= trouble.is_unanswered();
            if !trouble.is_race() || clock.now() >= give_up {
                let error = trouble.into_error(self.pool.to());
                // A refusal of the last copy says nothing about the first.
                return Err(match *unanswered {
                    true => error.with_effect(Effect::Possible),
                    false => error,
                });
            }
            self.pool.raced(&trouble);
        }
    }
}
