//! A plain session of the driver for `clinch-bench`: the servers, login, ACLs and TLS of a URL without the
//! store's own sessions.

use std::time::Duration;

use clinch_core::{Error, Result, StoreUrl};
use zookeeper_client::{Acls, Client, Error as Zk};

use crate::config::{Access, Config};
use crate::error::{connecting, sending};
use crate::tls::{self, Tls};

/// Shorter than the longest session that servers allow by default.
const SESSION: Duration = Duration::from_secs(30);

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The session itself.
    pub client: Client,
    /// The ACLs of new nodes.
    pub acls: Acls<'static>,
    /// The path of the URL: empty, or with a leading slash.
    pub chroot: String,
}

/// Connects. The session lives on the runtime that polls this.
pub async fn connect(url: &StoreUrl) -> Result<Session> {
    let config = Config::from_url(url)?;
    let mut connector = Client::connector()
        .with_session_timeout(SESSION)
        .with_connection_timeout(config.timeout)
        .with_fail_eagerly();
    if let Some(login) = &config.login {
        connector = login.introduce(connector);
    }
    let tls = config.tls.as_ref().map(Tls::options).transpose()?;
    let client = tls::connect(connector, &config.servers, tls).await;
    Ok(Session {
        client: client.map_err(|error| connecting(error, &config.servers))?,
        acls: match config.acl {
            Access::Open => Acls::anyone_all(),
            Access::CreatorAll => Acls::creator_all(),
        },
        chroot: config.chroot,
    })
}

/// An error of the driver.
pub fn error(error: Zk) -> Error {
    sending(error)
}
