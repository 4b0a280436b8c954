//! `BEGIN; SELECT … FOR UPDATE` locks a row for as long as the connection lasts, and the work that the
//! lock is for goes on elsewhere. When the connection ends (an administrator's `KILL`, a restart,
//! `wait_timeout`), so does the lock, and nobody tells the holder.

use clinch::{Error, ErrorKind, Result};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

use super::{Oops, RawLock, Taken};
use crate::history::now;

/// The row is there before anybody locks it.
pub(super) const TABLE: &str =
    "CREATE TABLE locks (name VARCHAR(20) PRIMARY KEY); INSERT INTO locks VALUES ('lock')";

pub(super) struct Lock {
    opts: Opts,
    /// While it is held, this is what holds it.
    connection: Option<Conn>,
}

impl Lock {
    pub(super) fn new(url: &str) -> Result<Self> {
        let opts = Opts::from_url(url)
            .map_err(|why| Error::new(ErrorKind::Invalid, format!("the database: {why}")))?;
        Ok(Self {
            opts,
            connection: None,
        })
    }
}

#[async_trait::async_trait]
impl RawLock for Lock {
    async fn take(&mut self) -> Result<Option<Taken>, Oops> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Conn::new(self.opts.clone()).await?,
        };
        connection.query_drop("BEGIN").await?;
        let select = "SELECT name FROM locks WHERE name = 'lock' FOR UPDATE";
        connection.query_drop(select).await?;
        self.connection = Some(connection);
        Ok(Some(Taken {
            owner: format!("{}-{:x}", std::process::id(), now()),
            token: None,
            deadline: None,
        }))
    }

    async fn give_back(&mut self, _taken: &Taken) -> Result<(), Oops> {
        if let Some(mut connection) = self.connection.take() {
            connection.query_drop("COMMIT").await?;
            self.connection = Some(connection);
        }
        Ok(())
    }
}
