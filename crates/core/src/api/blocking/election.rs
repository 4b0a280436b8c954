//! The blocking election.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::block_on;
use super::guard::finish;
use super::lock::blocking_options;
use crate::store::ReleaseReply;
use crate::{Error, LeaderView, Leadership, LostReason, Result};

/// The blocking twin of [`Election`](crate::Election), with its fairness and guarantees.
///
/// A blocking call cannot be cancelled; [`campaign_within`](Self::campaign_within) bounds it.
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7")?;
/// leader.proclaim("10.0.0.8")?;
/// assert_eq!(election.leader()?.unwrap().value.as_deref(), Some("10.0.0.8"));
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Election(pub(super) crate::Election);

impl Election {
    blocking_options!();

    /// Stands as a candidate and waits to lead; `value` is what observers see.
    pub fn campaign(&self, value: impl Into<Arc<str>>) -> Result<Leader> {
        block_on(self.0.campaign(value)).map(Leader)
    }

    /// Leads if there is no leader now.
    pub fn try_campaign(&self, value: impl Into<Arc<str>>) -> Result<Option<Leader>> {
        Ok(block_on(self.0.try_campaign(value))?.map(Leader))
    }

    /// Waits at most `timeout` to lead; `Ok(None)` if not elected by then.
    pub fn campaign_within(
        &self,
        value: impl Into<Arc<str>>,
        timeout: Duration,
    ) -> Result<Option<Leader>> {
        Ok(block_on(self.0.campaign_within(value, timeout))?.map(Leader))
    }

    /// The present leader.
    pub fn leader(&self) -> Result<Option<LeaderView>> {
        block_on(self.0.leader())
    }

    /// Follows the leadership: the present state first, then every change.
    pub fn observe(&self) -> Result<Observer> {
        block_on(self.0.observe()).map(Observer)
    }
}

/// The blocking twin of [`Observer`](crate::Observer): an iterator that waits for the next change.
///
/// ```
/// # let clinch = clinch::blocking::Clinch::memory();
/// use clinch::Leadership;
/// let election = clinch.election("scheduler");
/// let mut observer = election.observe()?;
/// assert_eq!(observer.next(), Some(Leadership::Vacant)); // the present state
/// let leader = election.campaign("10.0.0.7")?;
/// assert!(matches!(observer.next(), Some(Leadership::Led(_)))); // a change
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug)]
pub struct Observer(crate::Observer);

impl Observer {
    /// Why it has ended, once [`next`](Iterator::next) has returned `None`.
    pub fn error(&self) -> Option<&Error> {
        self.0.error()
    }
}

impl Iterator for Observer {
    type Item = Leadership;

    fn next(&mut self) -> Option<Leadership> {
        block_on(self.0.next())
    }
}

/// The blocking twin of [`Leader`](crate::Leader), which it derefs to. It has resigned when `drop`
/// returns.
///
/// ```
/// # let clinch = clinch::blocking::Clinch::memory();
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7")?;
/// assert!(leader.is_valid());
/// assert!(leader.resign()?.was_held());
/// assert!(election.leader()?.is_none());
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the leader resigns when it is dropped"]
pub struct Leader(crate::Leader);

impl Leader {
    /// Publishes a new value in the same term.
    pub fn proclaim(&self, value: impl Into<Arc<str>>) -> Result<()> {
        block_on(self.0.proclaim(value))
    }

    /// Blocks until the leadership is lost.
    pub fn lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// Gives up the leadership.
    pub fn resign(self) -> Result<ReleaseReply> {
        block_on(self.0.end())
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        finish(&self.0);
    }
}

impl Deref for Leader {
    type Target = crate::Leader;

    fn deref(&self) -> &crate::Leader {
        &self.0
    }
}
