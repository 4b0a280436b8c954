//! Which server a key is at.

use std::sync::Arc;

use clinch_core::store::Claim;
use clinch_core::{ErrorKind, Result};
use redis::Value;

use crate::cluster::Cluster;
use crate::config::{Address, Config};
use crate::scripts::Call;
use crate::session::Session;

/// Which of several servers, where there are several.
pub(crate) type Lane = Option<Address>;

/// The servers of a store.
#[derive(Debug, Clone)]
pub(crate) enum Servers {
    /// One master, wherever it is.
    One(Arc<Session>, &'static str),
    /// The masters of a cluster.
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Runs a script where its keys are.
    pub(crate) async fn call(&self, call: Call) -> Result<Value> {
        match self {
            Self::One(session, _) => Ok(session.call(&call, None).await?),
            Self::Cluster(cluster) => cluster.call(&call).await,
        }
    }

    /// Runs several calls whose keys are in one [lane](Self::lane), each with an outcome of its own.
    pub(crate) async fn calls(&self, lane: &Lane, mut calls: Vec<Call>) -> Vec<Result<Value>> {
        match (self, lane, calls.len()) {
            (Self::Cluster(cluster), Some(at), 2..) => cluster.calls(at, calls).await,
            _ => {
                let mut outcomes = Vec::with_capacity(calls.len());
                for call in calls.drain(..) {
                    outcomes.push(self.call(call).await);
                }
                outcomes
            }
        }
    }

    /// Where steps for this key queue: those of one server do not wait for another one.
    pub(crate) fn lane(&self, key: &str) -> Lane {
        match self {
            Self::One(..) => None,
            Self::Cluster(cluster) => cluster.master_of(key),
        }
    }

    /// What time it is there by its own clock, in ms since 2020; 0 if it is not known.
    pub(crate) fn time(&self, lane: &Lane) -> u64 {
        match (self, lane) {
            (Self::One(session, _), _) => session.clock.now(),
            (Self::Cluster(cluster), Some(at)) => cluster.node(at).commands.clock.now(),
            (Self::Cluster(_), None) => 0,
        }
    }

    /// Connects, and checks that locks can live there.
    pub(crate) async fn connect(&self) -> Result<()> {
        match self {
            Self::One(session, _) => session.live().await.map(drop),
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// The subscription by which wakes for a name reach this client. If it is the same before a
    /// claim is sent and after it was queued, none is lost in between.
    pub(crate) fn subscription(&self, key: &str) -> Option<u64> {
        match self {
            Self::One(..) => Some(0),
            Self::Cluster(cluster) => cluster.shards.subscription(key),
        }
    }

    /// Somebody waits: has wakes for this claim come here.
    pub(crate) fn listen(&self, key: &str, claim: &Claim) {
        match self {
            Self::One(..) => {}
            Self::Cluster(cluster) => cluster.listen(key, claim.request),
        }
    }

    /// Somebody watches: has events come here, from every master.
    pub(crate) async fn watch(&self, channel: &str) -> Result<()> {
        for session in self.all() {
            match (session.subscribe(channel).await, self) {
                // It has nothing to tell; whoever takes its place will.
                (Err(error), Self::Cluster(cluster)) if error.kind() == ErrorKind::Unreachable => {
                    cluster.mend();
                }
                (outcome, _) => outcome?,
            }
        }
        Ok(())
    }

    /// Every master.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        match self {
            Self::One(session, _) => vec![session.clone()],
            Self::Cluster(cluster) => cluster.all(),
        }
    }

    /// Commands sent so far.
    pub(crate) fn commands(&self) -> u64 {
        match self {
            Self::One(session, _) => session.commands(),
            Self::Cluster(cluster) => cluster.commands(),
        }
    }

    /// Whether the steps of these two keys may share a call. On a cluster only those of one key do:
    /// of two keys of a slot that moves, one may be here and one there.
    pub(crate) fn share_calls(&self, one: &str, other: &str) -> bool {
        match self {
            Self::One(..) => true,
            Self::Cluster(_) => one == other,
        }
    }

    /// How scripts tell a client of its grant: where replicas must have it first, the client only
    /// hears that it should ask.
    pub(crate) fn tells(&self, config: &Config) -> &'static [u8] {
        match self {
            Self::One(..) if config.wait > 0 => b"h",
            Self::One(..) => b"g",
            Self::Cluster(_) => b"s",
        }
    }

    /// Where slots are, if they can move.
    pub(crate) async fn layout(&self) -> Result<String> {
        match self {
            Self::One(..) => Ok(String::new()),
            Self::Cluster(cluster) => cluster.layout().await,
        }
    }

    /// Ends the connections, and what runs in the background.
    pub(crate) fn close(&self) {
        match self {
            Self::One(session, _) => session.reset(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    /// The scheme, for errors.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::One(_, scheme) => scheme,
            Self::Cluster(_) => "redis+cluster",
        }
    }
}
