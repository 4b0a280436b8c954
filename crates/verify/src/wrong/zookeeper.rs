//! A session of ZooKeeper, made on demand.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

use super::Oops;

/// Longer than a busy machine stands still: no session is to end by itself.
const SESSION: Duration = Duration::from_secs(10);

pub(super) struct Session {
    servers: String,
    client: Option<Client>,
}

impl Session {
    pub(super) fn new(url: &str) -> Self {
        let servers = url.strip_prefix("zookeeper://").unwrap_or(url);
        Self {
            servers: servers.to_owned(),
            client: None,
        }
    }

    /// The session, or a new one if that has ended.
    pub(super) async fn client(&mut self) -> Result<Client, Oops> {
        if let Some(client) = &self.client
            && !client.state().is_terminated()
        {
            return Ok(client.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(SESSION)
            .with_fail_eagerly();
        let client = connector.connect(&self.servers).await?;
        Ok(self.client.insert(client).clone())
    }
}

/// How nodes of this kind are made.
pub(super) fn options(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}
