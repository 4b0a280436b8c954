//! `SETNX`, then `EXPIRE`. Whoever stops between the two locks for ever.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let (owner, sent) = (self.0.owner(), self.0.now());
        if !self.0.run::<bool>("SETNX", &[&owner]).await? {
            return Ok(None);
        }
        let lease = self.0.millis().to_string();
        self.0.run::<bool>("PEXPIRE", &[&lease]).await?;
        let deadline = Some(sent + self.0.lease * 9 / 10);
        Ok(Some(Taken {
            owner,
            token: None,
            deadline,
        }))
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.0.delete_if(&taken.owner).await
    }

    fn rests(&self) -> u64 {
        30 // so that most tries succeed, and a reply that is lost is one that matters
    }

    fn needs(&self) -> u64 {
        2
    }
}
