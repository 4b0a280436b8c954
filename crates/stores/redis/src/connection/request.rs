//! Requests on a connection: sent, awaited for a limited time, and what a failure means.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::{Effect, Error, ErrorKind, Result};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind as Kind, Pipeline, RedisError, ServerErrorKind, Value};

use super::replicas;
use super::session::{Live, Session};
use crate::error::{is_broken, is_denied, sending};
use crate::scripts::{Asking, Call, STEPS};

impl Session {
    /// Runs a script; the keeper must poll this.
    pub(crate) async fn call(&self, call: &Call, asking: Asking) -> Result<Value, Trouble> {
        let live = self.live().await.map_err(Trouble::Ours)?;
        let by_hash = call.script.by_hash(call, live.server.run(), asking);
        match self.run(&live, by_hash, call, asking.is_some()).await {
            Err(Trouble::Theirs(error, _))
                if error.kind() == Kind::Server(ServerErrorKind::NoScript) =>
            {
                let by_text = call.script.by_text(call, live.server.run(), asking);
                let reply = self.run(&live, by_text, call, asking.is_some()).await?;
                self.note(&live, call, &reply);
                Ok(reply)
            }
            Ok(reply) => {
                self.note(&live, call, &reply);
                Ok(reply)
            }
            outcome => outcome,
        }
    }

    /// Updates what is known of the server from a reply to steps: its clock, and its role.
    pub(crate) fn note(&self, live: &Live, call: &Call, reply: &Value) {
        let Value::Array(replies) = reply else { return };
        if call.script.hash() != STEPS.hash() {
            return;
        }
        if let Some(Value::Int(now)) = replies.last() {
            self.clock().update(u64::try_from(*now).unwrap_or(0));
        }
        if is_read_only(replies) {
            self.give_up(live);
        }
    }

    async fn run(
        &self,
        live: &Live,
        cmd: Cmd,
        call: &Call,
        asking: bool,
    ) -> Result<Value, Trouble> {
        let limit = self.limit(call.limit);
        if call.wait == 0 && !asking {
            return self.query_within(live, &cmd, limit).await;
        }
        let mut pipeline = Pipeline::new();
        if asking {
            pipeline.cmd("ASKING");
        }
        pipeline.add_command(cmd);
        if call.wait > 0 {
            pipeline.add_command(replicas::wait(call.wait, limit));
        }
        let replies = self.send(live, &pipeline, limit).await?;
        let mut replies = replies.into_iter().skip(usize::from(asking));
        let reply = replies.next().unwrap_or(Value::Nil);
        let reply = reply
            .extract_error()
            .map_err(|error| self.trouble(live, error))?;
        replicas::settled(call, reply, replies.next(), &live.server.address).map_err(Trouble::Ours)
    }

    /// How long a reply is awaited on this connection: `wanted`, and at most the timeout.
    pub(crate) fn limit(&self, wanted: Option<Duration>) -> Duration {
        let timeout = self.dialer().config.timeout;
        wanted.map_or(timeout, |limit| limit.min(timeout))
    }

    /// Sends several commands in one request; the keeper must poll this.
    pub(crate) async fn send(
        &self,
        live: &Live,
        pipeline: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<Value>, Trouble> {
        let count = pipeline.len();
        let commands = u64::try_from(count).unwrap_or(u64::MAX);
        self.dialer().operations.add(commands);
        let mut connection = live.driver.clone();
        let replies = connection.req_packed_commands(pipeline, 0, count);
        self.within(live, limit, replies).await
    }

    /// Sends one command; the keeper must poll this.
    pub(crate) async fn query(&self, live: &Live, cmd: &Cmd) -> Result<Value, Trouble> {
        self.query_within(live, cmd, self.limit(None)).await
    }

    async fn query_within(
        &self,
        live: &Live,
        cmd: &Cmd,
        limit: Duration,
    ) -> Result<Value, Trouble> {
        self.dialer().operations.add(1);
        let mut connection = live.driver.clone();
        let reply = connection.req_packed_command(cmd);
        let reply = self.within(live, limit, reply).await?;
        reply
            .extract_error()
            .map_err(|error| self.trouble(live, error))
    }

    /// Awaits a reply. After `limit` the connection is dropped, so that the next request does not
    /// queue behind a stalled one. A reply that arrives later, but before the timeout, still counts.
    async fn within<T>(
        &self,
        live: &Live,
        limit: Duration,
        reply: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Trouble> {
        let mut moved = self.dialer().moves.subscribe();
        let (to, timeout) = (&live.server.address, self.dialer().config.timeout);
        let reply = async {
            let mut reply = std::pin::pin!(reply);
            if let Ok(reply) = tokio::time::timeout(limit, &mut reply).await {
                return Ok(reply);
            }
            self.give_up(live);
            tokio::time::timeout(timeout.saturating_sub(limit), reply).await
        };
        let why = tokio::select! {
            biased;
            reply = reply => match reply {
                Ok(reply) => return reply.map_err(|error| self.trouble(live, error)),
                Err(_) => format!("{to} does not answer within {timeout:?}"),
            },
            Ok(_) = moved.wait_for(|moves| *moves > live.moves) => {
                format!("{to} is not the master any more")
            }
        };
        self.give_up(live);
        let error = Error::new(ErrorKind::Unreachable, why);
        Err(Trouble::Ours(error.with_effect(Effect::Possible)))
    }

    /// Wraps an error of the driver; drops the connection if it cannot be used any more.
    pub(crate) fn trouble(&self, live: &Live, error: RedisError) -> Trouble {
        if is_broken(&error) {
            self.give_up(live);
        }
        Trouble::Theirs(error, live.server.address.clone())
    }

    /// Subscribes to a channel on the current connection; the next connection takes its channels
    /// from the push handler.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        let live = self.live().await?;
        let mut connection = live.driver.clone();
        self.dialer().operations.add(1);
        let subscribed = self
            .within(&live, self.limit(None), connection.subscribe(channel))
            .await;
        subscribed.map_err(Error::from)
    }

    /// Ends a subscription, if a connection is open.
    pub(crate) async fn unsubscribe(&self, channel: &str) {
        let Some(live) = self.current() else { return };
        let mut connection = live.driver.clone();
        self.dialer().operations.add(1);
        // A failure ends the connection, and the subscription with it.
        let ended = connection.unsubscribe(channel);
        let _ = self.within(&live, self.limit(None), ended).await;
    }
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// An error of the server or the driver, and the server's address.
    Theirs(RedisError, Arc<str>),
    /// An error of this crate.
    Ours(Error),
}

impl Trouble {
    /// Whether the user lacks the right to do this.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self, Self::Theirs(error, _) if is_denied(error))
    }
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Theirs(error, to) => sending(error, &to),
            Trouble::Ours(error) => error,
        }
    }
}

/// Whether a step has failed because the server, a master when we connected, is now a replica.
fn is_read_only(replies: &[Value]) -> bool {
    let failed =
        |reply: &Value| matches!(reply, Value::BulkString(text) if text.starts_with(b"!READONLY"));
    replies.iter().any(failed)
}
