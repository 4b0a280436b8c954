//! `SET NX PX` is right; a plain `DEL` is not. A holder that comes late deletes the lock of whoever
//! holds it by then.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        self.0.take_well().await
    }

    async fn give_back(&mut self, _taken: &Taken) -> Result<(), Oops> {
        self.0.run::<u32>("DEL", &[]).await.map(drop)
    }

    fn needs(&self) -> u64 {
        80
    }
}
