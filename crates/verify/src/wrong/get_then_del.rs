//! `GET`, compare, `DEL`: the owner is checked, but the lease may end between the look and the
//! deletion.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        self.0.take_well().await
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        let value: Option<String> = self.0.run("GET", &[]).await?;
        if value.as_deref() == Some(&taken.owner) {
            self.0.run::<u32>("DEL", &[]).await?;
        }
        Ok(())
    }

    fn needs(&self) -> u64 {
        95
    }
}
