//! `SETNX` with the time of its end as the value; whoever finds that time passed takes over with
//! `GETSET`, and wins if nobody was faster. Released by `DEL`.
//!
//! The value has no owner in it. A holder that comes late deletes its successor's lock, and clocks of
//! several machines are compared.

use std::time::{Duration, UNIX_EPOCH};

use super::{Oops, RawLock, Taken, db::Db};

pub(super) struct Lock(pub(super) Db);

impl Lock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wall clock is a part of what is wrong here"
    )]
    fn wall_millis() -> u64 {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(0)
    }
}

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let (sent, now) = (self.0.now(), Self::wall_millis());
        let end = (now + self.0.millis()).to_string();
        let deadline = Some(sent + self.0.lease * 9 / 10);
        let taken = Taken {
            owner: end.clone(),
            token: None,
            deadline,
        };
        if self.0.run("SETNX", &[&end]).await? {
            return Ok(Some(taken));
        }
        let old: Option<String> = self.0.run("GET", &[]).await?;
        let passed = old.as_ref().and_then(|old| old.parse::<u64>().ok());
        if passed.is_none_or(|old| old >= now) {
            return Ok(None);
        }
        let before: Option<String> = self.0.run("GETSET", &[&end]).await?;
        Ok((before == old).then_some(taken))
    }

    async fn give_back(&mut self, _taken: &Taken) -> Result<(), Oops> {
        self.0.run::<u32>("DEL", &[]).await.map(drop)
    }

    fn needs(&self) -> u64 {
        80
    }
}
