//! The options that every primitive takes.

use std::sync::Arc;
use std::time::Duration;

use super::Owner;
use crate::engine::{ClaimRequest, ClaimSpec, Engine};
use crate::store::Terms;
use crate::{Error, Name, OwnerId, Result};

/// How to claim.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) lease: Option<Duration>,
    pub(super) lock_delay: Duration,
    pub(super) max_hold: Option<Duration>,
    pub(super) fair: bool,
    pub(super) label: Option<Arc<str>>,
    pub(super) value: Option<Arc<str>>,
    pub(super) owner: Option<Owner>,
}

impl Options {
    /// Checks every option, before any I/O, and makes the engine's request.
    pub(super) fn ask(
        &self,
        engine: &Engine,
        name: &Name,
        units: u32,
        limit: u32,
        owner: OwnerId,
    ) -> Result<ClaimRequest> {
        let lease = self.lease.unwrap_or(crate::engine::DEFAULT_LEASE);
        engine.layer.check_terms(&Terms {
            name,
            units,
            limit,
            lease,
            lock_delay: self.lock_delay,
            label: self.label.as_deref(),
            value: self.value.as_deref(),
            fair: self.fair,
        })?;
        if self.max_hold.is_some_and(|span| span.is_zero()) {
            let error = Error::invalid("a longest hold of zero leaves no time for work");
            return Err(engine.explain(error, name));
        }
        let step = engine.store.info().limits.lease_step;
        Ok(ClaimRequest {
            spec: ClaimSpec {
                name: name.clone(),
                units,
                limit,
                lease: round_up(lease, step),
                lock_delay: self.lock_delay,
                max_hold: self.max_hold,
                label: self.label.clone(),
                value: self.value.clone(),
            },
            owner,
            fair: self.fair,
        })
    }
}

fn round_up(lease: Duration, step: Duration) -> Duration {
    match step.as_nanos() {
        0 | 1 => lease,
        step => {
            let nanos = lease.as_nanos().div_ceil(step) * step;
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
    }
}

/// Writes the option setters once for every primitive that has an `options` field.
macro_rules! option_setters {
    () => {
        /// How long the hold lives without renewal; [`DEFAULT_LEASE`](crate::DEFAULT_LEASE) by default.
        /// It is renewed after a third of the lease. With a shorter lease a crash is noticed sooner; with
        /// a longer one the hold survives longer stalls.
        ///
        /// ```
        /// # clinch::blocking::block_on(async {
        /// # let clinch = clinch::Clinch::memory();
        /// use std::time::Duration;
        /// let guard = clinch.lock("a").lease(Duration::from_secs(5)).acquire().await?;
        /// assert!(guard.remaining() < Duration::from_secs(5)); // less the margin for clocks
        /// # Ok::<_, clinch::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.options.lease = Some(lease);
            self
        }

        /// How long no other client is granted the name after an *unclean* end of this hold (expired,
        /// evicted, crashed), so that work still under way can complete. Does not apply to a release.
        ///
        /// ```
        /// # clinch::blocking::block_on(async {
        /// # let clinch = clinch::Clinch::memory();
        /// let lock = clinch.lock("a").lock_delay(std::time::Duration::from_secs(10));
        /// let guard = lock.acquire().await?;
        /// clinch.evict("a", None).await?;
        /// assert!(lock.try_acquire().await?.is_none()); // not yet
        /// # Ok::<_, clinch::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn lock_delay(mut self, delay: std::time::Duration) -> Self {
            self.options.lock_delay = delay;
            self
        }

        /// The longest time that one guard holds it; then it is lost with
        /// [`LostReason::MaxHold`](crate::LostReason), even if it was renewed.
        ///
        /// ```
        /// # clinch::blocking::block_on(async {
        /// # let clinch = clinch::Clinch::memory();
        /// use std::time::Duration;
        /// let guard = clinch.lock("a").max_hold(Duration::from_millis(20)).acquire().await?;
        /// assert_eq!(guard.lost().await, clinch::LostReason::MaxHold);
        /// # Ok::<_, clinch::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn max_hold(mut self, span: std::time::Duration) -> Self {
            self.options.max_hold = Some(span);
            self
        }

        /// Strict FIFO across processes: each claim queues at the store, and no hold is handed over
        /// inside the process.
        ///
        /// ```
        /// # clinch::blocking::block_on(async {
        /// # let clinch = clinch::Clinch::memory();
        /// let lock = clinch.lock("a").fair();
        /// let first = lock.acquire().await?;
        /// let (second, _) = tokio::join!(lock.acquire(), first.release());
        /// assert_eq!(second?.token().local(), 0); // granted by the store, not handed over
        /// # Ok::<_, clinch::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn fair(mut self) -> Self {
            self.options.fair = true;
            self
        }

        /// A description for people, shown by `clinch list`.
        ///
        /// ```
        /// # clinch::blocking::block_on(async {
        /// # let clinch = clinch::Clinch::memory();
        /// let guard = clinch.lock("a").label("nightly job").acquire().await?;
        /// let seen = clinch.inspect("a").await?.unwrap();
        /// assert_eq!(seen.holders[0].label.as_deref(), Some("nightly job"));
        /// # Ok::<_, clinch::Error>(()) }).unwrap();
        /// ```
        #[must_use]
        pub fn label(mut self, label: impl Into<std::sync::Arc<str>>) -> Self {
            self.options.label = Some(label.into());
            self
        }
    };
}
pub(super) use option_setters;
