//! A line of ephemeral sequential nodes, each of which watches the one before it: no herd. But the
//! watch comes after the list, and whoever sets it does not look at the answer: if the predecessor
//! went in between, the watch waits for a node that never comes back.

use zookeeper_client::{CreateMode, Error};

use super::zookeeper::{Session, options};
use super::{Oops, RawLock, Taken};

const FOLDER: &str = "/line";

pub(super) struct Lock {
    session: Session,
    /// Our place in the line, and the one before it.
    mine: Option<String>,
    before: Option<String>,
}

impl Lock {
    pub(super) fn new(url: &str) -> Self {
        Self {
            session: Session::new(url),
            mine: None,
            before: None,
        }
    }

    /// Makes our node, unless it is there, and gives its name.
    async fn stand_in_line(&mut self) -> Result<String, Oops> {
        if let Some(mine) = &self.mine {
            return Ok(mine.clone());
        }
        let client = self.session.client().await?;
        let folder = options(CreateMode::Persistent);
        match client.create(FOLDER, b"", &folder).await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(why) => return Err(why.into()),
        }
        let prefix = format!("{FOLDER}/n-");
        let ephemeral = options(CreateMode::EphemeralSequential);
        let (_, number) = client.create(&prefix, b"", &ephemeral).await?;
        Ok(self.mine.insert(format!("n-{number}")).clone())
    }
}

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let mine = self.stand_in_line().await?;
        let client = self.session.client().await?;
        let line = client.list_children(FOLDER).await?;
        self.before = line.into_iter().filter(|other| *other < mine).max();
        Ok(self.before.is_none().then_some(Taken {
            owner: mine,
            token: None,
            deadline: None,
        }))
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.mine = None;
        let client = self.session.client().await?;
        let path = format!("{FOLDER}/{}", taken.owner);
        Ok(client.delete(&path, None).await?)
    }

    async fn wait(&mut self) -> Result<(), Oops> {
        if let Some(before) = self.before.take() {
            let client = self.session.client().await?;
            let path = format!("{FOLDER}/{before}");
            let (_whether_it_is_there, watcher) = client.check_and_watch_stat(&path).await?;
            watcher.changed().await;
        }
        Ok(())
    }

    fn rests(&self) -> u64 {
        200 // so that the line is short, and the predecessor is about to go
    }

    fn needs(&self) -> u64 {
        20
    }
}
