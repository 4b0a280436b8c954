//! What the steps of a store share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clinch_core::store::{OpenContext, SuspicionRegistry, WakeRegistry};
use clinch_core::{BootTime, Clock, Result, keeper};
use zookeeper_client::Stat;

use crate::book::Book;
use crate::config::Config;
use crate::doubt::Observer;
use crate::error::sending;
use crate::paths::Paths;
use crate::session::{Session, Sessions};

/// One client's side of the store.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) book: Arc<Book>,
    pub(crate) wakes: WakeRegistry,
    pub(crate) suspicions: Arc<SuspicionRegistry>,
    pub(crate) paths: Paths,
    pub(crate) clock: Clock,
    /// The wall clock of the servers in milliseconds, at a moment of ours: for the age of nodes.
    servers_time: Mutex<Option<(i64, BootTime)>>,
    /// When the janitor looks next, and what wakes it sooner.
    pub(crate) armed: Mutex<BootTime>,
    pub(crate) sooner: tokio::sync::Notify,
}

impl Core {
    /// Connects, and sees that the folder of the namespace is there and can be written.
    pub(crate) async fn connect(config: Arc<Config>, context: &OpenContext) -> Result<Arc<Self>> {
        let (book, suspicions) = (Arc::<Book>::default(), Arc::<SuspicionRegistry>::default());
        let core = Arc::new(Self {
            paths: Paths::new(&config.chroot, &context.namespace),
            sessions: Sessions::new(
                config,
                context,
                Observer {
                    book: book.clone(),
                    suspicions: suspicions.clone(),
                },
            ),
            book,
            wakes: WakeRegistry::default(),
            suspicions,
            clock: context.clock.clone(),
            servers_time: Mutex::new(None),
            armed: Mutex::new(context.clock.now()),
            sooner: tokio::sync::Notify::new(),
        });
        let base = core.sessions.base().await?;
        core.touch_root(&base).await.map_err(sending)?;
        keeper::spawn(crate::janitor::run(core.clone()))?;
        Ok(core)
    }

    async fn touch_root(&self, base: &Session) -> Result<(), zookeeper_client::Error> {
        let root = self.paths.root();
        base.make_folder(root).await?;
        let client = base.client(1)?;
        match base.within(client.set_data(root, b"", None)).await? {
            Ok(stat) => {
                self.saw(stat.mtime);
                Ok(())
            }
            // It was empty for long, and went just now; it will be made when it is needed.
            Err(zookeeper_client::Error::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The servers have just said what time it is there.
    pub(crate) fn saw(&self, time: i64) {
        let now = self.clock.now();
        let mut known = self
            .servers_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Some((time, now));
    }

    /// How long ago a node was made.
    pub(crate) fn age(&self, stat: &Stat) -> Duration {
        let known = *self
            .servers_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((time, at)) = known else {
            return Duration::MAX;
        };
        let passed = i64::try_from(self.clock.now().since(at).as_millis()).unwrap_or(i64::MAX);
        let age = time.saturating_add(passed).saturating_sub(stat.ctime);
        Duration::from_millis(u64::try_from(age).unwrap_or_default())
    }

    /// Stops everything; the servers remove what is left.
    pub(crate) fn close(&self) -> Vec<Arc<Session>> {
        let ended = self.sessions.close();
        self.wakes.close();
        self.suspicions.close();
        self.sooner.notify_one();
        ended
    }
}
