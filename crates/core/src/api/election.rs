//! Leader election.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::options::{Options, option_setters};
use super::{Guard, Lock, Observer};
use crate::engine::Engine;
use crate::store::{Capability, Events, PartyView, ReleaseReply, check_value};
use crate::{Name, OwnerId, Result, Token};

/// An election: one leader at a time, with a value that it publishes, and observers.
///
/// It is a mutex underneath. The leader's token is its *term*: it rises with every new leader, and
/// a resource that checks it refuses an old leader's writes.
///
/// # Fairness
///
/// Candidates lead in the order in which they stood, as for [`Lock`], if the store has a queue.
/// [`fair`](Self::fair) requires that order: a store without a queue then refuses the campaign.
///
/// # Cancel safety
///
/// Dropping a campaign withdraws the candidate.
///
/// # Guarantees
///
/// Those of [`Lock`]; observers see terms that never go down.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7:80").await?;
/// let seen = election.leader().await?.unwrap();
/// assert_eq!(seen.value.as_deref(), Some("10.0.0.7:80"));
/// leader.resign().await?;
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    engine: Arc<Engine>,
    name: Result<Name>,
    options: Options,
}

impl Election {
    pub(super) fn new(engine: Arc<Engine>, name: Result<Name>) -> Self {
        Self {
            engine,
            name,
            options: Options::default(),
        }
    }

    option_setters!();

    /// Stands as a candidate and waits to lead; `value` is what observers see.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let election = clinch.election("scheduler");
    /// let first = election.campaign("10.0.0.7").await?;
    /// let term = first.token();
    /// let (second, _) = tokio::join!(election.campaign("10.0.0.8"), first.resign());
    /// assert!(second?.token() > term);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn campaign(&self, value: impl Into<Arc<str>>) -> Result<Leader> {
        self.candidate(value.into()).acquire().await.map(Leader)
    }

    /// Leads if there is no leader now.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let election = clinch.election("scheduler");
    /// let leader = election.try_campaign("10.0.0.7").await?.unwrap();
    /// assert!(election.try_campaign("10.0.0.8").await?.is_none());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn try_campaign(&self, value: impl Into<Arc<str>>) -> Result<Option<Leader>> {
        let guard = self.candidate(value.into()).try_acquire().await?;
        Ok(guard.map(Leader))
    }

    /// Waits at most `timeout` to lead; `Ok(None)` if not elected by then.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use std::time::Duration;
    /// let election = clinch.election("scheduler");
    /// let leader = election.campaign("10.0.0.7").await?;
    /// let late = election.campaign_within("10.0.0.8", Duration::from_millis(10)).await?;
    /// assert!(late.is_none() && leader.is_valid());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn campaign_within(
        &self,
        value: impl Into<Arc<str>>,
        timeout: Duration,
    ) -> Result<Option<Leader>> {
        let guard = self.candidate(value.into()).acquire_within(timeout).await?;
        Ok(guard.map(Leader))
    }

    /// The present leader. Needs the capabilities `values` and `tokens`.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let election = clinch.election("scheduler");
    /// assert!(election.leader().await?.is_none());
    /// let leader = election.campaign("10.0.0.7").await?;
    /// assert_eq!(election.leader().await?.unwrap().token, leader.token());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn leader(&self) -> Result<Option<LeaderView>> {
        let name = self.name.clone()?;
        self.engine.check_open()?;
        self.engine.layer.require(Capability::Values)?;
        self.engine.layer.require(Capability::Tokens)?;
        let view = self.engine.store.inspect(&name).await?;
        Ok(view
            .and_then(|view| view.holders.into_iter().next())
            .and_then(LeaderView::of))
    }

    /// Follows the leadership: the present state first, then every change.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use clinch::Leadership;
    /// let mut observer = clinch.election("scheduler").observe().await?;
    /// assert_eq!(observer.next().await, Some(Leadership::Vacant));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn observe(&self) -> Result<Observer> {
        let name = self.name.clone()?;
        self.engine.check_open()?;
        self.engine.layer.require(Capability::Events)?;
        self.engine.layer.require(Capability::Values)?;
        self.engine.layer.require(Capability::Tokens)?;
        let events = self.events(&name).await?;
        Ok(Observer::new(self.clone(), name, events))
    }

    pub(super) async fn events(&self, name: &Name) -> Result<Events> {
        self.engine.check_open()?;
        let events = self.engine.store.events(name.as_str()).await;
        events.map_err(|error| self.engine.explain(error, name))
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn candidate(&self, value: Arc<str>) -> Lock {
        let mut options = self.options.clone();
        options.value = Some(value);
        // Each candidate has its own value, so a hold cannot be handed over: candidates queue at the
        // store if it has a queue. If `fair` was set and it has none, the claim is refused.
        options.fair |= self.engine.store.info().capabilities.queue;
        Lock::new(self.engine.clone(), self.name.clone(), 1, 1).with_options(options)
    }
}

/// The leader of an election: a [`Guard`] that can publish a value.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let leader = clinch.election("scheduler").campaign("10.0.0.7").await?;
/// assert!(leader.is_valid()); // a guard
/// assert!(leader.resign().await?.was_held());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the leader resigns when it is dropped"]
pub struct Leader(Guard);

impl Leader {
    /// Publishes a new value in the same term: at most 4096 bytes, as for a campaign.
    ///
    /// The value travels with a renewal, which extends the lease once acknowledged. While the store is
    /// unreachable, it is repeated for the client's patience, and the leader is
    /// [`Suspect`](crate::Status::Suspect).
    ///
    /// Values are not numbered. If a request is repeated because its reply was lost, and a copy of it
    /// reaches the store after a later `proclaim`, the older value is visible until the next one.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before it completes, the value may or may not be published.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let election = clinch.election("scheduler");
    /// let leader = election.campaign("starting").await?;
    /// leader.proclaim("ready").await?;
    /// let seen = election.leader().await?.unwrap();
    /// assert_eq!((seen.token, seen.value.as_deref()), (leader.token(), Some("ready")));
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn proclaim(&self, value: impl Into<Arc<str>>) -> Result<()> {
        let (hold, value) = (self.0.local_hold().hold(), value.into());
        check_value(&value).map_err(|error| hold.engine.explain(error, &hold.store_hold.name))?;
        hold.engine.publish(hold, value).await
    }

    /// Gives up the leadership.
    pub async fn resign(self) -> Result<ReleaseReply> {
        self.0.release().await
    }
}

impl Deref for Leader {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// A leader as other clients see it.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let election = clinch.election("scheduler").label("node 7");
/// let leader = election.campaign("10.0.0.7").await?;
/// let seen = election.leader().await?.unwrap();
/// assert_eq!((seen.pid, seen.label.as_deref()), (std::process::id(), Some("node 7")));
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderView {
    /// Its term.
    pub token: Token,
    /// Its owner id.
    pub owner: OwnerId,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// The value that it publishes.
    pub value: Option<Arc<str>>,
}

impl LeaderView {
    fn of(party: PartyView) -> Option<Self> {
        Some(Self {
            token: party.token?,
            owner: party.owner,
            host: party.host,
            pid: party.pid,
            label: party.label,
            value: party.value,
        })
    }
}

/// A state of the leadership.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// use clinch::Leadership;
/// let election = clinch.election("scheduler");
/// let leader = election.campaign("10.0.0.7").await?;
/// match election.observe().await?.next().await {
///     Some(Leadership::Led(seen)) => assert_eq!(seen.token, leader.token()),
///     other => panic!("no leader: {other:?}"),
/// }
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// There is a leader.
    Led(LeaderView),
    /// There is no leader.
    Vacant,
}
