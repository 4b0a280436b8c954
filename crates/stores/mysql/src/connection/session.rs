//! Requests on one and the same connection.

use std::time::Duration;

use mysql_async::Conn;
use tokio::sync::SemaphorePermit;

use super::{Mode, Pool, Response};
use crate::error::RequestError;
use crate::sql::Sql;

/// One connection for several requests; closed when it is dropped.
pub(crate) struct Session<'p> {
    pool: &'p Pool,
    /// `None` after it was lost.
    conn: Option<Conn>,
    /// How long a reply is waited for.
    patience: Duration,
    _permit: SemaphorePermit<'p>,
}

impl<'p> Session<'p> {
    pub(super) fn new(
        pool: &'p Pool,
        conn: Conn,
        patience: Duration,
        permit: SemaphorePermit<'p>,
    ) -> Self {
        Self {
            pool,
            conn: Some(conn),
            patience,
            _permit: permit,
        }
    }
}

/// Where requests go.
pub(crate) enum Route<'p> {
    /// To any connection, each answered within this time.
    Any(&'p Pool, Duration),
    /// To one and the same.
    One(Session<'p>),
}

impl Route<'_> {
    /// Sends statements in one request.
    pub(crate) async fn send(&mut self, sql: &Sql, mode: Mode) -> Result<Response, RequestError> {
        let session = match self {
            Self::Any(pool, patience) => return pool.send_within(sql, mode, *patience).await,
            Self::One(session) => session,
        };
        let Some(conn) = session.conn.take() else {
            return Err(RequestError::Lost("the connection is lost".to_owned()));
        };
        let (outcome, conn) = session.pool.run(conn, sql, mode, session.patience).await;
        session.conn = conn;
        outcome
    }

    /// Sends statements as text, in one request that may be repeated; the response is complete.
    pub(crate) async fn query(&mut self, sql: &Sql) -> Result<Response, RequestError> {
        self.send(sql, Mode::Text).await?.complete()
    }

    /// Puts its connection back into the pool.
    pub(crate) fn keep(self) {
        if let Self::One(session) = self {
            session.pool.put_back(session.conn);
        }
    }
}
