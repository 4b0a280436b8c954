//! What operators need: list, inspect, events, evict, doctor.

use async_trait::async_trait;
use clinch_core::store::{Admin, Events, Evicted, Finding, LockView};
use clinch_core::{Name, Result, keeper};

use crate::steps::{Answer, Step};
use crate::store::unexpected;
use crate::{TableStore, doctor, inspect};

#[async_trait]
impl Admin for TableStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (dialect, prefix) = (self.client.dialect.clone(), prefix.to_owned());
        keeper::run(async move { inspect::list(&*dialect, &prefix).await }).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let (dialect, name) = (self.client.dialect.clone(), name.clone());
        keeper::run(async move {
            let row = inspect::read(&*dialect, &name).await?;
            Ok(row.state(&name)?.view(row.moment()))
        })
        .await
    }

    async fn events(&self, prefix: &str) -> Result<Events> {
        let (log, prefix) = (self.log.clone(), prefix.to_owned());
        let (sender, events) = Events::channel();
        keeper::run(async move { log.watch(prefix, sender).await }).await?;
        Ok(events)
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        match self.steps.submit(name.clone(), Step::Evict(seq)).await? {
            Answer::Evicted(evicted) => Ok(evicted),
            _ => Err(unexpected()),
        }
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let client = self.client.clone();
        keeper::run(async move { doctor::examine(&client).await }).await
    }
}
