//! One session with the ensemble.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::Operations;
use clinch_core::{BootTime, Clock};
use clinch_kit::lock;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error as Zk, StateWatcher};

use crate::config::{Access, Config};
use crate::keys::Paths;

/// A session. Nodes of claims live as long as the session that created them.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` after [`end`](Self::end).
    driver: Mutex<Option<Arc<Client>>>,
    pub(crate) id: i64,
    /// How long the servers keep it without a sign of life.
    pub(crate) timeout: Duration,
    state: StateWatcher,
    /// Live claims in it.
    pub(crate) claims: AtomicUsize,
    last_used: Mutex<BootTime>,
    clock: Clock,
    request_timeout: Duration,
    operations: Operations,
    access: Access,
}

impl Session {
    pub(super) fn new(
        driver: Client,
        config: &Config,
        clock: Clock,
        operations: Operations,
    ) -> Self {
        Self {
            id: driver.session_id().0,
            timeout: driver.session_timeout(),
            state: driver.state_watcher(),
            driver: Mutex::new(Some(Arc::new(driver))),
            claims: AtomicUsize::new(0),
            last_used: Mutex::new(clock.now()),
            clock,
            request_timeout: config.timeout,
            operations,
            access: config.access,
        }
    }

    /// The driver, for this number of requests; they are counted.
    pub(crate) fn driver(&self, requests: u64) -> Result<Arc<Client>, Zk> {
        self.operations.add(requests);
        lock(&self.driver).clone().ok_or(Zk::ClientClosed)
    }

    /// Waits for a reply, at most for the request timeout.
    pub(crate) async fn with_timeout<T>(&self, reply: impl Future<Output = T>) -> Result<T, Zk> {
        tokio::select! {
            biased;
            reply = reply => Ok(reply),
            () = self.clock.sleep(self.request_timeout) => Err(Zk::Timeout),
        }
    }

    /// Whether it has ended, according to the driver.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.peek_state().is_terminated()
    }

    /// Completes when it has ended.
    pub(crate) async fn wait_ended(&self) {
        let mut state = self.state.clone();
        while !state.state().is_terminated() {
            state.changed().await;
        }
    }

    /// The options to create a node with.
    pub(crate) fn options(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(match self.access {
            Access::Open => Acls::anyone_all(),
            Access::CreatorAll => Acls::creator_all(),
        })
    }

    /// Creates a folder and the missing ones above it. The servers remove them when they are empty.
    pub(crate) async fn create_folder(&self, path: &str) -> Result<(), Zk> {
        let options = self.options(CreateMode::Container);
        let driver = self.driver(1)?;
        match self
            .with_timeout(driver.create(path, b"", &options))
            .await?
        {
            Err(Zk::NoNode) => {}
            Ok(_) | Err(Zk::NodeExists) => return Ok(()),
            Err(error) => return Err(error),
        }
        for path in Paths::above(path).chain([path]) {
            let driver = self.driver(1)?;
            match self
                .with_timeout(driver.create(path, b"", &options))
                .await?
            {
                Ok(_) | Err(Zk::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends it: the servers remove its nodes at once.
    pub(crate) fn end(&self) {
        let driver = lock(&self.driver).take();
        drop(driver);
    }

    pub(super) fn mark_used(&self) {
        *lock(&self.last_used) = self.clock.now();
    }

    /// Whether it has no claims and was not used for longer than `idle`.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        let unused = self.clock.now().since(*lock(&self.last_used)) > idle;
        unused && self.claims.load(Ordering::Relaxed) == 0
    }
}

/// The reply to a request that may not have been sent.
pub(crate) async fn optional<T>(request: Option<impl Future<Output = T>>) -> Option<T> {
    match request {
        Some(request) => Some(request.await),
        None => None,
    }
}
