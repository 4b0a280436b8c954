//! A fencing token from a counter beside the lock: rising, until the server starts without it.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

const TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
    return redis.call('INCR', KEYS[1] .. ':counter') end return 0";

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let (owner, sent) = (self.0.owner(), self.0.now());
        let lease = self.0.millis().to_string();
        let token: u64 = match self.0.script(TAKE, &[&owner, &lease]).await {
            Ok(token) => token,
            Err(why) => {
                self.0.delete_if(&owner).await?;
                return Err(why);
            }
        };
        let deadline = Some(sent + self.0.lease * 9 / 10);
        Ok((token > 0).then_some(Taken {
            owner,
            token: Some(token),
            deadline,
        }))
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.0.delete_if(&taken.owner).await
    }

    fn needs(&self) -> u64 {
        10
    }
}
