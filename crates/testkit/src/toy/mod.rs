//! A toy store, made by following "Adding a store" in `CONTRIBUTING.md`: locks in one file, shared by
//! the processes of one machine.
//!
//! It shows the least that a store needs. Each step locks the file, applies the step to the reference
//! model ([`NameState`](clinch_core::machine::NameState)) and replaces the file. It is correct, and slow.
//!
//! ```
//! # async fn demo() -> clinch_core::Result<()> {
//! use clinch_core::Clinch;
//! use clinch_testkit::toy::ToyStore;
//! # let folder = clinch_testkit::servers::Folder::new("toy")?;
//! let (context, path) = (Clinch::context("app")?, folder.path().join("locks"));
//! let store = ToyStore::open(path, context.clone())?;
//! let clinch = Clinch::builder(std::sync::Arc::new(store), context).build();
//! assert!(clinch.lock("a").acquire().await?.is_valid());
//! # Ok(()) }
//! # clinch_core::blocking::block_on(demo()).unwrap();
//! ```

mod table;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{
    Admin, Capabilities, Capability, Claim, ClaimReply, Events, Evicted, Finding, Freshness,
    Guarantees, Hold, Limits, LockView, OpenContext, ReleaseReply, RenewReply, Renewal, Severity,
    Store, StoreInfo, Suspicions, Wake, Wakes,
};
use clinch_core::{BootTime, Error, ErrorKind, Name, Result, keeper};

use table::{Step, Table, TableFile};

/// How often a waiter looks whether the file has changed.
const POLL: Duration = Duration::from_millis(10);

/// Locks in one file.
#[derive(Debug)]
pub struct ToyStore {
    info: StoreInfo,
    context: OpenContext,
    file: TableFile,
}

impl ToyStore {
    /// Opens the file, or makes it.
    pub fn open(path: PathBuf, context: OpenContext) -> Result<Self> {
        Ok(Self {
            info: Self::describe(),
            context,
            file: TableFile::open(path)?,
        })
    }

    /// What this store is, without opening it.
    pub fn describe() -> StoreInfo {
        let guarantees = Guarantees::new("processes of one machine")
            .with_exclusion("always, while the file stays in place")
            .with_token_order("while the file stays in place")
            .with_liveness("after its lease and lock-delay")
            .with_clock("CLOCK_BOOTTIME of the machine");
        let limits = Limits::new(Duration::from_millis(50), Duration::from_secs(7 * 86_400));
        StoreInfo::new("toy", "one file, for tests", guarantees, limits)
            .with_capabilities(Capabilities::ALL.without(Capability::Events))
    }

    /// Applies one atomic change to the table.
    fn change<T>(&self, change: impl FnOnce(&mut Table, BootTime) -> T) -> Result<T> {
        self.context.operations.add(1);
        let now = self.context.clock.now();
        self.file.change(|table| change(table, now))
    }

    /// Applies one atomic step to a name.
    fn step<T>(&self, name: &Name, step: impl FnOnce(Step<'_>) -> T) -> Result<T> {
        self.change(|table, now| table.step(&self.context.namespace, name, now, step))
    }

    fn end_session(&self) -> Result<()> {
        let client = self.context.identity.info().id;
        self.change(|table, now| table.end_client(client, now))
    }
}

#[async_trait]
impl Store for ToyStore {
    fn info(&self) -> &StoreInfo {
        &self.info
    }

    async fn claim(&self, claim: &Claim) -> Result<ClaimReply> {
        self.step(&claim.name, |s| {
            s.name.claim(claim, s.now, s.sequence, s.out)
        })?
    }

    /// Looks at the file while it changes, and sends a hint once the claim is granted.
    fn wakes(&self, claim: &Claim) -> Wakes {
        let (sender, wakes) = Wakes::channel();
        let (clock, file) = (self.context.clock.clone(), self.file.clone());
        let (namespace, claim) = (self.context.namespace.clone(), claim.clone());
        let polling = async move {
            let mut seen = None;
            while !sender.is_closed() {
                let version = file.version();
                if version != seen && file.is_granted(&namespace, &claim, clock.now()) {
                    sender.send(Wake::Hint);
                }
                seen = version;
                clock.sleep(POLL).await;
            }
        };
        if let Err(error) = keeper::spawn(polling) {
            tracing::warn!(%error, "the waiter polls slowly");
        }
        wakes
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        self.change(|table, now| {
            let one = |renewal: &Renewal| {
                table.step(&self.context.namespace, &renewal.hold.name, now, |s| {
                    s.name.renew(renewal, now, s.sequence, s.out)
                })
            };
            renewals.iter().map(one).collect()
        })
    }

    fn suspicions(&self) -> Suspicions {
        Suspicions::none()
    }

    async fn release(&self, hold: &Hold) -> Result<ReleaseReply> {
        self.step(&hold.name, |s| {
            s.name.release(hold, s.now, s.sequence, s.out)
        })
    }

    async fn withdraw(&self, claim: &Claim) -> Result<()> {
        self.step(&claim.name, |s| {
            s.name.withdraw(claim, s.now, s.sequence, s.out)
        })
        .map(drop)
    }

    async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        self.step(name, |s| s.name.check(seq, s.now))
    }

    async fn close(&self) -> Result<()> {
        self.end_session()
    }
}

#[async_trait]
impl Admin for ToyStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.change(|table, now| table.views(&self.context.namespace, prefix, now))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.step(name, |s| s.name.view(s.now))
    }

    async fn events(&self, _: &str) -> Result<Events> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the toy store has no events",
        ))
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.step(name, |s| s.name.evict(seq, s.now, s.sequence, s.out))
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let finding = Finding::new(
            Severity::Warning,
            "speed",
            "each step rewrites the whole file",
        );
        Ok(vec![finding.with_advice("use this store in tests only")])
    }
}

impl Drop for ToyStore {
    fn drop(&mut self) {
        if let Err(error) = self.end_session() {
            tracing::debug!(%error, "claims expire instead of being ended");
        }
    }
}
