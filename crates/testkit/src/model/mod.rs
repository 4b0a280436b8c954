//! Random steps give the same answers on a store as on the reference store.
//!
//! ```
//! # use std::{sync::Arc, time::Duration};
//! use clinch_core::{Result, memory::MemoryStore, store::{Admin, OpenContext}};
//! use clinch_testkit::model::{Real, Time, play};
//! struct Mine;
//! impl Real for Mine {
//!     async fn open(&self, context: OpenContext) -> Result<Arc<dyn Admin>> {
//!         let place = format!("memory:{}", context.namespace); // each sequence has its own
//!         Ok(Arc::new(MemoryStore::open(&place.parse()?, context)?))
//!     }
//!     fn time(&self) -> Time { Time::Shared }
//!     fn exact(&self) -> bool { true }
//! }
//! play(&Mine, 3);
//! ```

mod compare;
mod ops;
mod side;

pub use compare::play;
pub use side::Said;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext};

/// The store that is compared with the reference, and how it may differ; see the [module](self).
pub trait Real {
    /// Opens one of the clients of a sequence. Each sequence has a namespace of its own.
    fn open(&self, context: OpenContext) -> impl Future<Output = Result<Arc<dyn Admin>>>;

    /// How time passes for both.
    fn time(&self) -> Time;

    /// Lets time pass at a server, for [`Time::Stepped`].
    fn pass(&self, _span: Duration) {}

    /// Whether the store runs the state machine of the reference itself.
    ///
    /// Then answers are the same to the last field, after any number of claims, and also to
    /// renewals and releases of what was never granted. Other stores word a refusal as they see it,
    /// remember a number of ends of their own, and order sharers as they like.
    fn exact(&self) -> bool {
        false
    }

    /// Whether the waiters of a name ask again after each step that may have let one in: for a
    /// store where a claim that has not heard of its grant has nothing to leave behind.
    fn hears_at_once(&self) -> bool {
        false
    }

    /// Whether two answers to a step mean the same.
    fn agree(&self, real: &Said, model: &Said) -> bool {
        real == model
    }
}

/// How time passes for a store and the reference.
///
/// ```
/// use clinch_testkit::model::Time;
/// use std::time::Duration;
/// assert_eq!(Time::Shared.lease(3), Duration::from_secs(3));
/// assert_eq!(Time::Stepped.lease(3), Duration::from_millis(3500));
/// assert!(Time::Still.lease(3) > Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Both count on the same clock, which stands but when it is moved: leases end on the dot.
    Shared,
    /// The server's clock is stepped by [`Real::pass`], and runs on in between while that of the
    /// reference stands. So leases end at half seconds and time passes in whole ones, and a
    /// sequence that a busy machine plays too slowly is not judged further.
    Stepped,
    /// It does not pass: leases are long, and lock-delays outlive a sequence.
    Still,
}

impl Time {
    /// The lease for so many seconds.
    pub fn lease(self, seconds: u64) -> Duration {
        match self {
            Self::Shared => Duration::from_secs(seconds),
            Self::Stepped => Duration::from_millis(seconds * 1000 + 500),
            Self::Still => Duration::from_secs(600),
        }
    }

    /// The lease of a renewal.
    fn renewal(self) -> Duration {
        match self {
            Self::Shared | Self::Stepped => self.lease(20),
            Self::Still => self.lease(0) * 2,
        }
    }

    /// The lock-delay of so many steps.
    fn delay(self, steps: u64) -> Duration {
        let step = if self == Self::Still { 30 } else { 10 };
        Duration::from_secs(steps * step)
    }
}
