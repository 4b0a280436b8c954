//! What a lock on ZooKeeper costs at least.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::Result;
use clinch_core::store::Floor;
use zookeeper_client::{CreateMode, Error as Zk};

use crate::core::Core;
use crate::error::sending;
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
