//! Connects to the first member that answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};
use tonic::transport::Endpoint;

use super::{Connection, Session};
use crate::error::CallError;
use crate::wire::{AuthenticateRequest, AuthenticateResponse};

/// Interval of HTTP/2 keep-alives on an idle connection. Without them, a watch would not notice that its
/// member has stalled.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

impl Session {
    /// Connects to the first member that answers, beginning with the next one in turn.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let mut last = None;
        for _ in 0..self.config.members.len() {
            let members = &self.config.members;
            let at = self.next_member.load(Ordering::Relaxed) % members.len().max(1);
            let Some(member) = members.get(at) else { break };
            match self.connect_to(member).await {
                Ok(connection) => return Ok(connection),
                Err(error) if error.kind() != ErrorKind::Unreachable => return Err(error),
                Err(error) => last = Some(error),
            }
            self.next_member.fetch_add(1, Ordering::Relaxed);
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
            number: self.connections.fetch_add(1, Ordering::Relaxed),
            member: member.into(),
            token: None,
        };
        if let Some(login) = &self.config.login {
            let request = AuthenticateRequest {
                name: login.user.clone(),
                password: login.password.clone(),
            };
            let path = "/etcdserverpb.Auth/Authenticate";
            let reply: Result<AuthenticateResponse, _> =
                self.call_on(&connection, path, request).await;
            let token = reply.map_err(CallError::without_effect)?.token;
            connection.token = token.parse().ok();
        }
        Ok(connection)
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
            Some(tls) => endpoint.tls_config(tls.client_config()?).map_err(bad),
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
