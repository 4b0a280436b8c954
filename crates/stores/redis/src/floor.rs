//! What a lock and a hand-over on Redis cost at least.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use clinch_core::store::{Baton, Floor};
use clinch_core::{ClientId, Error, ErrorKind, Result, keeper};
use redis::aio::{ConnectionLike, MultiplexedConnection};

use crate::connection::Session;
use crate::error::sending;
use crate::scripts::Script;

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
    /// What the keys of this client begin with; on a cluster they are all in one slot.
    pub(crate) fn prefix(me: ClientId) -> String {
        format!("clinch:floor:{{{me}}}:")
    }

    /// With keys that begin so, at the server that has them.
    pub(crate) fn new(session: Arc<Session>, prefix: String) -> Self {
        Self {
            session,
            connection: None,
            prefix,
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

/// A token in a list: the one who waits longest gets it.
pub(crate) struct ListBaton {
    session: Arc<Session>,
    /// Of its own, because waiting for the token blocks it.
    connection: MultiplexedConnection,
    key: String,
}

impl ListBaton {
    /// The key of the list.
    pub(crate) fn key(name: &str) -> String {
        format!("clinch:baton:{name}")
    }

    /// With this key, at the server that has it.
    pub(crate) async fn connect(session: Arc<Session>, key: String) -> Result<Self> {
        let opening = session.clone();
        let connection = keeper::run(async move { opening.another().await }).await?;
        Ok(Self {
            session,
            connection,
            key,
        })
    }

    async fn run(&mut self, command: &redis::Cmd) -> Result<()> {
        let reply = self.connection.req_packed_command(command).await;
        let reply = reply.and_then(redis::Value::extract_error);
        reply.map(drop).map_err(|error| sending(error, &self.key))
    }
}

#[async_trait]
impl Baton for ListBaton {
    async fn take(&mut self) -> Result<()> {
        let command = redis::cmd("BLPOP").arg(&self.key).arg(30).take();
        self.run(&command).await
    }

    async fn pass(&mut self) -> Result<()> {
        let command = redis::cmd("LPUSH").arg(&self.key).arg("x").take();
        self.run(&command).await
    }

    async fn remove(&mut self) -> Result<()> {
        let (session, key) = (self.session.clone(), self.key.clone());
        keeper::run(async move {
            let live = session.live().await?;
            let command = redis::cmd("DEL").arg(key).take();
            session.query(&live, &command).await?;
            Ok(())
        })
        .await
    }
}
