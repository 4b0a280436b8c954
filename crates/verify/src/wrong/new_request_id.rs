//! A try that failed is repeated, under a new identity. If only the reply was lost, the lock is held
//! by an identity that nobody knows any more.
//!
//! The lease is long, as it is where nobody renews.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

const LEASE_MS: &str = "60000";

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let owner = self.0.owner();
        let args = [owner.as_str(), "NX", "PX", LEASE_MS];
        let set: Option<String> = self.0.run("SET", &args).await?;
        Ok(set.map(|_| Taken {
            owner,
            token: None,
            deadline: None,
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
