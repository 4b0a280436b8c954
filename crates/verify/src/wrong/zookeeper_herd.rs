//! The lock is one ephemeral node. Everybody who waits watches it, so each release wakes all: all but
//! one ask in vain, and watch again. Nothing is wrong with one holder at a time; the servers are
//! asked twice by each waiter for each grant.

use zookeeper_client::{CreateMode, Error};

use super::zookeeper::{Session, options};
use super::{Oops, RawLock, Taken};
use crate::history::now;

const NODE: &str = "/lock";

pub(super) struct Lock(Session);

impl Lock {
    pub(super) fn new(url: &str) -> Self {
        Self(Session::new(url))
    }
}

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let client = self.0.client().await?;
        let ephemeral = options(CreateMode::Ephemeral);
        match client.create(NODE, b"", &ephemeral).await {
            Ok(_) => Ok(Some(Taken {
                owner: format!("{}-{:x}", std::process::id(), now()),
                token: None,
                deadline: None,
            })),
            Err(Error::NodeExists) => Ok(None),
            Err(why) => Err(why.into()),
        }
    }

    async fn give_back(&mut self, _taken: &Taken) -> Result<(), Oops> {
        let client = self.0.client().await?;
        Ok(client.delete(NODE, None).await?)
    }

    async fn wait(&mut self) -> Result<(), Oops> {
        let client = self.0.client().await?;
        let (present, watcher) = client.check_and_watch_stat(NODE).await?;
        if present.is_some() {
            watcher.changed().await;
        }
        Ok(())
    }

    fn needs(&self) -> u64 {
        0 // the lock changes hands as often as it can
    }
}
