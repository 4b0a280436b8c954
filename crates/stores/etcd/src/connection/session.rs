//! Requests and streams on the current connection.
//!
//! The requests of all tasks share one connection. It is made on the keeper; a request itself needs no
//! reactor and runs in the caller's task.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clinch_core::{BootTime, Clock, Effect, Error, ErrorKind, Result, keeper};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::Stream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::config::Config;
use crate::error::CallError;

/// The largest reply: a listing of very many claims.
const MAX_REPLY: usize = 256 << 20;

/// If a caller drops its request after this time without a reply, the member counts as stalled.
const STALLED: Duration = Duration::from_millis(500);

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(super) channel: Channel,
    pub(super) number: u64,
    pub(super) member: Arc<str>,
    pub(super) token: Option<MetadataValue<Ascii>>,
}

impl Connection {
    /// A gRPC client that is ready to send.
    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_REPLY);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let reply = grpc.unary(self.request(message), path, codec).await?;
        Ok(reply.into_inner())
    }

    fn error(&self, status: Status) -> CallError {
        CallError::Status(status, self.member.to_string())
    }
}

/// The connection of one client, replaced when it breaks.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    current: Mutex<Option<Connection>>,
    connecting: tokio::sync::Mutex<()>,
    /// Index of the member that the next connection tries first.
    pub(super) next_member: AtomicUsize,
    pub(super) connections: AtomicU64,
    requests: AtomicU64,
}

impl Session {
    pub(crate) fn new(config: Arc<Config>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            config,
            clock,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            next_member: AtomicUsize::default(),
            connections: AtomicU64::default(),
            requests: AtomicU64::default(),
        })
    }

    /// Requests sent so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a request. A message on a stream is one too.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn current(&self) -> MutexGuard<'_, Option<Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops this connection if it is the current one; the next request connects to the next member.
    pub(crate) fn drop_connection(&self, connection: &Connection) {
        let mut current = self.current();
        if current
            .as_ref()
            .is_some_and(|current| current.number == connection.number)
        {
            *current = None;
            self.next_member.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops the connection.
    pub(crate) fn close(&self) {
        *self.current() = None;
    }

    /// The current connection, made if there is none.
    async fn connection(self: &Arc<Self>) -> Result<Connection> {
        if let Some(connection) = self.current().clone() {
            return Ok(connection);
        }
        let session = self.clone();
        // On the keeper, where the connection's task lives. It is completed even if the caller is dropped.
        keeper::run(async move {
            let _connecting = session.connecting.lock().await;
            if let Some(connection) = session.current().clone() {
                return Ok(connection);
            }
            let connection = session.connect().await?;
            *session.current() = Some(connection.clone());
            Ok(connection)
        })
        .await
    }

    /// Sends a request and waits for its reply, at most for the timeout.
    pub(crate) async fn call<Q, A>(
        self: &Arc<Self>,
        path: &'static str,
        message: Q,
    ) -> Result<A, CallError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let reply = self.call_on(&connection, path, message.clone()).await;
        match reply {
            Err(error) if error.is_stale_login() && self.config.login.is_some() => {
                self.drop_connection(&connection);
                let connection = self.connection().await?;
                self.call_on(&connection, path, message).await
            }
            reply => reply,
        }
    }

    /// Sends a request and waits for its reply, without a timeout.
    pub(crate) async fn call_patiently<Q, A>(
        self: &Arc<Self>,
        path: &'static str,
        message: Q,
    ) -> Result<A, CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let connection = self.connection().await?;
        self.count();
        let reply = connection.unary(path, message).await;
        reply.map_err(|status| connection.error(status))
    }

    pub(super) async fn call_on<Q, A>(
        &self,
        connection: &Connection,
        path: &'static str,
        message: Q,
    ) -> Result<A, CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        self.count();
        self.with_timeout(connection, connection.unary(path, message))
            .await
    }

    /// Waits for a reply at most for the timeout. If there is none, or the connection is broken, the
    /// connection is dropped.
    async fn with_timeout<T>(
        &self,
        connection: &Connection,
        reply: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let timeout = self.config.timeout;
        let mut stall = StallGuard(Some((self, connection, self.clock.now())));
        let reply = tokio::select! {
            biased;
            reply = reply => reply.map_err(|status| connection.error(status)),
            () = self.clock.sleep(timeout) => {
                let text = format!("{} does not answer within {timeout:?}", connection.member);
                let error = Error::new(ErrorKind::Unreachable, text);
                Err(error.with_effect(Effect::Possible).into())
            }
        };
        stall.0 = None;
        if let Err(error) = &reply
            && error.is_broken()
        {
            self.drop_connection(connection);
        }
        reply
    }

    /// Opens a stream in both directions. The server ends it when it has no leader.
    pub(crate) async fn stream<Q, A>(
        self: &Arc<Self>,
        path: &'static str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(Connection, Streaming<A>), CallError>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let connection = self.connection().await?;
        self.count();
        let opening = async {
            let mut grpc = connection.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            let mut request = connection.request(messages);
            let yes = MetadataValue::from_static("true");
            request.metadata_mut().insert("hasleader", yes);
            grpc.streaming(request, PathAndQuery::from_static(path), codec)
                .await
        };
        let stream = self.with_timeout(&connection, opening).await?.into_inner();
        Ok((connection, stream))
    }

    /// The next message of a stream; it must arrive within the timeout.
    pub(crate) async fn next_message<A>(
        &self,
        connection: &Connection,
        stream: &mut Streaming<A>,
    ) -> Result<A, CallError>
    where
        A: prost::Message + Default + 'static,
    {
        let next = async {
            let message = stream.message().await?;
            message.ok_or_else(|| Status::unavailable("the stream has ended"))
        };
        self.with_timeout(connection, next).await
    }
}

/// Drops the connection if its request is dropped after [`STALLED`] without a reply: callers with short
/// leases wait less than the timeout.
struct StallGuard<'a>(Option<(&'a Session, &'a Connection, BootTime)>);

impl Drop for StallGuard<'_> {
    fn drop(&mut self) {
        if let Some((session, connection, since)) = self.0
            && session.clock.now().since(since) >= STALLED.min(session.config.timeout)
        {
            session.drop_connection(connection);
        }
    }
}
