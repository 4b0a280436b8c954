//! The connection that holds the lock for which the parked connection waits.

use mysql_async::Conn;

use super::occupy;
use crate::dialect::MySql;
use crate::error::RequestError;

/// Holds a user-level lock for as long as it exists.
pub(super) struct Blocker {
    /// The name of the lock.
    pub(super) lock: String,
    _conn: Conn,
}

impl Blocker {
    pub(super) async fn connect(mysql: &MySql) -> Result<Self, RequestError> {
        let lock = format!("clinch.{}.peg", mysql.client);
        Ok(Self {
            _conn: occupy(mysql, &lock).await?,
            lock,
        })
    }
}
