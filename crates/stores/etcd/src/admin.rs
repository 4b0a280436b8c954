//! The operator's side of the store.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView, Store};
use clinch_core::{Name, Result};

use crate::EtcdStore;
use crate::doctor;

#[async_trait]
impl Admin for EtcdStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        self.client.views(prefix).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        self.client.view(name).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        self.client.events(prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        self.client.evict(name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        doctor::examine(&self.client, self.info().limits.min_lease).await
    }
}
