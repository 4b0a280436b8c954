//! What a store is, can and promises.

use std::fmt;
use std::time::Duration;

/// A store's description: shown by `clinch stores`, asserted by the conformance suite.
///
/// ```
/// let clinch = clinch_core::Clinch::memory();
/// let info = clinch.info();
/// println!("{}: {}; {}", info.scheme, info.summary, info.guarantees.exclusion);
/// assert!(info.capabilities.tokens);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The URL scheme, for example `sqlite`.
    pub scheme: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it promises.
    pub guarantees: Guarantees,
    /// Its bounds.
    pub limits: Limits,
}

impl StoreInfo {
    /// A store that can do everything, with these guarantees and limits.
    pub const fn new(
        scheme: &'static str,
        summary: &'static str,
        guarantees: Guarantees,
        limits: Limits,
    ) -> Self {
        Self {
            scheme,
            summary,
            capabilities: Capabilities::ALL,
            guarantees,
            limits,
        }
    }

    /// The same store with these capabilities.
    #[must_use]
    pub const fn with_capabilities(self, capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            ..self
        }
    }
}

/// What a store may be unable to do. Core refuses a call that needs an absent one before any I/O.
///
/// ```
/// use clinch_core::store::{Capabilities, Capability};
/// let simple = Capabilities::ALL.without(Capability::Queue);
/// assert!(simple.has(Capability::Tokens) && !simple.has(Capability::Queue));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Read-write locks.
    pub shared: bool,
    /// Semaphores.
    pub semaphores: bool,
    /// A FIFO queue at the store, across processes (`fair`).
    pub queue: bool,
    /// Lock-delay after an unclean end.
    pub lock_delay: bool,
    /// Fencing tokens.
    pub tokens: bool,
    /// The new holder learns how the last hold ended.
    pub predecessor: bool,
    /// A leader publishes a value.
    pub values: bool,
    /// The names in use can be listed. One name can be looked at on every store.
    pub list: bool,
    /// Live events.
    pub events: bool,
    /// An operator can break a hold.
    pub evict: bool,
}

impl Capabilities {
    /// Everything.
    pub const ALL: Self = Self {
        shared: true,
        semaphores: true,
        queue: true,
        lock_delay: true,
        tokens: true,
        predecessor: true,
        values: true,
        list: true,
        events: true,
        evict: true,
    };

    /// All of these but one.
    #[must_use]
    pub const fn without(mut self, capability: Capability) -> Self {
        match capability {
            Capability::Shared => self.shared = false,
            Capability::Semaphores => self.semaphores = false,
            Capability::Queue => self.queue = false,
            Capability::LockDelay => self.lock_delay = false,
            Capability::Tokens => self.tokens = false,
            Capability::Predecessor => self.predecessor = false,
            Capability::Values => self.values = false,
            Capability::List => self.list = false,
            Capability::Events => self.events = false,
            Capability::Evict => self.evict = false,
        }
        self
    }

    /// Whether the store can do this.
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Shared => self.shared,
            Capability::Semaphores => self.semaphores,
            Capability::Queue => self.queue,
            Capability::LockDelay => self.lock_delay,
            Capability::Tokens => self.tokens,
            Capability::Predecessor => self.predecessor,
            Capability::Values => self.values,
            Capability::List => self.list,
            Capability::Events => self.events,
            Capability::Evict => self.evict,
        }
    }
}

/// The name of one capability.
///
/// ```
/// use clinch_core::store::{Capabilities, Capability};
/// assert!(Capability::EVERY.iter().all(|c| Capabilities::ALL.has(*c)));
/// assert_eq!(Capability::LockDelay.to_string(), "lock-delay");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Read-write locks.
    Shared,
    /// Semaphores.
    Semaphores,
    /// A FIFO queue at the store.
    Queue,
    /// Lock-delay.
    LockDelay,
    /// Fencing tokens.
    Tokens,
    /// The predecessor notice.
    Predecessor,
    /// A leader's published value.
    Values,
    /// Listing.
    List,
    /// Live events.
    Events,
    /// Eviction.
    Evict,
}

impl Capability {
    /// All of them.
    pub const EVERY: [Self; 10] = [
        Self::Shared,
        Self::Semaphores,
        Self::Queue,
        Self::LockDelay,
        Self::Tokens,
        Self::Predecessor,
        Self::Values,
        Self::List,
        Self::Events,
        Self::Evict,
    ];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "read-write locks",
            Self::Semaphores => "semaphores",
            Self::Queue => "fair queues",
            Self::LockDelay => "lock-delay",
            Self::Tokens => "fencing tokens",
            Self::Predecessor => "predecessor notice",
            Self::Values => "published values",
            Self::List => "listing",
            Self::Events => "events",
            Self::Evict => "eviction",
        })
    }
}

/// What a store promises. A test stands behind each sentence.
///
/// ```
/// use clinch_core::store::Guarantees;
/// const PROMISES: Guarantees = Guarantees::new("tasks and threads of one process")
///     .with_exclusion("always, while the process lives")
///     .with_token_order("across clients and loss of data")
///     .with_liveness("a dropped guard at once")
///     .with_clock("CLOCK_BOOTTIME of the process");
/// assert_eq!(clinch_core::Clinch::memory().info().guarantees.scope, PROMISES.scope);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// Which clients can share its locks.
    pub scope: &'static str,
    /// Under what conditions two holders exclude each other.
    pub exclusion: &'static str,
    /// Across what events tokens keep rising.
    pub token_order: &'static str,
    /// How soon a dead holder's lock is free.
    pub liveness: &'static str,
    /// The clock that leases are counted on.
    pub clock: &'static str,
}

impl Guarantees {
    /// Locks that these clients can share. The conformance suite requires the other sentences, too.
    pub const fn new(scope: &'static str) -> Self {
        Self {
            scope,
            exclusion: "",
            token_order: "",
            liveness: "",
            clock: "",
        }
    }

    /// Under what conditions two holders exclude each other.
    #[must_use]
    pub const fn with_exclusion(self, exclusion: &'static str) -> Self {
        Self { exclusion, ..self }
    }

    /// Across what events tokens keep rising.
    #[must_use]
    pub const fn with_token_order(self, token_order: &'static str) -> Self {
        Self {
            token_order,
            ..self
        }
    }

    /// How soon a dead holder's lock is free.
    #[must_use]
    pub const fn with_liveness(self, liveness: &'static str) -> Self {
        Self { liveness, ..self }
    }

    /// The clock that leases are counted on.
    #[must_use]
    pub const fn with_clock(self, clock: &'static str) -> Self {
        Self { clock, ..self }
    }
}

/// A store's bounds.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::ErrorKind;
/// let limits = clinch.info().limits;
/// assert!(clinch.lock("a").lease(limits.max_lease).acquire().await?.is_valid());
/// let error = clinch.lock("a").lease(limits.min_lease / 2).acquire().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid); // refused before any I/O
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The shortest lease.
    pub min_lease: Duration,
    /// The longest lease.
    pub max_lease: Duration,
    /// Leases are rounded up to a multiple of this.
    pub lease_step: Duration,
    /// The longest name in bytes.
    pub max_name: usize,
}

impl Limits {
    /// Leases between these two, in milliseconds; names as long as [`MAX_NAME`](crate::MAX_NAME).
    pub const fn new(min_lease: Duration, max_lease: Duration) -> Self {
        Self {
            min_lease,
            max_lease,
            lease_step: Duration::from_millis(1),
            max_name: crate::MAX_NAME,
        }
    }

    /// Rounds leases up to a multiple of `step`.
    #[must_use]
    pub const fn with_lease_step(self, step: Duration) -> Self {
        Self {
            lease_step: step,
            ..self
        }
    }
}

/// One finding of `clinch doctor`.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// let finding = clinch.doctor().await?.remove(0);
/// assert_eq!(finding.subject, "scope"); // locks in memory exclude no other process
/// println!("{}; {}", finding.message, finding.advice.unwrap());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was examined, in a few words.
    pub subject: String,
    /// What was found.
    pub message: String,
    /// What to do.
    pub advice: Option<String>,
}

impl Finding {
    /// A finding without advice.
    pub fn new(severity: Severity, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity,
            subject: subject.into(),
            message: message.into(),
            advice: None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn with_advice(self, advice: impl Into<String>) -> Self {
        Self {
            advice: Some(advice.into()),
            ..self
        }
    }
}

/// How bad a finding is.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// # let clinch = clinch_core::Clinch::memory();
/// use clinch_core::store::Severity;
/// let worst = clinch.doctor().await?.into_iter().map(|finding| finding.severity).max();
/// assert_eq!(worst, Some(Severity::Warning));
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Ok,
    /// A promise is weaker than it could be.
    Warning,
    /// A promise is broken.
    Broken,
}

impl Severity {
    /// The severity in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}
