//! ZooKeeper: an ephemeral node that is created and deleted; the driver's own lock recipe, also as the token.

use std::sync::Arc;

use async_trait::async_trait;
use clinch::{Result, StoreUrl};
use clinch_zookeeper::raw;
use zookeeper_client::{CreateMode, CreateOptions, Error, LockOptions, LockPrefix};

use crate::baseline::{Baseline, Engine, TokenPassing};

pub(super) struct ZooKeeper {
    session: Arc<raw::Session>,
    id: String,
    /// The node above all nodes of baselines. It is a container: the servers delete it when it is empty.
    root: String,
}

impl ZooKeeper {
    pub(super) async fn open(url: &StoreUrl, id: &str) -> Result<Self> {
        let session = Arc::new(raw::connect(url).await?);
        let root = format!("{}/clinch-bench", session.chroot);
        let container = CreateMode::Container.with_acls(session.acls);
        let made = session.client.mkdir(&root, &container).await;
        made.map_err(raw::error)?;
        Ok(Self {
            session,
            id: id.to_owned(),
            root,
        })
    }

    fn lock(&self, folder: String) -> DriverLock {
        DriverLock {
            session: self.session.clone(),
            folder,
            held: None,
        }
    }
}

#[async_trait]
impl Engine for ZooKeeper {
    async fn floor(&self) -> Result<Box<dyn Baseline>> {
        Ok(Box::new(Nodes {
            options: CreateMode::Ephemeral.with_acls(self.session.acls),
            container: CreateMode::Container.with_acls(self.session.acls),
            session: self.session.clone(),
            root: self.root.clone(),
            prefix: format!("{}/floor-{}-", self.root, self.id),
        }))
    }

    async fn naive_lock(&self) -> Result<Option<Box<dyn Baseline>>> {
        let folder = format!("{}/classic-{}", self.root, self.id);
        Ok(Some(Box::new(self.lock(folder))))
    }

    async fn token(&self, name: &str) -> Result<Option<Box<dyn TokenPassing>>> {
        let folder = format!("{}/baton-{}", self.root, name.replace('/', "-"));
        Ok(Some(Box::new(self.lock(folder))))
    }
}

struct Nodes {
    session: Arc<raw::Session>,
    options: CreateOptions<'static>,
    container: CreateOptions<'static>,
    root: String,
    /// Prefix of the nodes.
    prefix: String,
}

impl Nodes {
    async fn run(&self, node: &str) -> Result<(), Error> {
        let client = &self.session.client;
        // A container that was empty for a while is gone.
        while let Err(error) = client.create(node, b"", &self.options).await {
            match error {
                Error::NoNode => client.mkdir(&self.root, &self.container).await?,
                error => return Err(error),
            }
        }
        client.delete(node, None).await
    }
}

#[async_trait]
impl Baseline for Nodes {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let node = format!("{}{key}", self.prefix);
        self.run(&node).await.map_err(raw::error)
    }
}

/// The lock of the driver, in Curator's layout.
struct DriverLock {
    session: Arc<raw::Session>,
    /// The node of the lock; as a naive lock, the node above the locks of all keys.
    folder: String,
    /// The node that it holds.
    held: Option<String>,
}

impl DriverLock {
    async fn lock(&mut self, folder: &str) -> Result<(), Error> {
        let acls = self.session.acls;
        let options =
            LockOptions::new(acls).with_ancestor_options(CreateMode::Container.with_acls(acls))?;
        let prefix = LockPrefix::new_curator(folder, "lock-")?;
        let lock = self.session.client.lock(prefix, b"", options).await?;
        self.held = Some(lock.lock_path().to_owned());
        // Dropping it would delete the node in the background. The deletion is measured, so `unlock` waits for it.
        std::mem::forget(lock);
        Ok(())
    }

    async fn unlock(&mut self) -> Result<(), Error> {
        match self.held.take() {
            Some(node) => self.session.client.delete(&node, None).await,
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Baseline for DriverLock {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let folder = format!("{}/{key}", self.folder);
        self.lock(&folder).await.map_err(raw::error)?;
        self.unlock().await.map_err(raw::error)
    }
}

#[async_trait]
impl TokenPassing for DriverLock {
    async fn take(&mut self) -> Result<()> {
        let folder = self.folder.clone();
        self.lock(&folder).await.map_err(raw::error)
    }

    async fn pass(&mut self) -> Result<()> {
        self.unlock().await.map_err(raw::error)
    }

    async fn remove(&mut self) -> Result<()> {
        self.pass().await
    }
}
