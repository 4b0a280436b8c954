//! The short way: one statement to take a free name, one to give up a hold that nobody waits for.

use std::sync::Arc;

use clinch_core::store::{Claim, ClaimReply, Hold, ReleaseReply};
use clinch_core::{Clock, Result};

use crate::pool::{How, Pool, Reply};
use crate::row::{Content, Key, MEMORY, Row, farewell, id, span};
use crate::sql::{Sql, names};
use crate::steps::Answer;

/// What came of it.
pub(crate) enum Tried {
    /// It is done.
    Done(Answer),
    /// It is not as simple; the row as it was, where that is known.
    Row(Option<Row>),
}

/// Sends the statements of the short way.
#[derive(Debug)]
pub(crate) struct Short {
    pool: Arc<Pool>,
    /// Whether the server has `INSERT … RETURNING`.
    returning: bool,
}

impl Short {
    pub(crate) fn new(pool: Arc<Pool>, returning: bool) -> Self {
        Self { pool, returning }
    }

    /// Takes a free name, or extends the hold of a repeated claim. `seen` is the greatest token that
    /// this client knows of.
    pub(crate) async fn take(&self, key: &Key, claim: &Claim, seen: u64) -> Result<Tried> {
        let Some(content) = Content::of_claim(claim) else {
            return Ok(Tried::Row(None));
        };
        let lease = span(claim.lease);
        let sql = names::take(key, &content, lease, seen, self.returning);
        let how = match self.returning {
            true => How::Prepared,
            false => How::Text,
        };
        let reply = self.send(&sql, how).await?;
        let slack = reply.took;
        let values = reply.into_first_row();
        let row = values.and_then(|values| Row::read(&mut values.into_iter()));
        let Some(row) = row.map(|row| Row { slack, ..row }) else {
            return Ok(Tried::Row(None));
        };
        if row.is_held_by(claim.request, lease) {
            let state = row.state(&claim.name)?;
            if let reply @ ClaimReply::Granted(_) = state.standing(claim.request, row.moment()) {
                return Ok(Tried::Done(Answer::Claim(reply)));
            }
        }
        Ok(Tried::Row(Some(row)))
    }

    /// Gives up a hold.
    pub(crate) async fn give(&self, key: &Key, hold: &Hold) -> Result<Tried> {
        let (request, farewell) = (id(hold.request), farewell(hold.request, hold.seq));
        let sql = names::give(key, &request, hold.seq, &farewell, MEMORY);
        let reply = self.send(&sql, How::Prepared).await?;
        Ok(match reply.affected(0) {
            Some(1) => Tried::Done(Answer::Release(ReleaseReply::Released)),
            _ => Tried::Row(None),
        })
    }

    /// Sends a statement, again where the server has rolled it back.
    async fn send(&self, sql: &Sql, how: How) -> Result<Reply> {
        let clock = Clock::boot();
        let give_up = clock.now() + self.pool.timeout();
        loop {
            let reply = self.pool.send(sql, how).await;
            let trouble = match reply {
                Ok(Reply {
                    failed: Some(trouble),
                    ..
                }) => trouble,
                Ok(reply) => return Ok(reply),
                Err(trouble) => trouble,
            };
            if !trouble.is_race() || clock.now() >= give_up {
                return Err(trouble.into_error(self.pool.to()));
            }
            self.pool.raced(&trouble);
        }
    }
}
