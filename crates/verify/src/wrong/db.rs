//! One key of Redis, and the commands that tutorials use.

use std::time::Duration;

use clinch::{BootTime, Clock, Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

use super::{Oops, Taken};
use crate::history::{Scan, now};

/// Deletes the key if it is the caller's, in one step.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A connection that is made again after an error.
pub(super) struct Db {
    pub(super) client: Client,
    connection: Option<MultiplexedConnection>,
    pub(super) key: String,
    pub(super) lease: Duration,
    clock: Clock,
}

impl Db {
    pub(super) fn new(url: &str, key: String, lease: Duration) -> Result<Self> {
        let client = Client::open(url).map_err(|why| failed(&why))?;
        Ok(Self {
            client,
            connection: None,
            key,
            lease,
            clock: Clock::boot(),
        })
    }

    pub(super) fn now(&self) -> BootTime {
        self.clock.now()
    }

    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.lease.as_millis()).unwrap_or(1)
    }

    /// A name for whoever takes it.
    pub(super) fn owner(&self) -> String {
        format!("{}-{:x}", std::process::id(), now())
    }

    /// Sends a command with the key after its name.
    pub(super) async fn run<T: FromRedisValue>(
        &mut self,
        name: &str,
        args: &[&str],
    ) -> Result<T, Oops> {
        let mut command = redis::cmd(name);
        command.arg(&self.key);
        args.iter().for_each(|arg| {
            command.arg(arg);
        });
        self.send(&command).await
    }

    /// Runs a script with the key.
    pub(super) async fn script<T: FromRedisValue>(
        &mut self,
        text: &str,
        args: &[&str],
    ) -> Result<T, Oops> {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(1).arg(&self.key);
        args.iter().for_each(|arg| {
            command.arg(arg);
        });
        self.send(&command).await
    }

    async fn send<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, Oops> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new()
                    .set_response_timeout(Some(Duration::from_secs(1)))
                    .set_connection_timeout(Some(Duration::from_secs(1)));
                self.client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?
            }
        };
        let reply = command.query_async(&mut connection).await?;
        self.connection = Some(connection);
        Ok(reply)
    }

    /// `SET key owner NX PX lease`, and the moment before it was sent.
    pub(super) async fn set_nx_px(&mut self, owner: &str) -> Result<Option<BootTime>, Oops> {
        let sent = self.now();
        let lease = self.millis().to_string();
        let set: Option<String> = self.run("SET", &[owner, "NX", "PX", &lease]).await?;
        Ok(set.map(|_| sent))
    }

    /// The right way to take it: a failed try leaves nothing behind, and the time counts from
    /// before the send.
    pub(super) async fn take_well(&mut self) -> Result<Option<Taken>, Oops> {
        let owner = self.owner();
        let sent = match self.set_nx_px(&owner).await {
            Ok(sent) => sent,
            Err(_) => {
                self.delete_if(&owner).await?;
                None
            }
        };
        let margin = self.lease / 10;
        Ok(sent.map(|sent| Taken {
            deadline: Some(sent + self.lease - margin),
            owner,
            token: None,
        }))
    }

    /// The right way to give it back: only if it is one's own, and until that is certain.
    pub(super) async fn delete_if(&mut self, owner: &str) -> Result<(), Oops> {
        let give_up = self.now() + self.lease * 2;
        loop {
            match self.script::<u32>(COMPARE_AND_DELETE, &[owner]).await {
                Ok(_) => return Ok(()),
                Err(why) if self.now() > give_up => return Err(why),
                Err(_) => self.clock.sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// The keys that are left.
pub(super) async fn leftovers(prefix: &str, url: &str) -> Result<Vec<Scan>> {
    let mut db = Db::new(url, format!("{prefix}*"), Duration::ZERO)?;
    let failed = |why: Oops| Error::new(ErrorKind::Unreachable, format!("the scan: {why}"));
    let keys: Vec<String> = db.run("KEYS", &[]).await.map_err(failed)?;
    let mut found = Vec::new();
    for key in keys.into_iter().filter(|key| !key.ends_with("counter")) {
        db.key.clone_from(&key);
        let value: Option<String> = db.run("GET", &[]).await.map_err(failed)?;
        let left: i64 = db.run("PTTL", &[]).await.map_err(failed)?;
        let left = match left {
            -1 => "for ever".to_owned(),
            left => format!("for {left} ms more"),
        };
        let value = value.unwrap_or_default();
        found.push(Scan {
            at: now(),
            lock: key,
            found: format!("held by {value}, {left}, though every client has gone"),
        });
    }
    Ok(found)
}

fn failed(why: &redis::RedisError) -> Error {
    Error::new(ErrorKind::Unreachable, format!("redis: {why}"))
}
