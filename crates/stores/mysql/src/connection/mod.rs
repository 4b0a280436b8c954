//! Connections: made on demand, used by one request at a time, closed when they stall.
//!
//! All of it runs on the keeper, so that neither a blocked runtime of the user nor a dropped future leaves
//! a connection in the middle of a reply.

pub(crate) mod options;
mod response;
mod session;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use clinch_core::store::Operations;
use clinch_core::{Clock, Error, ErrorKind, Result};
use clinch_kit::lock;
use mysql_async::{Conn, Opts};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::config::Config;
use crate::error::{RequestError, connecting};
use crate::sql::Sql;

pub(crate) use response::{Response, exchange};
pub(crate) use session::Route;
use session::Session;

/// The start of the message about a reply that never came.
const NO_ANSWER: &str = "no answer within";

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One statement, prepared once on each connection. It may be repeated.
    Prepared,
    /// Text of one or several statements that may be repeated.
    Text,
    /// Text that must not be sent twice.
    TextOnce,
}

/// The connections of one store.
pub(crate) struct Pool {
    opts: Opts,
    address: String,
    timeout: Duration,
    permits: Semaphore,
    idle: Mutex<VecDeque<Conn>>,
    closed: AtomicBool,
    /// A reply has not come in time, and none on any connection since.
    silent: AtomicBool,
    operations: Operations,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(config: &Config, operations: Operations) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            opts: options::options(config)?,
            address: config.address(),
            timeout: config.timeout,
            permits: Semaphore::new(config.pool),
            idle: Mutex::default(),
            closed: false.into(),
            silent: false.into(),
            operations,
        }))
    }

    /// The server, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How long a reply is waited for.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Counts a request.
    pub(crate) fn count(&self) {
        self.operations.add(1);
    }

    /// For a caller.
    pub(crate) fn error(&self, error: RequestError) -> Error {
        error.into_error(&self.address)
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Conn>> {
        lock(&self.idle)
    }

    /// Closes idle connections, and those in use when they come back.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.idle().clear();
    }

    /// Sends statements as text, in one request that may be repeated; the response is complete.
    pub(crate) async fn query(&self, sql: &Sql) -> Result<Response, RequestError> {
        self.send(sql, Mode::Text).await?.complete()
    }

    /// Sends statements in one request.
    pub(crate) async fn send(&self, sql: &Sql, mode: Mode) -> Result<Response, RequestError> {
        self.send_within(sql, mode, self.timeout).await
    }

    /// The same; a connection that does not answer within `patience` is closed.
    pub(crate) async fn send_within(
        &self,
        sql: &Sql,
        mode: Mode,
        patience: Duration,
    ) -> Result<Response, RequestError> {
        let (_permit, conn) = self.get(patience).await?;
        let connect = async || self.connect_within(patience).await;
        let (conn, reused) = match conn {
            Some(conn) => (conn, true),
            None => (connect().await.map_err(RequestError::Unsent)?, false),
        };
        let (outcome, conn) = self.run(conn, sql, mode, patience).await;
        self.put_back(conn);
        match outcome {
            // The server has closed an idle connection: it has hardly seen this request, and if it has,
            // the request id makes it harmless to send it again. The second reply need not be true of the
            // first copy, so the response says that there was one.
            Err(RequestError::Lost(why))
                if reused && mode != Mode::TextOnce && !why.starts_with(NO_ANSWER) =>
            {
                self.idle().clear();
                let conn = connect().await.map_err(|_| RequestError::Lost(why))?;
                let (again, conn) = self.run(conn, sql, mode, patience).await;
                self.put_back(conn);
                again.map(|response| Response {
                    repeated: true,
                    ..response
                })
            }
            outcome => outcome,
        }
    }

    /// A connection for several requests, each answered within `patience`.
    pub(crate) async fn session(&self, patience: Duration) -> Result<Session<'_>, RequestError> {
        let (permit, conn) = self.get(patience).await?;
        let conn = match conn {
            Some(conn) => conn,
            None => {
                let connected = self.connect_within(patience).await;
                connected.map_err(RequestError::Unsent)?
            }
        };
        Ok(Session::new(self, conn, patience, permit))
    }

    fn put_back(&self, conn: Option<Conn>) {
        if let Some(conn) = conn
            && !self.closed.load(Ordering::SeqCst)
        {
            self.idle().push_back(conn);
        }
    }

    async fn get(
        &self,
        patience: Duration,
    ) -> Result<(SemaphorePermit<'_>, Option<Conn>), RequestError> {
        let permit = timeout(patience, self.permits.acquire()).await;
        let permit = match permit {
            Ok(Ok(permit)) => permit,
            _ => {
                let text = format!("no connection was free within {patience:?}");
                return Err(RequestError::Unsent(
                    Error::new(ErrorKind::Unreachable, text)
                        .with_advice("the server stalls, or pool= is too small"),
                ));
            }
        };
        // A caller with little time does not try one idle connection after the other.
        if patience < self.timeout && self.silent.load(Ordering::SeqCst) {
            return Ok((permit, None));
        }
        // The one used last: the others may idle until the server closes them.
        let conn = self.idle().pop_back();
        Ok((permit, conn))
    }

    /// A new connection. Runs on the keeper only.
    pub(crate) async fn connect(&self) -> Result<Conn> {
        self.connect_within(self.timeout).await
    }

    async fn connect_within(&self, patience: Duration) -> Result<Conn> {
        self.count();
        match timeout(patience, Conn::new(self.opts.clone())).await {
            Ok(Ok(conn)) => Ok(conn),
            Ok(Err(error)) => Err(connecting(error, &self.address)),
            Err(_) => Err(Error::new(
                ErrorKind::Unreachable,
                format!("{} does not answer within {patience:?}", self.address),
            )
            .with_advice("is it MySQL or MariaDB, and does it run?")),
        }
    }

    /// Sends on this connection; returns it if it can be used again.
    async fn run(
        &self,
        mut conn: Conn,
        sql: &Sql,
        mode: Mode,
        patience: Duration,
    ) -> (Result<Response, RequestError>, Option<Conn>) {
        self.count();
        let (clock, sent) = (Clock::boot(), Clock::boot().now());
        let exchanging = exchange(&mut conn, sql, mode == Mode::Prepared);
        let response = match timeout(patience, exchanging).await {
            Ok(response) => Response {
                took: clock.now().since(sent),
                ..response
            },
            // Dropping the connection closes it, so that this reply is never read as one to another
            // request. The others may be as dead, and each would be waited for as long.
            Err(_) => {
                self.silent.store(true, Ordering::SeqCst);
                if patience >= self.timeout {
                    self.idle().clear();
                }
                let lost = RequestError::Lost(format!("{NO_ANSWER} {patience:?}"));
                return (Err(lost), None);
            }
        };
        if !matches!(response.failed, Some(RequestError::Lost(_))) {
            self.silent.store(false, Ordering::SeqCst);
        }
        match &response.failed {
            Some(RequestError::Lost(why)) => (Err(RequestError::Lost(why.clone())), None),
            // A refusal ends its statement, and not the transaction around it.
            Some(error) if sql.is_transaction() || !error.leaves_connection_usable() => {
                if error.is_read_only() {
                    // The others lead to the same server.
                    self.idle().clear();
                }
                (Ok(response), None)
            }
            _ => (Ok(response), Some(conn)),
        }
    }
}
