//! Operations for operators.

use async_trait::async_trait;
use clinch_core::store::{Admin, Capability, Events, Evicted, Finding, LockView};
use clinch_core::{Error, ErrorKind, Name, Result, keeper};

use super::holds;
use super::inspect::{self, What};
use super::store::QuorumStore;

#[async_trait]
impl Admin for QuorumStore {
    async fn list(&self, prefix: &str) -> Result<Vec<LockView>> {
        let what = What::Prefix(prefix.to_owned());
        inspect::views(self.quorum.nodes.clone(), what, &self.clock).await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockView>> {
        let what = What::One(name.clone());
        let mut views = inspect::views(self.quorum.nodes.clone(), what, &self.clock).await?;
        Ok(views.pop())
    }

    async fn events(&self, _prefix: &str) -> Result<Events> {
        let text = format!("this store has no {}", Capability::Events);
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    async fn evict(&self, name: &Name, seq: Option<u64>) -> Result<Evicted> {
        holds::evict(&self.quorum, name, seq).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let nodes = self.quorum.nodes.clone();
        keeper::run(async move { nodes.examine().await }).await
    }
}
