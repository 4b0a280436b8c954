//! The client: the state that all operations of a store share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clinch_core::store::{OpenContext, SuspicionRegistry, WakeRegistry};
use clinch_core::{BootTime, Clock, Result};
use clinch_kit::lock;
use tokio::sync::Notify;
use zookeeper_client::{Error as Zk, Stat};

use crate::config::Config;
use crate::connection::{Session, Sessions};
use crate::error::request_error;
use crate::folders::FolderCache;
use crate::keys::Paths;
use crate::ledger::Ledger;
use crate::suspicions::ConnectionObserver;

/// One client of an ensemble.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) folders: FolderCache,
    pub(crate) wakes: WakeRegistry,
    pub(crate) suspicions: Arc<SuspicionRegistry>,
    pub(crate) paths: Paths,
    pub(crate) clock: Clock,
    /// The servers' wall clock in milliseconds, and when this client read it: for the age of nodes.
    server_time: Mutex<Option<(i64, BootTime)>>,
    /// The time of the next cleanup.
    pub(crate) next_cleanup: Mutex<BootTime>,
    /// Notified when that time is moved forward.
    pub(crate) earlier_cleanup: Notify,
}

impl Client {
    /// Connects, and creates the folder of the namespace if it does not exist.
    pub(crate) async fn connect(config: Arc<Config>, context: &OpenContext) -> Result<Arc<Self>> {
        let clock = &context.clock;
        let ledger = Arc::new(Ledger::new(clock.clone()));
        let suspicions = Arc::<SuspicionRegistry>::default();
        let observer = ConnectionObserver {
            ledger: ledger.clone(),
            suspicions: suspicions.clone(),
        };
        let client = Arc::new(Self {
            paths: Paths::new(&config.chroot, &context.namespace),
            sessions: Sessions::new(config, context, observer),
            ledger,
            folders: FolderCache::default(),
            wakes: WakeRegistry::default(),
            suspicions,
            clock: clock.clone(),
            server_time: Mutex::new(None),
            next_cleanup: Mutex::new(clock.now()),
            earlier_cleanup: Notify::new(),
        });
        let base = client.sessions.base().await?;
        client.write_root(&base).await.map_err(request_error)?;
        Ok(client)
    }

    /// Writes to the folder of the namespace: proves the permission, and returns the servers' time.
    async fn write_root(&self, base: &Session) -> Result<(), Zk> {
        let root = self.paths.root();
        base.create_folder(root).await?;
        let driver = base.driver(1)?;
        match base.with_timeout(driver.set_data(root, b"", None)).await? {
            Ok(stat) => {
                self.note_server_time(stat.mtime);
                Ok(())
            }
            // The servers have just removed it, because it was empty. A claim creates it again.
            Err(Zk::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes the servers' wall clock from a reply that has just arrived.
    pub(crate) fn note_server_time(&self, time: i64) {
        *lock(&self.server_time) = Some((time, self.clock.now()));
    }

    /// The age of a node; [`Duration::MAX`] if unknown.
    pub(crate) fn age(&self, stat: &Stat) -> Duration {
        let Some((time, at)) = *lock(&self.server_time) else {
            return Duration::MAX;
        };
        let passed = i64::try_from(self.clock.now().since(at).as_millis()).unwrap_or(i64::MAX);
        let age = time.saturating_add(passed).saturating_sub(stat.ctime);
        Duration::from_millis(u64::try_from(age).unwrap_or_default())
    }

    /// Ends all sessions and background tasks, and returns the sessions. The servers remove what is
    /// left in them.
    pub(crate) fn close(&self) -> Vec<Arc<Session>> {
        let ended = self.sessions.close();
        self.wakes.close();
        self.suspicions.close();
        ended
    }
}
