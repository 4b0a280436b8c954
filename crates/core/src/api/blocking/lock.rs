//! The blocking ways to claim.

use std::cell::OnceCell;
use std::time::Duration;

use super::{Guard, MultiGuard, block_on};
use crate::{Owner, Result};

thread_local! {
    static THREAD: OnceCell<Owner> = const { OnceCell::new() };
}

/// Passes the options on to the async twin, and waits for it.
macro_rules! blocking_claims {
    ($guard:ident) => {
        /// How long the hold lives without renewal (30 s unless said).
        #[must_use]
        pub fn lease(self, lease: Duration) -> Self {
            Self(self.0.lease(lease))
        }

        /// After an unclean end of this hold: the time during which nobody else is granted.
        #[must_use]
        pub fn lock_delay(self, delay: Duration) -> Self {
            Self(self.0.lock_delay(delay))
        }

        /// The longest time that one guard holds it.
        #[must_use]
        pub fn max_hold(self, span: Duration) -> Self {
            Self(self.0.max_hold(span))
        }

        /// Strict FIFO across processes.
        #[must_use]
        pub fn fair(self) -> Self {
            Self(self.0.fair())
        }

        /// A word for people, shown by `clinch list`.
        #[must_use]
        pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
            Self(self.0.label(label))
        }

        /// Claims as this owner, which may enter again what it holds.
        ///
        /// ```
        /// # fn main() -> clinch_core::Result<()> {
        /// # let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
        /// let me = clinch.owner(); // can be handed to another thread
        /// let outer = clinch.lock("a").as_owner(&me).acquire()?;
        /// let inner = std::thread::scope(|threads| {
        ///     threads.spawn(|| clinch.lock("a").as_owner(&me).acquire()).join().unwrap()
        /// })?;
        /// assert_eq!(outer.token(), inner.token());
        /// # Ok(()) }
        /// ```
        #[must_use]
        pub fn as_owner(self, owner: &Owner) -> Self {
            Self(self.0.as_owner(owner))
        }

        /// Claims as the calling thread, which may enter again what it holds.
        ///
        /// ```
        /// # fn main() -> clinch_core::Result<()> {
        /// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
        /// let lock = clinch.lock("a").as_thread();
        /// let outer = lock.acquire()?;
        /// let inner = lock.acquire()?;
        /// assert_eq!(outer.token(), inner.token());
        /// # Ok(()) }
        /// ```
        #[must_use]
        pub fn as_thread(self) -> Self {
            THREAD.with(|owner| self.as_owner(owner.get_or_init(Owner::new)))
        }

        /// Waits until it is held.
        pub fn acquire(&self) -> Result<$guard> {
            block_on(self.0.acquire()).map($guard)
        }

        /// Takes it if it is free now; `Ok(None)` says that it is definitely not held by this call.
        pub fn try_acquire(&self) -> Result<Option<$guard>> {
            Ok(block_on(self.0.try_acquire())?.map($guard))
        }

        /// Waits for so long; `Ok(None)` when it was not granted in time.
        pub fn acquire_within(&self, span: Duration) -> Result<Option<$guard>> {
            Ok(block_on(self.0.acquire_within(span))?.map($guard))
        }
    };
}

/// The blocking twin of [`Lock`](crate::Lock): the same options, fairness and guarantees.
///
/// A blocking call cannot be dropped half way; [`acquire_within`](Self::acquire_within) bounds it.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use std::time::Duration;
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let guard = clinch.lock("a").lease(Duration::from_secs(5)).acquire()?;
/// assert!(clinch.lock("a").acquire_within(Duration::from_millis(5))?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Lock(pub(super) crate::Lock);

impl Lock {
    blocking_claims!(Guard);
}

/// The blocking twin of [`MultiLock`](crate::MultiLock): the same options, fairness and guarantees.
///
/// A blocking call cannot be dropped half way; [`acquire_within`](Self::acquire_within) bounds it.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let both = clinch.all(["accounts/b", "accounts/a"]).acquire()?;
/// assert_eq!(both.guards()[0].name().as_str(), "accounts/a"); // sorted
/// assert!(clinch.lock("accounts/b").try_acquire()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock(pub(super) crate::MultiLock);

impl MultiLock {
    blocking_claims!(MultiGuard);
}

/// The blocking twin of [`RwLock`](crate::RwLock), with its fairness and guarantees; both sides are a
/// blocking [`Lock`].
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let config = clinch.rwlock("config");
/// let reader = config.read().acquire()?;
/// assert!(config.write().try_acquire()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RwLock(pub(super) crate::RwLock);

impl RwLock {
    /// The shared side.
    pub fn read(&self) -> Lock {
        Lock(self.0.read())
    }

    /// The exclusive side.
    pub fn write(&self) -> Lock {
        Lock(self.0.write())
    }
}

/// The blocking twin of [`Semaphore`](crate::Semaphore), with its fairness and guarantees; permits
/// are claimed with a blocking [`Lock`].
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let clinch = clinch_core::blocking::Clinch::from(clinch_core::Clinch::memory());
/// let workers = clinch.semaphore("workers", 2);
/// let both = workers.permits(2).acquire()?;
/// assert!(workers.permits(1).try_acquire()?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// So many permits at once.
    pub fn permits(&self, permits: u32) -> Lock {
        Lock(self.0.permits(permits))
    }
}
