//! Encrypted connections.

use std::path::PathBuf;

use clinch_core::{Error, Result, StoreUrl, TlsFiles};
use zookeeper_client::{Client, Connector, Error as Zk};

#[cfg(feature = "tls")]
pub(super) use zookeeper_client::TlsOptions;

/// Without the feature there are none.
#[cfg(not(feature = "tls"))]
#[derive(Debug)]
pub(super) enum TlsOptions {}

/// The advice if there is no connection.
pub(super) const ADVICE: &str =
    "do the servers run, is it their secureClientPort, and do the certificates fit?";

/// The files of an encrypted connection.
#[cfg_attr(
    not(feature = "tls"),
    allow(dead_code, reason = "refused, so not read")
)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The trusted authorities.
    ca: PathBuf,
    /// This client's certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Option<Self>> {
        let encrypted = url.take_switch("tls")?;
        let TlsFiles { ca, client } = url.take_tls_files(encrypted, "add tls=on")?;
        match ca {
            _ if !encrypted => Ok(None),
            Some(ca) => Ok(Some(Self { ca, client })),
            // The driver trusts no authority by default.
            None => Err(Error::invalid("an encrypted connection needs ca")
                .with_advice("name the PEM file of the authority that the servers are signed by")),
        }
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// Refuses hosts that cannot be in a certificate: the driver would panic.
    pub(crate) fn check<'a>(&self, hosts: impl Iterator<Item = &'a str>) -> Result<()> {
        for host in hosts {
            rustls::pki_types::ServerName::try_from(host)
                .map_err(|_| Error::invalid(format!("{host:?} cannot be in a certificate")))?;
        }
        Ok(())
    }

    /// Reads the files.
    pub(super) fn options(&self) -> Result<TlsOptions> {
        clinch_core::tls::choose_provider();
        let options = TlsOptions::new().with_pem_ca(&read(&self.ca)?);
        let options = match &self.client {
            Some((cert, key)) => {
                let (cert, key) = (read(cert)?, read(key)?);
                options.and_then(|options| options.with_pem_identity(&cert, &key))
            }
            None => options,
        };
        options.map_err(|error| Error::invalid(format!("no certificate: {error}")))
    }
}

#[cfg(feature = "tls")]
fn read(path: &std::path::Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))
}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn check<'a>(&self, _hosts: impl Iterator<Item = &'a str>) -> Result<()> {
        Err(Error::new(
            clinch_core::ErrorKind::Unsupported,
            "this build has no encrypted connections to ZooKeeper",
        )
        .with_advice("build with the feature zookeeper-tls of clinch (tls of clinch-zookeeper)"))
    }

    pub(super) fn options(&self) -> Result<TlsOptions> {
        Err(Error::invalid(
            "encrypted connections are not in this build",
        ))
    }
}

/// Connects; encrypted if there are options.
pub(super) async fn connect(
    connector: Connector,
    servers: &str,
    tls: Option<TlsOptions>,
) -> Result<Client, Zk> {
    match tls {
        None => connector.connect(servers).await,
        #[cfg(feature = "tls")]
        Some(options) => connector.with_tls(options).secure_connect(servers).await,
        #[cfg(not(feature = "tls"))]
        Some(options) => match options {},
    }
}
