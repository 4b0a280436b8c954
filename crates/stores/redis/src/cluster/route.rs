//! Which server of a cluster a step goes to.
//!
//! A server that does not have a slot any more redirects the step without having applied it, so the
//! step follows at once. Every other failure is a temporary error, and the engine repeats the step with
//! the same request id.

use std::sync::Arc;

use clinch_core::{Effect, Error, ErrorKind, Result};
use redis::{ErrorKind as Kind, ServerErrorKind, Value};
use tokio::task::JoinSet;

use super::Cluster;
use super::pipeline::is_unknown;
use super::slots::{redirected, slot_of};
use crate::config::Address;
use crate::connection::Trouble;
use crate::error::is_broken;
use crate::scripts::Call;

/// A step that is redirected more often than this is in a loop.
pub(crate) const REDIRECTIONS: usize = 6;

impl Cluster {
    /// Runs a script at the server that has its key; the keeper must poll this.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value> {
        let at = self.find(slot_of(call.key().as_bytes())).await?;
        self.call_at(call, at, None).await
    }

    /// Runs a script at this server; `sent_by` is the server that has redirected us because the slot is moving.
    async fn call_at(
        &self,
        call: &Call,
        mut to: Address,
        mut sent_by: Option<Address>,
    ) -> Result<Value> {
        for _ in 0..REDIRECTIONS {
            let asking = match &sent_by {
                Some(from) => Some(self.highest_at(from, call).await?),
                None => None,
            };
            let trouble = match self.node(&to).commands.call(call, asking).await {
                Ok(value) => {
                    self.wakes.served(call.key(), &to);
                    return Ok(value);
                }
                Err(trouble) => trouble,
            };
            match self.redirected(&trouble, &to) {
                Some((next, asking)) => {
                    sent_by = asking.then_some(to);
                    to = next;
                }
                None => return Err(self.troubled(trouble, &to)),
            }
        }
        self.recover();
        Err(redirect_loop(call.key(), &to))
    }

    /// The highest number of a slot that is moving away from this server; 0 if its key has moved already: then
    /// the script finds it at the other server.
    async fn highest_at(&self, from: &Address, call: &Call) -> Result<u64> {
        let Some(key) = call.highest() else {
            return Ok(0);
        };
        let session = self.node(from).commands.clone();
        let mut get = redis::cmd("GET");
        let live = session.live().await?;
        match session.query(&live, get.arg(key)).await {
            Ok(Value::BulkString(number)) => {
                let number = std::str::from_utf8(&number).ok();
                Ok(number.and_then(|number| number.parse().ok()).unwrap_or(0))
            }
            Ok(_) => Ok(0),
            // A redirection, or this user may not read it.
            Err(Trouble::Theirs(error, _)) if !is_broken(&error) => Ok(0),
            Err(trouble) => Err(self.troubled(trouble, from)),
        }
    }

    /// Runs several calls at one server, and follows redirections; the keeper must poll this.
    pub(crate) async fn calls(
        self: &Arc<Self>,
        at: &Address,
        calls: Vec<Call>,
    ) -> Vec<Result<Value>> {
        let outcomes = match self.node(at).commands.batch(&calls).await {
            Ok(outcomes) => outcomes,
            Err(trouble) => {
                let error = self.troubled(trouble, at);
                return calls.iter().map(|_| Err(error.clone())).collect();
            }
        };
        let mut done = Vec::with_capacity(calls.len());
        let mut elsewhere = JoinSet::new();
        for (number, (call, outcome)) in calls.into_iter().zip(outcomes).enumerate() {
            let again = is_unknown(&outcome).then(|| (at.clone(), false));
            let trouble = match outcome {
                Ok(value) => {
                    self.wakes.served(call.key(), at);
                    done.push(Ok(value));
                    continue;
                }
                Err(trouble) => trouble,
            };
            match again.or_else(|| self.redirected(&trouble, at)) {
                Some((to, asking)) => {
                    done.push(Err(lost()));
                    let (this, sent_by) = (self.clone(), asking.then(|| at.clone()));
                    let again = async move { this.call_at(&call, to, sent_by).await };
                    elsewhere.spawn(async move { (number, again.await) });
                }
                None => done.push(Err(self.troubled(trouble, at))),
            }
        }
        while let Some(ended) = elsewhere.join_next().await {
            if let Ok((number, outcome)) = ended
                && let Some(place) = done.get_mut(number)
            {
                *place = outcome;
            }
        }
        done
    }

    /// Where a server redirects us, and whether `ASKING` must be sent there; corrects the map.
    pub(crate) fn redirected(&self, trouble: &Trouble, by: &Address) -> Option<(Address, bool)> {
        let Trouble::Theirs(error, _) = trouble else {
            return None;
        };
        let (to, slot) = error.redirect_node()?;
        let to = redirected(to, by)?;
        match error.kind() {
            Kind::Server(ServerErrorKind::Moved) => {
                self.note(slot, to.clone());
                // More than this slot may have moved.
                self.recover();
                Some((to, false))
            }
            // The slot is moving, and this key may be there already.
            Kind::Server(ServerErrorKind::Ask) => Some((to, true)),
            _ => None,
        }
    }

    /// The error of a failure; refreshes the map, which may be out of date.
    pub(crate) fn troubled(&self, trouble: Trouble, at: &Address) -> Error {
        let error = Error::from(trouble);
        if error.kind() == ErrorKind::Unreachable {
            self.suspect(at);
            self.recover();
        }
        error
    }
}

/// Servers redirect a step to each other.
pub(crate) fn redirect_loop(what: &str, to: &Address) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("{what} is redirected from server to server; the last one was {to}"),
    )
}

/// The outcome of a redirected call until it has one.
fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, "the call was lost").with_effect(Effect::Possible)
}
