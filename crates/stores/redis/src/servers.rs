//! Which server a key is at.

use std::sync::Arc;

use clinch_core::Result;
use redis::Value;

use crate::config::Config;
use crate::scripts::Call;
use crate::session::Session;

/// The servers of a store.
#[derive(Debug, Clone)]
pub(crate) enum Servers {
    /// One master, wherever it is.
    One(Arc<Session>, &'static str),
}

impl Servers {
    /// Runs a script where its keys are.
    pub(crate) async fn call(&self, call: Call) -> Result<Value> {
        match self {
            Self::One(session, _) => Ok(session.call(&call, false).await?),
        }
    }

    /// Connects, and checks that locks can live there.
    pub(crate) async fn connect(&self) -> Result<()> {
        for session in self.all() {
            session.live().await?;
        }
        Ok(())
    }

    /// Whether messages reach this client from the moment a claim was queued.
    pub(crate) fn keeps_wakes(&self) -> bool {
        match self {
            Self::One(..) => true,
        }
    }

    /// Every master.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        match self {
            Self::One(session, _) => vec![session.clone()],
        }
    }

    /// The slot of a key, where keys of different slots cannot share a call.
    pub(crate) fn slot(&self, _key: &str) -> Option<u16> {
        match self {
            Self::One(..) => None,
        }
    }

    /// How many calls may be under way at once.
    pub(crate) fn calls_at_once(&self) -> usize {
        match self {
            Self::One(..) => 2,
        }
    }

    /// How scripts tell a client of its grant: where replicas must have it first, the client only
    /// hears that it should ask.
    pub(crate) fn tells(&self, config: &Config) -> &'static [u8] {
        match self {
            Self::One(..) if config.wait > 0 => b"h",
            Self::One(..) => b"g",
        }
    }

    /// The scheme, for errors.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::One(_, scheme) => scheme,
        }
    }
}
