//! What a lock on ZooKeeper costs at least, and the driver's own lock, for the benchmark.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::{Baton, Floor};
use zookeeper_client::{CreateMode, Error as Zk, LockOptions, LockPrefix};

use crate::core::Core;
use crate::error::sending;
use crate::paths::escape;
use crate::session::Session;

/// The lock of the recipe, when nobody else is there: the node is made and the folder listed in one
/// flight, then the node is deleted.
pub(crate) struct NodeFloor {
    session: Arc<Session>,
    root: String,
}

impl NodeFloor {
    pub(crate) async fn new(core: &Arc<Core>) -> Result<Self> {
        let session = core.sessions.base().await?;
        let root = format!("{}-floor", core.paths.root());
        Ok(Self { session, root })
    }

    async fn run(&self, key: u64) -> Result<(), Zk> {
        let folder = format!("{}/{key}", self.root);
        let node = format!("{folder}/_c_0-lock-");
        let session = &self.session;
        let options = session.options(CreateMode::EphemeralSequential);
        let sequence = loop {
            let client = session.client(2)?;
            let made = client.create(&node, b"", &options);
            let listed = client.get_children(&folder);
            let (made, listed) = session.within(async { tokio::join!(made, listed) }).await?;
            match made {
                Err(Zk::NoNode) => session.make_folder(&folder).await?,
                made => {
                    listed?;
                    break made?.1;
                }
            }
        };
        let client = session.client(1)?;
        let path = format!("{node}{sequence}");
        session.within(client.delete(&path, None)).await?
    }
}

#[async_trait]
impl Floor for NodeFloor {
    async fn pair(&mut self, key: u64) -> Result<()> {
        self.run(key).await.map_err(sending)
    }
}

/// The lock of the driver's own recipe, in Curator's layout.
pub(crate) struct DriverLock {
    session: Arc<Session>,
    /// Where its folders are, or the one that it is.
    folder: String,
    /// The node that it holds.
    held: Option<String>,
}

impl DriverLock {
    /// Locks by number.
    pub(crate) async fn many(core: &Arc<Core>) -> Result<Self> {
        Self::new(core, "classic").await
    }

    /// One lock, that processes pass on.
    pub(crate) async fn one(core: &Arc<Core>, name: &str) -> Result<Self> {
        Self::new(core, &format!("baton/{}", escape(name))).await
    }

    async fn new(core: &Arc<Core>, folder: &str) -> Result<Self> {
        Ok(Self {
            session: core.sessions.base().await?,
            folder: format!("{}-{folder}", core.paths.root()),
            held: None,
        })
    }

    async fn lock(&mut self, folder: &str) -> Result<(), Zk> {
        let client = self.session.client(2)?;
        let options = LockOptions::new(self.session.acls());
        let options = options.with_ancestor_options(self.session.options(CreateMode::Container))?;
        let prefix = LockPrefix::new_curator(folder, "lock-")?;
        let lock = client.lock(prefix, b"", options).await?;
        self.held = Some(lock.lock_path().to_owned());
        // Dropped, it would delete its node in the background; we want to know when it is gone.
        std::mem::forget(lock);
        Ok(())
    }

    async fn unlock(&mut self) -> Result<(), Zk> {
        let Some(path) = self.held.take() else {
            return Ok(());
        };
        let client = self.session.client(1)?;
        self.session.within(client.delete(&path, None)).await?
    }
}

#[async_trait]
impl Floor for DriverLock {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let folder = format!("{}/{key}", self.folder);
        self.lock(&folder).await.map_err(sending)?;
        self.unlock().await.map_err(sending)
    }
}

#[async_trait]
impl Baton for DriverLock {
    async fn take(&mut self) -> Result<()> {
        let folder = self.folder.clone();
        self.lock(&folder).await.map_err(sending)
    }

    async fn pass(&mut self) -> Result<()> {
        self.unlock().await.map_err(sending)
    }

    async fn remove(&mut self) -> Result<()> {
        // Folders go by themselves.
        self.unlock().await.map_err(sending)
    }
}
