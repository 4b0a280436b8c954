//! Making a connection: to the first member that answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};
use tonic::transport::Endpoint;

use crate::error::Trouble;
use crate::session::{Live, Session};
use crate::wire::{AuthenticateRequest, AuthenticateResponse};

/// An idle connection is asked for a sign of life after this time: a member that stands still would
/// not be noticed by a watch otherwise.
const QUIET: Duration = Duration::from_secs(2);

impl Session {
    /// Connects to the first member that answers.
    pub(crate) async fn connect(&self) -> Result<Live> {
        let mut last = None;
        for _ in 0..self.config.members.len() {
            let members = &self.config.members;
            let at = self.first.load(Ordering::Relaxed) % members.len().max(1);
            let Some(member) = members.get(at) else { break };
            match self.connect_to(member).await {
                Ok(live) => return Ok(live),
                Err(error) if error.kind() != ErrorKind::Unreachable => return Err(error),
                Err(error) => last = Some(error),
            }
            self.first.fetch_add(1, Ordering::Relaxed);
        }
        Err(last.unwrap_or_else(|| Error::invalid("no member is given")))
    }

    async fn connect_to(&self, member: &str) -> Result<Live> {
        let limit = self.config.timeout;
        let unreachable = |text: String| {
            Error::new(ErrorKind::Unreachable, text).with_advice("is it etcd, and does it run?")
        };
        let endpoint = self.endpoint(member)?;
        let channel = tokio::select! {
            biased;
            channel = endpoint.connect() => channel.map_err(|error| {
                unreachable(format!("cannot connect to {member}: {}", chain(&error)))
            })?,
            () = self.clock.sleep(limit) => {
                return Err(unreachable(format!("{member} does not answer within {limit:?}")));
            }
        };
        let mut live = Live {
            channel,
            number: self.made.fetch_add(1, Ordering::Relaxed),
            to: member.into(),
            token: None,
        };
        if let Some(login) = &self.config.login {
            let request = AuthenticateRequest {
                name: login.user.clone(),
                password: login.password.clone(),
            };
            let path = "/etcdserverpb.Auth/Authenticate";
            let reply: Result<AuthenticateResponse, _> = self.call_on(&live, path, request).await;
            let token = reply.map_err(Trouble::of_a_read)?.token;
            live.token = token.parse().ok();
        }
        Ok(live)
    }

    fn endpoint(&self, member: &str) -> Result<Endpoint> {
        let scheme = if self.config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let bad =
            |error: tonic::transport::Error| Error::invalid(format!("{member}: {}", chain(&error)));
        let endpoint = Endpoint::from_shared(format!("{scheme}://{member}"))
            .map_err(bad)?
            .connect_timeout(self.config.timeout)
            .http2_keep_alive_interval(QUIET)
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

/// An error and what caused it: the cause is where tonic says what is wrong.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
