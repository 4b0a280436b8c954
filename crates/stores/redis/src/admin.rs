//! Operations for operators.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView};
use clinch_core::{Name, Result, keeper};

use crate::store::RedisStore;
use crate::{doctor, events, inspect, release};

#[async_trait]
impl Admin for RedisStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (servers, keys, prefix) = (self.servers.clone(), self.keys.clone(), prefix.to_owned());
        keeper::run(async move { inspect::list(&servers, &keys, &prefix).await }).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let (servers, keys, name) = (self.servers.clone(), self.keys.clone(), name.clone());
        keeper::run(async move { inspect::one(&servers, &keys, &name).await }).await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        events::watch(self, prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        release::evict(self, name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let (servers, config) = (self.servers.clone(), self.config.clone());
        let keys = self.keys.clone();
        keeper::run(async move { doctor::examine(&servers, &config, Some(&keys)).await }).await
    }
}
