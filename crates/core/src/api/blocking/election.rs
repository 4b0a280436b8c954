//! The blocking election.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::block_on;
use crate::store::ReleaseReply;
use crate::{LeaderView, Result};

/// The blocking twin of [`Election`](crate::Election), with its fairness and guarantees.
///
/// A blocking call cannot be dropped half way; [`campaign_within`](Self::campaign_within) bounds it.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7")?;
/// leader.proclaim("10.0.0.8")?;
/// assert_eq!(election.leader()?.unwrap().value.as_deref(), Some("10.0.0.8"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Election(pub(super) crate::Election);

impl Election {
    /// Stands as a candidate and waits to lead.
    pub fn campaign(&self, value: impl Into<Arc<str>>) -> Result<Leader> {
        block_on(self.0.campaign(value)).map(Leader)
    }

    /// Leads if nobody does.
    pub fn try_campaign(&self, value: impl Into<Arc<str>>) -> Result<Option<Leader>> {
        Ok(block_on(self.0.try_campaign(value))?.map(Leader))
    }

    /// Waits for so long to lead.
    pub fn campaign_within(
        &self,
        value: impl Into<Arc<str>>,
        span: Duration,
    ) -> Result<Option<Leader>> {
        Ok(block_on(self.0.campaign_within(value, span))?.map(Leader))
    }

    /// Who leads now.
    pub fn leader(&self) -> Result<Option<LeaderView>> {
        block_on(self.0.leader())
    }
}

/// The blocking twin of [`Leader`](crate::Leader), which it derefs to.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7")?;
/// assert!(leader.is_valid());
/// assert!(leader.resign()?.was_held());
/// assert!(election.leader()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the leader resigns when it is dropped"]
pub struct Leader(crate::Leader);

impl Leader {
    /// Publishes a new value in the same term.
    pub fn proclaim(&self, value: impl Into<Arc<str>>) -> Result<()> {
        block_on(self.0.proclaim(value))
    }

    /// Steps down.
    pub fn resign(self) -> Result<ReleaseReply> {
        block_on(self.0.resign())
    }
}

impl Deref for Leader {
    type Target = crate::Leader;

    fn deref(&self) -> &crate::Leader {
        &self.0
    }
}
