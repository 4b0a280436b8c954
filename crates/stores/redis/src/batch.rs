//! Several calls in one request.
//!
//! On a cluster names cannot share a call of a script, but calls to one server can share a request,
//! and one `WAIT` for replicas at its end: the connection stands still during each.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{ErrorKind as Kind, Pipeline, ServerErrorKind, Value};

use crate::scripts::Call;
use crate::session::{Live, Session, Trouble, unreplicated, wait_for};

impl Session {
    /// Runs several calls, one after the other; the keeper must poll this. The error of the whole is
    /// that of each.
    pub(crate) async fn batch(
        self: &Arc<Self>,
        calls: &[Call],
    ) -> Result<Vec<Result<Value, Trouble>>, Trouble> {
        let live = self.live().await.map_err(Trouble::Ours)?;
        let outcomes = self.send_batch(&live, calls).await?;
        let unknown = |outcome: &Result<Value, Trouble>| {
            matches!(outcome, Err(Trouble::Theirs(error, _))
                if error.kind() == Kind::Server(ServerErrorKind::NoScript))
        };
        if let Some((_, call)) = outcomes.iter().zip(calls).find(|(out, _)| unknown(out)) {
            // The next batch finds it there; these bring it along themselves, if this fails.
            let _ = self.query(&live, &call.script.load()).await;
        }
        Ok(outcomes)
    }

    async fn send_batch(
        &self,
        live: &Live,
        calls: &[Call],
    ) -> Result<Vec<Result<Value, Trouble>>, Trouble> {
        let mut pipeline = Pipeline::new();
        for call in calls {
            pipeline.add_command(call.script.by_hash(call, live.server.run()));
        }
        let wait = calls.iter().map(|call| call.wait).max().unwrap_or(0);
        if wait > 0 {
            pipeline.add_command(wait_for(wait, self.timeout()));
        }
        let count = calls.len() + usize::from(wait > 0);
        self.count(count);
        let mut connection = live.connection();
        let replies = connection.req_packed_commands(&pipeline, 0, count);
        let mut replies = self.within(live, replies).await?.into_iter();
        let mut outcomes: Vec<_> = replies
            .by_ref()
            .take(calls.len())
            .map(|reply| {
                let reply = reply.extract_error();
                reply.map_err(|error| self.trouble(live, error))
            })
            .collect();
        if let Some(Value::Int(acks)) = replies.next().filter(|_| wait > 0)
            && acks < i64::from(wait)
        {
            for (outcome, call) in outcomes.iter_mut().zip(calls) {
                if outcome.is_ok() && call.wait > 0 {
                    let error = unreplicated(acks, call.wait, &live.server.address);
                    *outcome = Err(Trouble::Ours(error));
                }
            }
        }
        Ok(outcomes)
    }
}
