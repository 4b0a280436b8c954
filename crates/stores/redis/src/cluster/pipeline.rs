//! Several calls in one request.
//!
//! On a cluster names cannot share a call of a script, but calls to one server can share a request
//! and one `WAIT` for replicas at its end, which blocks the connection.

use redis::{ErrorKind as Kind, Pipeline, ServerErrorKind, Value};

use crate::connection::{Live, Session, Trouble, settled, wait};
use crate::scripts::Call;

type Outcome = Result<Value, Trouble>;

impl Session {
    /// Runs several calls, one after the other; the keeper must poll this. An error of the request is
    /// the error of each call.
    pub(crate) async fn batch(&self, calls: &[Call]) -> Result<Vec<Outcome>, Trouble> {
        let live = self.live().await.map_err(Trouble::Ours)?;
        let outcomes = self.send_batch(&live, calls).await?;
        let unknown = outcomes.iter().zip(calls).find(|(out, _)| is_unknown(out));
        if let Some((_, call)) = unknown {
            // For the next batch; the calls of this one are repeated with the text.
            let _ = self.query(&live, &call.script.load()).await;
        }
        Ok(outcomes)
    }

    async fn send_batch(&self, live: &Live, calls: &[Call]) -> Result<Vec<Outcome>, Trouble> {
        let limit = self.limit(calls.iter().filter_map(|call| call.limit).min());
        let mut pipeline = Pipeline::new();
        for call in calls {
            pipeline.add_command(call.script.by_hash(call, live.server.run(), None));
        }
        let replicas = calls.iter().map(|call| call.wait).max().unwrap_or(0);
        if replicas > 0 {
            pipeline.add_command(wait(replicas, limit));
        }
        let mut replies = self.send(live, &pipeline, limit).await?.into_iter();
        let done: Vec<_> = replies.by_ref().take(calls.len()).collect();
        let acks = replies.next();
        let outcomes = done.into_iter().zip(calls).map(|(reply, call)| {
            let reply = reply.extract_error();
            let reply = reply.map_err(|error| self.trouble(live, error))?;
            self.note(live, call, &reply);
            let to = &live.server.address;
            settled(call, reply, acks.clone(), to).map_err(Trouble::Ours)
        });
        Ok(outcomes.collect())
    }
}

/// Whether the server does not have the script: it has applied nothing.
pub(crate) fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Err(Trouble::Theirs(error, _))
        if error.kind() == Kind::Server(ServerErrorKind::NoScript))
}
