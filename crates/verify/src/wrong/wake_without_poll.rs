//! A waiter subscribes, tries once more, and then only listens. A message that never comes is a wait
//! that never ends.

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1] .. ':free', '1') end return 1";

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        self.0.take_well().await
    }

    async fn give_back(&mut self, taken: &Taken) -> Result<(), Oops> {
        self.0
            .script::<u32>(RELEASE, &[&taken.owner])
            .await
            .map(drop)
    }

    async fn wait(&mut self) -> Result<(), Oops> {
        let mut messages = self.0.client.get_async_pubsub().await?;
        messages.subscribe(format!("{}:free", self.0.key)).await?;
        if self.0.run::<bool>("EXISTS", &[]).await? {
            let mut stream = std::pin::pin!(messages.into_on_message());
            std::future::poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx)).await;
        }
        Ok(())
    }

    fn needs(&self) -> u64 {
        20
    }
}
