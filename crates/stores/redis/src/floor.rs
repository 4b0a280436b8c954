//! What a lock on Redis costs at least.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use clinch_core::store::Floor;
use clinch_core::{Error, ErrorKind, Result, keeper};
use redis::aio::{ConnectionLike, MultiplexedConnection};

use crate::error::sending;
use crate::scripts::Script;
use crate::session::Session;

/// The lock of the textbook: taken if absent, with a time to live.
static TAKE: LazyLock<Script> = LazyLock::new(|| {
    Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])")
});
/// Given up by its owner only.
static GIVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end \
         return 0",
    )
});

/// Two calls of the smallest scripts that take and give up a key, over the same driver.
pub(crate) struct ScriptFloor {
    session: Arc<Session>,
    connection: Option<MultiplexedConnection>,
    prefix: String,
}

impl ScriptFloor {
    /// With keys of the form `clinch:floor:TAG:n`, which must be at this server.
    pub(crate) fn new(session: Arc<Session>, tag: &str) -> Self {
        Self {
            session,
            connection: None,
            prefix: format!("clinch:floor:{tag}:"),
        }
    }

    /// The connection, with both scripts at the server.
    async fn connect(&mut self) -> Result<MultiplexedConnection> {
        let session = self.session.clone();
        let connection = keeper::run(async move {
            let live = session.live().await?;
            for script in [&TAKE, &GIVE] {
                session.query(&live, &script.load()).await?;
            }
            Ok(live.connection())
        })
        .await?;
        Ok(self.connection.insert(connection).clone())
    }
}

#[async_trait]
impl Floor for ScriptFloor {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let mut connection = match &self.connection {
            Some(connection) => connection.clone(),
            None => self.connect().await?,
        };
        let key = format!("{}{key}", self.prefix);
        for script in [&TAKE, &GIVE] {
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(script.hash())
                .arg(1)
                .arg(&key)
                .arg("the one who holds it")
                .arg(30_000);
            let reply = connection.req_packed_command(&command).await;
            let reply = reply.and_then(redis::Value::extract_error);
            if reply.map_err(|error| sending(error, &key))? == redis::Value::Nil {
                return Err(Error::new(ErrorKind::Internal, "the key was taken"));
            }
        }
        Ok(())
    }
}
