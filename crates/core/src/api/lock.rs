//! The mutex, and the claims of every primitive.

use std::sync::Arc;
use std::time::Duration;

use super::options::{Options, option_setters};
use super::{Guard, Owner};
use crate::engine::{Engine, LocalHold, WaitPolicy};
use crate::{BootTime, Name, OwnerId, Result};

/// A way to claim a name: a mutex, one side of a read-write lock, or some permits of a semaphore.
///
/// It does nothing before `acquire`. Cloning is cheap, and one `Lock` can be acquired any number of
/// times, from any task.
///
/// # Fairness
///
/// Claims of different processes are granted in the order of the store's queue. Claims of one process
/// queue locally, and a released hold passes to the next of them without a round trip, within the
/// bounds of [`HandOver`](crate::HandOver). [`fair`](Self::fair) turns that off: the order is then
/// strictly FIFO across processes.
///
/// # Cancel safety
///
/// Every method can be dropped at any await: the claim is withdrawn, and its place in the queue is
/// lost.
///
/// # Guarantees
///
/// Each grant has a greater [token](crate::Token) than all before it. Guards of different owners
/// are never [valid](Guard::is_valid) at the same time, as long as the store keeps its data and
/// clocks run within 1 % of each other. A lease alone cannot stop a paused process from acting late:
/// if that matters, let the resource check the token ([`fence`](crate::fence)).
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// use std::time::Duration;
///
/// let lock = clinch.lock("reports/daily").lease(Duration::from_secs(10)).label("nightly job");
/// if let Some(guard) = lock.acquire_within(Duration::from_secs(1)).await? {
///     println!("token {}", guard.token());
///     guard.release().await?;
/// }
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Lock {
    engine: Arc<Engine>,
    /// `acquire` reports an invalid name, so that calls can be chained.
    name: Result<Name>,
    units: u32,
    limit: u32,
    pub(super) options: Options,
}

impl Lock {
    pub(super) fn new(engine: Arc<Engine>, name: Result<Name>, units: u32, limit: u32) -> Self {
        Self {
            engine,
            name,
            units,
            limit,
            options: Options::default(),
        }
    }

    pub(super) fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    option_setters!();

    /// Claims as this owner. If the owner holds the name already, `acquire` succeeds at once with the
    /// same token; the lock is free when every guard has been released.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let me = clinch.owner();
    /// let lock = clinch.lock("a").as_owner(&me);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?;
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn as_owner(mut self, owner: &Owner) -> Self {
        self.options.owner = Some(owner.clone());
        self
    }

    /// Waits until it is held.
    ///
    /// While the store cannot be reached, the claim is retried for the client's patience (10 s by
    /// default), then fails with [`ErrorKind::Unreachable`](crate::ErrorKind).
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let lock = clinch.lock("orders/42");
    /// let first = lock.acquire().await?;
    /// let (second, released) = tokio::join!(lock.acquire(), first.release());
    /// assert!(released?.was_held() && second?.is_valid());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire(&self) -> Result<Guard> {
        loop {
            // `None` only if another claim of the same owner ended meanwhile: claim again.
            if let Some(guard) = self.claim(WaitPolicy::Forever).await? {
                return Ok(guard);
            }
        }
    }

    /// Acquires it if it is free now. `Ok(None)` means that this call definitely does not hold it. An
    /// unknown outcome is an error that [may have taken effect](crate::Error::may_have_taken_effect);
    /// the claim is then withdrawn in the background.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// let lock = clinch.lock("reports/daily");
    /// let guard = lock.try_acquire().await?;
    /// assert!(guard.is_some());
    /// assert!(lock.try_acquire().await?.is_none()); // already running elsewhere
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.claim(WaitPolicy::Try).await
    }

    /// Waits at most `timeout`; `Ok(None)` if not granted by then.
    ///
    /// If a request is unanswered at that moment, it is withdrawn first, which takes a little longer. If
    /// the withdrawal is not answered either, the result is an error that
    /// [may have taken effect](crate::Error::may_have_taken_effect).
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// # let clinch = clinch::Clinch::memory();
    /// use std::time::Duration;
    /// let guard = clinch.lock("a").acquire().await?;
    /// let late = clinch.lock("a").acquire_within(Duration::from_millis(10)).await?;
    /// assert!(late.is_none() && guard.is_valid());
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>> {
        let deadline = self.engine.clock.now() + timeout;
        self.claim(WaitPolicy::Until(deadline)).await
    }

    pub(super) async fn claim_until(&self, deadline: Option<BootTime>) -> Result<Option<Guard>> {
        match deadline {
            Some(deadline) => self.claim(WaitPolicy::Until(deadline)).await,
            None => self.acquire().await.map(Some),
        }
    }

    async fn claim(&self, how: WaitPolicy) -> Result<Option<Guard>> {
        let name = self.name.clone()?;
        let owner = self.options.owner.clone().or_else(Owner::current);
        match owner {
            Some(owner) => {
                let ask = |id: OwnerId| {
                    self.options
                        .ask(&self.engine, &name, self.units, self.limit, id)
                };
                owner
                    .claim(&self.engine, &name, self.units, self.limit, ask, how)
                    .await
            }
            None => {
                let id = self.engine.identity.owner();
                let ask = self
                    .options
                    .ask(&self.engine, &name, self.units, self.limit, id)?;
                let local_hold: Option<LocalHold> = self.engine.acquire(&ask, how).await?;
                Ok(local_hold.map(Guard::new))
            }
        }
    }
}
