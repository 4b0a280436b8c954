//! The servers of a store, and which of them has a key.

use std::sync::Arc;

use clinch_core::store::Claim;
use clinch_core::{ErrorKind, Result};
use redis::Value;

use crate::cluster::Cluster;
use crate::config::{Address, Config};
use crate::connection::Session;
use crate::scripts::Call;

/// The server that a step goes to; `None` if there is only one, or it is not known yet.
pub(crate) type Route = Option<Address>;

/// The servers of a store.
#[derive(Debug, Clone)]
pub(crate) enum Servers {
    /// One master.
    One(Arc<Session>, &'static str),
    /// The masters of a cluster.
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Runs a script at the server that has its keys.
    pub(crate) async fn call(&self, call: Call) -> Result<Value> {
        match self {
            Self::One(session, _) => Ok(session.call(&call, None).await?),
            Self::Cluster(cluster) => cluster.call(&call).await,
        }
    }

    /// Runs several calls whose keys have one [route](Self::route), each with an outcome of its own.
    pub(crate) async fn calls(&self, route: &Route, mut calls: Vec<Call>) -> Vec<Result<Value>> {
        match (self, route, calls.len()) {
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

    /// The server whose queue the steps of this key join: a slow server delays no steps of others.
    pub(crate) fn route(&self, key: &str) -> Route {
        match self {
            Self::One(..) => None,
            Self::Cluster(cluster) => cluster.master_of(key),
        }
    }

    /// The estimated clock of that server, in ms since 2020; 0 if unknown.
    pub(crate) fn time(&self, route: &Route) -> u64 {
        match (self, route) {
            (Self::One(session, _), _) => session.clock().now(),
            (Self::Cluster(cluster), Some(at)) => cluster.node(at).commands.clock().now(),
            (Self::Cluster(_), None) => 0,
        }
    }

    /// Connects, and checks that the servers can keep locks.
    pub(crate) async fn connect(&self) -> Result<()> {
        match self {
            Self::One(session, _) => session.live().await.map(drop),
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// The subscription that brings wakes of a name to this client. If it is the same before a
    /// claim is sent and after it was queued, no wake is lost in between.
    pub(crate) fn subscription(&self, key: &str) -> Option<u64> {
        match self {
            Self::One(..) => Some(0),
            Self::Cluster(cluster) => cluster.wakes.subscription(key),
        }
    }

    /// Subscribes to the wakes of this claim.
    pub(crate) fn listen(&self, key: &str, claim: &Claim) {
        match self {
            Self::One(..) => {}
            Self::Cluster(cluster) => cluster.listen(key, claim.request),
        }
    }

    /// Subscribes to events, at every master.
    pub(crate) async fn watch(&self, channel: &str) -> Result<()> {
        for session in self.all() {
            match (session.subscribe(channel).await, self) {
                // Its successor is subscribed to when the map of slots is refreshed.
                (Err(error), Self::Cluster(cluster)) if error.kind() == ErrorKind::Unreachable => {
                    cluster.recover();
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

    /// Whether the steps of these two keys may share a call. On a cluster only steps of one key do:
    /// while a slot moves, two of its keys may be at different servers.
    pub(crate) fn share_calls(&self, one: &str, other: &str) -> bool {
        match self {
            Self::One(..) => true,
            Self::Cluster(_) => one == other,
        }
    }

    /// How scripts notify a client of its grant. If replicas must have the grant first, the message
    /// is a hint, and the client repeats its claim.
    pub(crate) fn notification(&self, config: &Config) -> &'static [u8] {
        match self {
            Self::One(..) if config.wait > 0 => b"h",
            Self::One(..) => b"g",
            Self::Cluster(_) => b"s",
        }
    }

    /// Which master has which slots; empty if slots cannot move.
    pub(crate) async fn layout(&self) -> Result<String> {
        match self {
            Self::One(..) => Ok(String::new()),
            Self::Cluster(cluster) => cluster.layout().await,
        }
    }

    /// Closes the connections, and ends background tasks.
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
