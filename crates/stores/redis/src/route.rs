//! Which server of a cluster a step goes to.
//!
//! A server that has given a slot away says so without having done anything, so a step follows such
//! words at once. Whatever else goes wrong is a temporary error, which the engine repeats with the
//! same request id.

use std::sync::Arc;

use clinch_core::{Effect, Error, ErrorKind, Result};
use redis::{ErrorKind as Kind, ServerErrorKind, Value};
use tokio::task::JoinSet;

use crate::batch::is_unknown;
use crate::cluster::Cluster;
use crate::config::Address;
use crate::error::is_broken;
use crate::scripts::Call;
use crate::session::Trouble;
use crate::slots::{redirected, slot_of};

/// A step that is sent on more often than this is not on its way to anywhere.
pub(crate) const REDIRECTIONS: usize = 6;

impl Cluster {
    /// Runs a script where its key is; the keeper must poll this.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value> {
        let at = self.find(slot_of(call.key().as_bytes())).await?;
        self.call_at(call, at, None).await
    }

    /// Runs a script at this server; `sent_by` is the one that has sent us there because the slot is on its way.
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
                    self.shards.served(call.key(), &to);
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
        self.mend();
        Err(astray(call.key(), &to))
    }

    /// The highest number of a slot that this server gives away; 0 if the key is not here: it has gone before, and
    /// the script finds it at the other one.
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
            // It says where the key is, or that this user may not read it.
            Err(Trouble::Theirs(error, _)) if !is_broken(&error) => Ok(0),
            Err(trouble) => Err(self.troubled(trouble, from)),
        }
    }

    /// Runs several calls at one server, and elsewhere those whose keys are elsewhere; the keeper
    /// must poll this.
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
                    self.shards.served(call.key(), at);
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

    /// Where a server sends us, and whether to say that we were sent; the map is corrected.
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
                self.mend();
                Some((to, false))
            }
            // This key may be there already: its slot is on its way.
            Kind::Server(ServerErrorKind::Ask) => Some((to, true)),
            _ => None,
        }
    }

    /// What a failure means for the caller. The map may be out of date.
    pub(crate) fn troubled(&self, trouble: Trouble, at: &Address) -> Error {
        let error = Error::from(trouble);
        if error.kind() == ErrorKind::Unreachable {
            self.suspect(at);
            self.mend();
        }
        error
    }
}

/// Servers send a step to each other.
pub(crate) fn astray(what: &str, to: &Address) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("{what} is sent from server to server; the last one was {to}"),
    )
}

/// What a call is answered that has been sent on and is not heard of again.
fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, "the call was lost").with_effect(Effect::Possible)
}
