//! A lease that is "long enough": nobody renews it, and its holder never looks at the time.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let taken = self.0.take_well().await?;
        Ok(taken.map(|taken| Taken {
            deadline: None,
            ..taken
        }))
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.0.delete_if(&taken.owner).await
    }

    fn needs(&self) -> u64 {
        250
    }
}
