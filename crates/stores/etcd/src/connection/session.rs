//! Requests and streams on the current connection.
//!
//! The requests of all tasks share one connection. It is made on the keeper; a request itself needs no
//! reactor and runs in the caller's task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::store::Operations;
use clinch_core::{BootTime, Clock};
use clinch_kit::backoff::Backoff;
use clinch_kit::reconnect::{self, Reconnecting};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::Connection;
use super::connect::Members;
use crate::config::Config;
use crate::error::CallError;

/// If a caller drops its request after this time without a reply, the member counts as stalled.
const STALLED: Duration = Duration::from_millis(500);

/// A connection with its generation.
pub(crate) type Live = reconnect::Live<Connection>;

/// The connection of one client, replaced when it breaks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    operations: Operations,
    connection: Arc<Reconnecting<Members>>,
}

impl Session {
    pub(crate) fn new(config: Arc<Config>, clock: Clock, operations: Operations) -> Arc<Self> {
        let members = Members::new(config.clone(), clock.clone(), operations.clone());
        // No background reconnection: the next request connects again.
        let pauses = Backoff::new(Duration::ZERO, Duration::ZERO);
        Arc::new(Self {
            connection: Reconnecting::new(members, clock.clone(), pauses),
            config,
            clock,
            operations,
        })
    }

    /// Counts a request. A message on a stream is one too.
    pub(crate) fn count(&self) {
        self.operations.add(1);
    }

    /// Drops this connection if it is the current one; the next request connects to the next member.
    pub(crate) fn give_up(&self, live: &Live) {
        if self.connection.give_up(live.generation) {
            let members = self.connection.connector();
            members.next.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        self.connection.reset();
    }

    /// Sends a request and waits for its reply, at most for the timeout.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let live = self.connection.live().await?;
        let reply = self.call_on(&live, path, message.clone()).await;
        match reply {
            Err(error) if error.is_stale_login() && self.config.login.is_some() => {
                self.give_up(&live);
                let live = self.connection.live().await?;
                self.call_on(&live, path, message).await
            }
            reply => reply,
        }
    }

    async fn call_on<Q, A>(
        &self,
        live: &Live,
        path: &'static str,
        message: Q,
    ) -> Result<A, CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.count();
        self.with_timeout(live, live.unary(path, message)).await
    }

    /// Waits for a reply at most for the timeout. If there is none, or the connection is broken, the
    /// connection is dropped.
    async fn with_timeout<T>(
        &self,
        live: &Live,
        reply: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let mut stall = StallGuard(Some((self, live, self.clock.now())));
        let members = self.connection.connector();
        let reply = members.with_timeout(live, reply).await;
        stall.0 = None;
        if let Err(error) = &reply
            && error.is_broken()
        {
            self.give_up(live);
        }
        reply
    }

    /// Opens a stream in both directions. The server ends it when it has no leader.
    pub(crate) async fn stream<Q, A>(
        &self,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(Live, Streaming<A>), CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let live = self.connection.live().await?;
        self.count();
        let opening = async {
            let mut grpc = live.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            let mut request = live.request(messages);
            let yes = MetadataValue::from_static("true");
            request.metadata_mut().insert("hasleader", yes);
            grpc.streaming(request, PathAndQuery::from_static(path), codec)
                .await
        };
        let stream = self.with_timeout(&live, opening).await?.into_inner();
        Ok((live, stream))
    }

    /// The next message of a stream; it must arrive within the timeout.
    pub(crate) async fn next_message<A>(
        &self,
        live: &Live,
        stream: &mut Streaming<A>,
    ) -> Result<A, CallError>
    where
        A: prost::Message + Default + 'static,
    {
        let next = async {
            let message = stream.message().await?;
            message.ok_or_else(|| Status::unavailable("the stream has ended"))
        };
        self.with_timeout(live, next).await
    }
}

/// Drops the connection if its request is dropped after [`STALLED`] without a reply: callers with short
/// leases wait less than the timeout.
struct StallGuard<'a>(Option<(&'a Session, &'a Live, BootTime)>);

impl Drop for StallGuard<'_> {
    fn drop(&mut self) {
        if let Some((session, live, since)) = self.0
            && session.clock.now().since(since) >= STALLED.min(session.config.timeout)
        {
            session.give_up(live);
        }
    }
}
