//! What operators need: the names in use, events, eviction, the doctor.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView};
use clinch_core::{Name, Result};

use crate::SqliteStore;
use crate::batch::Route;
use crate::{doctor, events, inspect, release};

#[async_trait]
impl Admin for SqliteStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let prefix = prefix.to_owned();
        self.batcher
            .call(Route::Thread, move |tx| inspect::list(tx, &prefix))
            .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let name = name.clone();
        self.batcher
            .call(Route::Inline, move |tx| inspect::inspect(tx, &name))
            .await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        events::open(&self.batcher, self.me, prefix).await
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        let name = name.clone();
        self.batcher
            .call(Route::Inline, move |tx| release::evict(tx, &name, seq))
            .await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.batcher
            .call(Route::Thread, |tx| Ok(doctor::examine(tx)))
            .await
    }
}
