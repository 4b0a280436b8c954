//! The blocking ways to claim.

use std::cell::OnceCell;
use std::time::Duration;

use super::{Guard, MultiGuard, block_on};
use crate::{Owner, Result};

thread_local! {
    static THREAD: OnceCell<Owner> = const { OnceCell::new() };
}

/// Passes the options to the async twin.
macro_rules! blocking_options {
    () => {
        /// How long the hold lives without renewal; [`DEFAULT_LEASE`](crate::DEFAULT_LEASE) by default.
        #[must_use]
        pub fn lease(self, lease: std::time::Duration) -> Self {
            Self(self.0.lease(lease))
        }

        /// How long no other client is granted the name after an unclean end of this hold.
        #[must_use]
        pub fn lock_delay(self, delay: std::time::Duration) -> Self {
            Self(self.0.lock_delay(delay))
        }

        /// The longest time that one guard holds it.
        #[must_use]
        pub fn max_hold(self, span: std::time::Duration) -> Self {
            Self(self.0.max_hold(span))
        }

        /// Strict FIFO across processes.
        #[must_use]
        pub fn fair(self) -> Self {
            Self(self.0.fair())
        }

        /// A description for people, shown by `clinch list`.
        #[must_use]
        pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
            Self(self.0.label(label))
        }
    };
}
pub(super) use blocking_options;

/// The owner, and the three ways to acquire.
macro_rules! blocking_claims {
    ($guard:ident) => {
        /// Claims as this owner, which may acquire again what it holds.
        ///
        /// ```
        /// # let clinch = clinch::blocking::Clinch::memory();
        /// let me = clinch.owner(); // can be handed to another thread
        /// let outer = clinch.lock("a").as_owner(&me).acquire()?;
        /// let inner = std::thread::scope(|threads| {
        ///     threads.spawn(|| clinch.lock("a").as_owner(&me).acquire()).join().unwrap()
        /// })?;
        /// assert_eq!(outer.token(), inner.token());
        /// # Ok::<_, clinch::Error>(())
        /// ```
        #[must_use]
        pub fn as_owner(self, owner: &Owner) -> Self {
            Self(self.0.as_owner(owner))
        }

        /// Claims as the calling thread, which may acquire again what it holds.
        ///
        /// ```
        /// # let clinch = clinch::blocking::Clinch::memory();
        /// let lock = clinch.lock("a").as_thread();
        /// let outer = lock.acquire()?;
        /// let inner = lock.acquire()?;
        /// assert_eq!(outer.token(), inner.token());
        /// # Ok::<_, clinch::Error>(())
        /// ```
        #[must_use]
        pub fn as_thread(self) -> Self {
            THREAD.with(|owner| self.as_owner(owner.get_or_init(Owner::new)))
        }

        /// Waits until it is held.
        pub fn acquire(&self) -> Result<$guard> {
            block_on(self.0.acquire()).map($guard)
        }

        /// Acquires it if it is free now; `Ok(None)` means that this call definitely does not hold it.
        pub fn try_acquire(&self) -> Result<Option<$guard>> {
            Ok(block_on(self.0.try_acquire())?.map($guard))
        }

        /// Waits at most `timeout`; `Ok(None)` if not granted by then.
        pub fn acquire_within(&self, timeout: Duration) -> Result<Option<$guard>> {
            Ok(block_on(self.0.acquire_within(timeout))?.map($guard))
        }
    };
}

/// The blocking twin of [`Lock`](crate::Lock): the same options, fairness and guarantees.
///
/// A blocking call cannot be cancelled; [`acquire_within`](Self::acquire_within) bounds it.
///
/// ```
/// use std::time::Duration;
/// let clinch = clinch::blocking::Clinch::memory();
/// let guard = clinch.lock("a").lease(Duration::from_secs(5)).acquire()?;
/// assert!(clinch.lock("a").acquire_within(Duration::from_millis(5))?.is_none());
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lock(pub(super) crate::Lock);

impl Lock {
    blocking_options!();
    blocking_claims!(Guard);
}

/// The blocking twin of [`MultiLock`](crate::MultiLock): the same options, fairness and guarantees.
///
/// A blocking call cannot be cancelled; [`acquire_within`](Self::acquire_within) bounds it.
///
/// ```
/// # let clinch = clinch::blocking::Clinch::memory();
/// let both = clinch.all(["accounts/b", "accounts/a"]).acquire()?;
/// assert_eq!(both.guards()[0].name().as_str(), "accounts/a"); // sorted
/// assert!(clinch.lock("accounts/b").try_acquire()?.is_none());
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock(pub(super) crate::MultiLock);

impl MultiLock {
    blocking_options!();
    blocking_claims!(MultiGuard);
}

/// The blocking twin of [`RwLock`](crate::RwLock), with its fairness and guarantees; both sides are a
/// blocking [`Lock`].
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let config = clinch.rwlock("config");
/// let reader = config.read().acquire()?;
/// assert!(config.write().try_acquire()?.is_none());
/// # Ok::<_, clinch::Error>(())
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

/// The blocking twin of [`Semaphore`](crate::Semaphore), with its fairness and guarantees.
///
/// ```
/// let clinch = clinch::blocking::Clinch::memory();
/// let workers = clinch.semaphore("workers", 2);
/// let both = workers.permits(2).acquire()?;
/// assert!(workers.try_acquire()?.is_none());
/// # Ok::<_, clinch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

impl Semaphore {
    /// Several permits at once.
    pub fn permits(&self, permits: u32) -> Lock {
        Lock(self.0.permits(permits))
    }

    /// Waits for one permit.
    pub fn acquire(&self) -> Result<Guard> {
        self.permits(1).acquire()
    }

    /// Acquires one permit if one is free now.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        self.permits(1).try_acquire()
    }

    /// Waits at most `timeout` for one permit; `Ok(None)` if not granted by then.
    pub fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>> {
        self.permits(1).acquire_within(timeout)
    }
}
