//! How the suite reaches a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::memory::MemoryStore;
use clinch_core::store::{Admin, Capability, OpenContext, StoreInfo};
use clinch_core::{Clinch, Result, StoreUrl};

use super::Case;
use crate::stores::{self, Without};

/// A store that the suite is run on.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_core::Clinch;
/// use clinch_testkit::conformance::{Memory, Subject};
/// let place = Memory.place().await?;
/// let context = Clinch::context(&place.namespace())?;
/// let store = Memory.open(&place.url(), context).await?;
/// assert_eq!(store.info().scheme, Memory.info().scheme);
/// assert!(store.list("").await?.is_empty());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// The first part of the names of its tests.
    fn name(&self) -> String;

    /// What the store says of itself.
    fn info(&self) -> StoreInfo;

    /// An empty place for one case: a file, a namespace.
    async fn place(&self) -> Result<Box<dyn Place>>;

    /// Opens the store at the URL of a [`Place`]; also called in child processes.
    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>>;

    /// A lease that is meant to run out in a test: short, and yet practical on this store.
    fn lease(&self) -> Duration {
        Duration::from_millis(600)
    }

    /// Whether the engine sees at once that a process has died.
    fn sees_death(&self) -> bool {
        false
    }

    /// Whether this case is to be run at all; for stores that differ little from another one.
    fn wants(&self, _case: &Case) -> bool {
        true
    }

    /// Why processes cannot share its locks, if they cannot.
    fn alone(&self) -> Option<&'static str> {
        None
    }
}

/// Where one case keeps its locks. Dropping it cleans up.
///
/// ```
/// # async fn demo() -> clinch_core::Result<()> {
/// use clinch_testkit::conformance::{Memory, Subject};
/// let (a, b) = (Memory.place().await?, Memory.place().await?);
/// assert_ne!(a.url(), b.url()); // cases do not meet
/// assert!(a.lose_data().await? && a.leftovers().await?.is_empty());
/// # Ok(()) }
/// # clinch_core::blocking::block_on(demo()).unwrap();
/// ```
#[async_trait]
pub trait Place: Send + Sync {
    /// Where it is, for clients in this process and in others.
    fn url(&self) -> String;

    /// The namespace that its clients use.
    fn namespace(&self) -> String {
        "clinch".into()
    }

    /// Restarts the engine with its data kept, while no client is connected. Engines that are not
    /// processes of their own restart when their last client has gone.
    async fn restart(&self) -> Result<()> {
        Ok(())
    }

    /// Loses all data while no client is connected; `false` when it cannot be made to.
    async fn lose_data(&self) -> Result<bool> {
        Ok(false)
    }

    /// Loses all data under the clients' feet; `false` when it cannot be made to.
    async fn lose_data_live(&self) -> Result<bool> {
        Ok(false)
    }

    /// What is left at the engine that `list` does not show: rows, keys, subscriptions.
    async fn leftovers(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The memory store as a subject; also the model for how to write one.
///
/// ```
/// use clinch_testkit::conformance::{Memory, Subject};
/// assert_eq!(Memory.name(), "memory");
/// assert!(Memory.alone().is_some()); // cases with processes do not apply
/// ```
#[derive(Debug, Default)]
pub struct Memory;

struct MemoryPlace {
    url: String,
    /// Keeps the locks alive when no client is connected.
    anchor: MemoryStore,
}

#[async_trait]
impl Subject for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn info(&self) -> StoreInfo {
        MemoryStore::describe()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let url = format!("memory:conformance-{number}");
        let anchor = MemoryStore::open(&url.parse::<StoreUrl>()?, Clinch::context("clinch")?)?;
        Ok(Box::new(MemoryPlace { url, anchor }))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        Ok(Arc::new(MemoryStore::open(
            &url.parse::<StoreUrl>()?,
            context,
        )?))
    }

    fn alone(&self) -> Option<&'static str> {
        Some("locks in memory exclude nobody outside their process")
    }
}

#[async_trait]
impl Place for MemoryPlace {
    fn url(&self) -> String {
        self.url.clone()
    }

    async fn lose_data(&self) -> Result<bool> {
        self.anchor.lose_data();
        Ok(true)
    }

    async fn lose_data_live(&self) -> Result<bool> {
        self.lose_data().await
    }
}

/// A subject whose store lacks one capability: everything else must work, and this be refused.
///
/// ```
/// use clinch_core::store::Capability;
/// use clinch_testkit::conformance::{Lacking, Memory, Subject};
/// let subject = Lacking { full: Memory, capability: Capability::Queue };
/// assert_eq!(subject.name(), "memory_without_queue");
/// assert!(!subject.info().capabilities.queue);
/// ```
pub struct Lacking<S> {
    /// The full store.
    pub full: S,
    /// What it is to lack.
    pub capability: Capability,
}

impl<S: Subject> std::fmt::Debug for Lacking<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} without {}", self.full.name(), self.capability)
    }
}

#[async_trait]
impl<S: Subject> Subject for Lacking<S> {
    fn name(&self) -> String {
        format!("{}_without_{:?}", self.full.name(), self.capability).to_lowercase()
    }

    fn info(&self) -> StoreInfo {
        stores::less(self.full.info(), self.capability)
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        self.full.place().await
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        let full = self.full.open(url, context).await?;
        Ok(Arc::new(Without::new(full, self.capability)))
    }

    fn lease(&self) -> Duration {
        self.full.lease()
    }

    fn sees_death(&self) -> bool {
        self.full.sees_death()
    }

    /// The refusal, and the groups that show that the rest works; the full store runs all of it,
    /// and lists what does not apply.
    fn wants(&self, case: &Case) -> bool {
        let groups = ["refusal", "exclusion", "waiting", "multi", "election"];
        groups.contains(&case.group) && case.does_not_apply(self).is_none()
    }

    fn alone(&self) -> Option<&'static str> {
        self.full.alone()
    }
}
