//! What clients do.

use std::str::FromStr;

use clinch::store::Capabilities;
use clinch::{Error, Result};

/// A kind of use of locks, with names of its own.
///
/// ```
/// use clinch_verify::Workload;
/// assert_eq!("fair".parse::<Workload>()?, Workload::Fair);
/// assert!(Workload::ALL.len() >= 12);
/// # Ok::<(), clinch::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// One lock that everybody wants.
    Hot,
    /// A thousand locks, some wanted much more than others.
    Many,
    /// An owner that holds a lock enters it again, up to three deep.
    Reentrant,
    /// A queue at the store, with waits that are given up.
    Fair,
    /// Readers and writers.
    ReadWrite,
    /// A semaphore of three.
    Semaphore,
    /// Three of ten names at once.
    Multi,
    /// Candidates and observers.
    Election,
    /// Read, change, write on a resource that checks tokens.
    Fenced,
    /// The same on a resource that does not, with lost updates counted.
    Unfenced,
    /// Holds of many leases.
    Long,
    /// Tries, and futures that are dropped half-way.
    Storm,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Hot,
        Self::Many,
        Self::Reentrant,
        Self::Fair,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Multi,
        Self::Election,
        Self::Fenced,
        Self::Unfenced,
        Self::Long,
        Self::Storm,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Many => "many",
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::Multi => "multi",
            Self::Election => "election",
            Self::Fenced => "fenced",
            Self::Unfenced => "unfenced",
            Self::Long => "long",
            Self::Storm => "storm",
        }
    }

    /// Whether a store can do it.
    pub(crate) fn fits(self, can: &Capabilities) -> bool {
        match self {
            Self::Fair => can.queue,
            Self::ReadWrite => can.shared,
            Self::Semaphore => can.semaphores,
            Self::Election => can.values && can.events,
            Self::Fenced => can.tokens,
            _ => true,
        }
    }

    /// How many tasks of each process do it.
    pub(crate) fn tasks(self) -> u32 {
        match self {
            Self::Many => 6,
            Self::ReadWrite => 3,
            Self::Hot | Self::Fair | Self::Semaphore | Self::Election | Self::Storm => 2,
            _ => 1,
        }
    }
}

impl FromStr for Workload {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL
            .into_iter()
            .find(|workload| workload.as_str() == text);
        known.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|workload| workload.as_str()).collect();
            Error::invalid(format!("no workload is called {text:?}"))
                .with_advice(format!("there are {}", names.join(", ")))
        })
    }
}
