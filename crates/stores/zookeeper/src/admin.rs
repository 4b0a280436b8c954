//! The operator's side of the store.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView};
use clinch_core::{Name, Result};

use crate::store::ZooKeeperStore;
use crate::{doctor, events, inspect, release};

#[async_trait]
impl Admin for ZooKeeperStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        inspect::list(&self.client, prefix).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        inspect::inspect(&self.client, name).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        events::listen(&self.client, prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        release::evict(&self.client, name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        doctor::examine(&self.client).await
    }
}
