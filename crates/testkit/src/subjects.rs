//! Subjects of the conformance suite for stores on servers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{Admin, OpenContext, StoreInfo};

use crate::clients::Opens;
use crate::conformance::{Case, Place, Subject};

type MakePlace = Box<dyn Fn(u64) -> Result<Box<dyn Place>> + Send + Sync>;

/// A store on servers that the tests start, as a subject of the [suite](crate::conformance).
///
/// ```no_run
/// use clinch_core::{Result, memory::MemoryStore};
/// use clinch_testkit::clients::Memory; // in a store's crate: its own
/// use clinch_testkit::conformance::{self, Place};
/// use clinch_testkit::servers::Etcd;
/// use clinch_testkit::subjects::{OnServers, restarts};
/// use std::sync::Arc;
///
/// struct Namespace(Arc<Etcd>, String);
///
/// impl Place for Namespace {
///     fn url(&self) -> String { self.0.url() }
///     fn namespace(&self) -> String { self.1.clone() }
/// }
///
/// fn main() -> std::process::ExitCode {
///     let info = MemoryStore::describe; // its own
///     let shared = OnServers::<Memory>::shared("etcd", info(), Etcd::start, |etcd, number| {
///         Ok(Namespace(etcd, format!("case-{number}-")))
///     });
///     let own = OnServers::<Memory>::own("etcd_own", info(), |_| {
///         Ok(Namespace(Arc::new(Etcd::start()?), "clinch".into()))
///     });
///     conformance::main(vec![
///         Box::new(shared.cases(|case| !restarts(case))),
///         Box::new(own.cases(restarts)),
///     ])
/// }
/// ```
pub struct OnServers<O> {
    name: &'static str,
    info: StoreInfo,
    lease: Duration,
    wants: fn(&Case) -> bool,
    make_place: MakePlace,
    /// The number of the next place.
    next: AtomicU64,
    opened_by: PhantomData<fn() -> O>,
}

impl<O> fmt::Debug for OnServers<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnServers").field(&self.name).finish()
    }
}

impl<O: Opens> OnServers<O> {
    /// A subject with servers for each case: `place` starts them. Its argument is a number that no
    /// other place of the subject has.
    pub fn own<P: Place + 'static>(
        name: &'static str,
        info: StoreInfo,
        place: impl Fn(u64) -> Result<P> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            info,
            lease: Duration::from_millis(600),
            wants: |_| true,
            make_place: Box::new(move |number| Ok(Box::new(place(number)?))),
            next: AtomicU64::new(0),
            opened_by: PhantomData,
        }
    }

    /// A subject whose cases share servers, which the first case starts; `place` gives each case a
    /// part of them.
    pub fn shared<S: Send + Sync + 'static, P: Place + 'static>(
        name: &'static str,
        info: StoreInfo,
        start: impl Fn() -> Result<S> + Send + Sync + 'static,
        place: impl Fn(Arc<S>, u64) -> Result<P> + Send + Sync + 'static,
    ) -> Self {
        let servers = OnceLock::<Result<Arc<S>>>::new();
        Self::own(name, info, move |number| {
            let servers = servers.get_or_init(|| start().map(Arc::new));
            place(servers.clone()?, number)
        })
    }

    /// A lease that expires within a case; 600 ms by default. See [`Subject::lease`].
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The cases to run; all by default.
    #[must_use]
    pub fn cases(mut self, wants: fn(&Case) -> bool) -> Self {
        self.wants = wants;
        self
    }
}

#[async_trait]
impl<O: Opens + 'static> Subject for OnServers<O> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn info(&self) -> StoreInfo {
        self.info.clone()
    }

    async fn place(&self) -> Result<Box<dyn Place>> {
        (self.make_place)(self.next.fetch_add(1, Ordering::Relaxed))
    }

    async fn open(&self, url: &str, context: OpenContext) -> Result<Arc<dyn Admin>> {
        O::open(&url.parse()?, context).await
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn wants(&self, case: &Case) -> bool {
        (self.wants)(case)
    }
}

/// Whether a case restarts its servers, so it cannot share them.
///
/// ```
/// use clinch_testkit::{conformance::catalogue, subjects::restarts};
/// assert_eq!(catalogue().filter(|case| restarts(case)).count(), 2);
/// ```
pub fn restarts(case: &Case) -> bool {
    matches!(case.name, "rise_over_restarts" | "it_outlives_its_client")
}
