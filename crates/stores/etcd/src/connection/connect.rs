//! Connects to the first member that answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clinch_core::store::Operations;
use clinch_core::{Clock, Effect, Error, ErrorKind, Result};
use clinch_kit::reconnect::{Connector, Reconnecting};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::config::Config;
use crate::error::CallError;
use crate::wire::{AuthenticateRequest, AuthenticateResponse};

/// Interval of HTTP/2 keep-alives on an idle connection. Without them, a watch would not notice that its
/// member has stalled.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The largest reply: a listing of very many claims.
const MAX_REPLY: usize = 256 << 20;

/// A connection to one member.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(super) member: Arc<str>,
    pub(crate) token: Option<MetadataValue<Ascii>>,
}

impl Connection {
    /// A gRPC client that is ready to send.
    pub(super) async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_REPLY);
        grpc.ready()
            .await
            .map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    pub(super) async fn unary<Q, A>(&self, path: &'static str, message: Q) -> Result<A, Status>
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
}

/// The members of the cluster, and how to connect to them.
#[derive(Debug)]
pub(crate) struct Members {
    pub(super) config: Arc<Config>,
    pub(super) clock: Clock,
    pub(super) operations: Operations,
    /// Index of the member that the next connection tries first.
    pub(super) next: AtomicUsize,
}

impl Connector for Members {
    type Connection = Connection;

    async fn connect(&self, _: &Arc<Reconnecting<Self>>, _: u64) -> Result<Connection> {
        self.connect_to_any().await
    }
}

impl Members {
    pub(crate) fn new(config: Arc<Config>, clock: Clock, operations: Operations) -> Self {
        Self {
            config,
            clock,
            operations,
            next: AtomicUsize::default(),
        }
    }

    /// Connects to the first member that replies.
    pub(crate) async fn connect_to_any(&self) -> Result<Connection> {
        let mut last = None;
        for _ in 0..self.config.members.len() {
            let members = &self.config.members;
            let at = self.next.load(Ordering::Relaxed) % members.len().max(1);
            let Some(member) = members.get(at) else { break };
            match self.connect_to(member).await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() != ErrorKind::Unreachable => return Err(error),
                Err(error) => last = Some(error),
            }
            self.next.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| Error::invalid("no member is given")))
    }

    async fn connect_to(&self, member: &str) -> Result<Connection> {
        let timeout = self.config.timeout;
        let unreachable = |text: String| {
            Error::new(ErrorKind::Unreachable, text).with_advice("is it etcd, and does it run?")
        };
        let endpoint = self.endpoint(member)?;
        let channel = tokio::select! {
            biased;
            channel = endpoint.connect() => channel.map_err(|error| {
                unreachable(format!("cannot connect to {member}: {}", with_causes(&error)))
            })?,
            () = self.clock.sleep(timeout) => {
                return Err(unreachable(format!("{member} does not answer within {timeout:?}")));
            }
        };
        let mut connection = Connection {
            channel,
            member: member.into(),
            token: None,
        };
        if let Some(login) = &self.config.login {
            let request = AuthenticateRequest {
                name: login.user.clone().unwrap_or_default(),
                password: login.password.clone().unwrap_or_default(),
            };
            self.operations.add(1);
            let reply = connection.unary("/etcdserverpb.Auth/Authenticate", request);
            let reply = self.with_timeout(&connection, reply).await;
            let reply: AuthenticateResponse = reply.map_err(CallError::without_effect)?;
            connection.token = reply.token.parse().ok();
        }
        Ok(connection)
    }

    /// Waits for a reply, at most for the timeout.
    pub(super) async fn with_timeout<T>(
        &self,
        connection: &Connection,
        reply: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CallError> {
        let (timeout, member) = (self.config.timeout, &connection.member);
        tokio::select! {
            biased;
            reply = reply => reply.map_err(|status| CallError::Status(status, member.to_string())),
            () = self.clock.sleep(timeout) => {
                let text = format!("{member} does not answer within {timeout:?}");
                let error = Error::new(ErrorKind::Unreachable, text);
                Err(error.with_effect(Effect::Possible).into())
            }
        }
    }

    fn endpoint(&self, member: &str) -> Result<Endpoint> {
        let scheme = if self.config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let bad = |error: tonic::transport::Error| {
            Error::invalid(format!("{member}: {}", with_causes(&error)))
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
            .map_err(bad)?
            .connect_timeout(self.config.timeout)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(self.config.timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        match &self.config.tls {
            #[cfg(feature = "tls")]
            Some(files) => endpoint
                .tls_config(super::tls::client_config(files)?)
                .map_err(bad),
            _ => Ok(endpoint),
        }
    }
}

/// The error and its causes in one line: tonic gives the reason only as a cause.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
