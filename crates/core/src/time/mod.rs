//! The only place where time is read.
//!
//! Deadlines are moments on `CLOCK_BOOTTIME`, which never steps and continues during suspend. Every part
//! of the engine reads the time from a [`Clock`], so tests can replace it.

mod boot;
mod duration;
mod manual;
mod timers;
mod wall;

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use boot::boot_nanos;
pub use duration::{format_duration, parse_duration};
pub use manual::ManualClock;
pub use timers::Sleep;
pub use wall::sequence_micros;

/// A moment on the boot clock.
///
/// ```
/// use clinch::Clock;
/// use std::time::Duration;
/// let clock = Clock::boot();
/// let later = clock.now() + Duration::from_secs(1);
/// assert!(later > clock.now());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(u64);

impl BootTime {
    /// The moment `nanos` nanoseconds after the machine's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the machine's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    ///
    /// ```
    /// use clinch::BootTime;
    /// let (a, b) = (BootTime::from_nanos(1_000), BootTime::from_nanos(5_000));
    /// assert_eq!(b.since(a).as_nanos(), 4_000);
    /// assert!(a.since(b).is_zero()); // never a panic
    /// ```
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

/// Clock and timers of the engine: the machine's boot clock, or one that a test controls.
///
/// ```
/// use clinch::Clock;
/// use std::time::Duration;
/// let (clock, hand) = Clock::manual();
/// let before = clock.now();
/// hand.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().since(before), Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    Boot,
    Drifting(Drift),
    Manual(Arc<ManualClock>),
}

/// A clock that is correct at `since` and then runs at `rate` millionths of real time.
#[derive(Clone, Copy)]
struct Drift {
    since: u64,
    rate: u64,
}

impl Drift {
    fn shows(self, nanos: u64) -> BootTime {
        let past = u128::from(nanos.saturating_sub(self.since)) * u128::from(self.rate) / 1_000_000;
        let past = u64::try_from(past).unwrap_or(u64::MAX);
        BootTime(self.since.saturating_add(past))
    }

    /// The real time at which it shows `deadline`, rounded up: a sleep must not end early.
    fn real(self, deadline: BootTime) -> BootTime {
        let past = u128::from(deadline.0.saturating_sub(self.since)) * 1_000_000;
        let past = u64::try_from(past.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX);
        BootTime(self.since.saturating_add(past))
    }
}

impl Clock {
    /// The machine's `CLOCK_BOOTTIME`.
    pub fn boot() -> Self {
        Self(Kind::Boot)
    }

    /// The boot clock, from now on too fast by `millionths` (too slow if negative). For tests of the
    /// guarantee that holds while clocks run within 1 % of each other.
    ///
    /// ```
    /// use clinch::Clock;
    /// let (slow, real) = (Clock::drifting(-5_000), Clock::boot());
    /// let (a, b) = (slow.now(), real.now());
    /// std::thread::sleep(std::time::Duration::from_millis(10));
    /// assert!(slow.now().since(a) <= real.now().since(b));
    /// ```
    pub fn drifting(millionths: i32) -> Self {
        Self(Kind::Drifting(Drift {
            since: boot_nanos(),
            rate: u64::try_from(1_000_000 + i64::from(millionths).max(-999_999)).unwrap_or(1),
        }))
    }

    /// A clock that stands still, and the handle that advances it.
    pub fn manual() -> (Self, Arc<ManualClock>) {
        let hand = Arc::new(ManualClock::new());
        (Self(Kind::Manual(hand.clone())), hand)
    }

    /// The current moment.
    #[inline]
    pub fn now(&self) -> BootTime {
        match &self.0 {
            Kind::Boot => BootTime(boot_nanos()),
            Kind::Drifting(drift) => drift.shows(boot_nanos()),
            Kind::Manual(hand) => hand.now(),
        }
    }

    /// Completes at `deadline`. Works on any executor.
    ///
    /// ```
    /// # clinch::blocking::block_on(async {
    /// use clinch::Clock;
    /// use std::time::Duration;
    /// let clock = Clock::boot();
    /// let deadline = clock.now() + Duration::from_millis(5);
    /// clock.sleep_until(deadline).await;
    /// assert!(clock.now() >= deadline);
    /// # Ok::<_, clinch::Error>(()) }).unwrap();
    /// ```
    pub fn sleep_until(&self, deadline: BootTime) -> Sleep {
        match &self.0 {
            Kind::Boot => Sleep::new(boot::timers(), deadline),
            Kind::Drifting(drift) => Sleep::new(boot::timers(), drift.real(deadline)),
            Kind::Manual(hand) => Sleep::new(hand.timers(), deadline),
        }
    }

    /// Completes after `span`. Works on any executor.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Boot => "Clock::boot",
            Kind::Drifting(_) => "Clock::drifting",
            Kind::Manual(_) => "Clock::manual",
        })
    }
}
