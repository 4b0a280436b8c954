//! MySQL and MariaDB as a dialect of the table. Each statement is in the file of its role.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clinch_core::store::{Finding, Hold};
use clinch_core::{ClientId, Name, RequestId, Result};
use clinch_table::{Dialect, Failure, Release, Reply, Retake, Row, Rows, Sent, Take, Waiters};

use crate::config::Config;
use crate::connection::{Mode, Pool, Response, Route};
use crate::error::RequestError;
use crate::priority::{self, Stuck};
use crate::rows::MySqlRows;
use crate::sql::Sql;
use crate::wakes::{self, waker};
use crate::{claim, doctor, inspect, release, renew};

/// The tables of one namespace.
#[derive(Debug)]
pub(crate) struct MySql {
    pub(crate) pool: Arc<Pool>,
    pub(crate) ns: Vec<u8>,
    pub(crate) client: ClientId,
    /// Whether the server has `INSERT … RETURNING`.
    pub(crate) returning: bool,
    pub(crate) stuck: Stuck,
    pub(crate) config: Config,
}

impl MySql {
    pub(crate) fn failure(&self, error: RequestError) -> Failure {
        error.into_failure(self.pool.address())
    }

    /// Sends a request that may be repeated, and says so if it was.
    pub(crate) async fn send(&self, sql: &Sql, mode: Mode) -> Sent<Response> {
        let response = self.pool.send(sql, mode).await;
        let response = response.map_err(|error| self.failure(error))?;
        match response.failed {
            Some(error) => {
                let mut failure = self.failure(error);
                failure.unanswered |= response.repeated;
                Err(failure)
            }
            None => Ok(response),
        }
    }

    /// Sends statements as text, in one request that may be repeated.
    pub(crate) async fn query(&self, sql: &Sql) -> Sent<Response> {
        self.send(sql, Mode::Text).await
    }

    /// An update of one row; what it passed to `LAST_INSERT_ID()` if it has changed the row.
    pub(crate) async fn update_one(&self, sql: &Sql) -> Sent<Reply<Option<u64>>> {
        let response = self.send(sql, Mode::Prepared).await?;
        Ok(Reply {
            value: response.number_if_changed(),
            repeated: response.repeated,
        })
    }
}

#[async_trait]
impl Dialect for MySql {
    fn address(&self) -> &str {
        self.pool.address()
    }

    fn timeout(&self) -> Duration {
        self.pool.timeout()
    }

    async fn take(&self, take: &Take<'_>) -> Sent<Reply<Option<Row>>> {
        claim::take(self, take).await
    }

    async fn retake(&self, retake: &Retake<'_>) -> Sent<Reply<Option<u64>>> {
        claim::retake(self, retake).await
    }

    async fn release(&self, release: &Release<'_>) -> Sent<Reply<Option<u64>>> {
        release::release(self, release).await
    }

    async fn renew(
        &self,
        holds: &[&Hold],
        lease: u64,
        timeout: Duration,
    ) -> Sent<Vec<(RequestId, u64)>> {
        renew::renew(self, holds, lease, timeout).await
    }

    fn rows(&self, timeout: Duration) -> Box<dyn Rows + '_> {
        Box::new(MySqlRows {
            mysql: self,
            route: Route::Any(&self.pool, timeout),
            priority: None,
        })
    }

    async fn prioritized(&self, name: &Name, timeout: Duration) -> Sent<Box<dyn Rows + '_>> {
        let session = self.pool.session(timeout).await;
        let mut route = Route::One(session.map_err(|error| self.failure(error))?);
        let taken = priority::take(self, &mut route, name, timeout).await;
        taken.map_err(|error| self.failure(error))?;
        Ok(Box::new(MySqlRows {
            mysql: self,
            route,
            priority: Some(name.clone()),
        }))
    }

    async fn listen(&self, waiters: &Waiters) -> Sent<()> {
        let ended = wakes::listen(self, waiters).await;
        ended.map_err(|error| self.failure(error))
    }

    fn notify(&self, clients: &[ClientId]) {
        waker::notify(self, clients);
    }

    async fn in_use(
        &self,
        from: &[u8],
        past: bool,
        limit: u64,
    ) -> Sent<Vec<(Vec<u8>, Option<Row>)>> {
        inspect::in_use(self, from, past, limit).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        doctor::examine(&self.pool, &self.config).await
    }

    fn close(&self) {
        self.pool.close();
    }
}
