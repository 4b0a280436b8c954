//! The holder looks at the time, but counts its lease from the moment of the reply. The server counted
//! from the request.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let taken = self.0.take_well().await?;
        let deadline = Some(self.0.now() + self.0.lease);
        Ok(taken.map(|taken| Taken { deadline, ..taken }))
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.0.delete_if(&taken.owner).await
    }

    fn rests(&self) -> u64 {
        300 // so that those whose network is slow get it, too
    }

    fn needs(&self) -> u64 {
        150
    }
}
