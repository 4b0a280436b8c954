//! How an etcd is to be set up.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clinch_core::Result;

use super::etcd::Etcd;
use super::network::address;
use super::{Certificates, Disk, Folder, Host, Port, Recipe, ServerProcess, on_free_port};

/// What every server gets. The least lease of a server is one and a half election timeouts, in
/// whole seconds: with this one it is a second, and yet a busy machine changes no leaders.
const BASICS: [&str; 6] = [
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--logger=zap",
    "--log-outputs=stderr",
    "--log-level=warn",
    "--enable-grpc-gateway=false",
];

/// Options of an [`Etcd`] that is still to be started; see [`Etcd::with`].
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::with().root_password("x").user("app", "y", "app/").start()?;
/// assert!(etcd.url().starts_with("etcd://root:x@127.0.0.1:"));
/// let app = |words: &[&str]| etcd.ctl(&[&["--user=app:y"], words].concat());
/// assert_eq!(app(&["put", "app/a", "1"])?, "OK");
/// assert!(app(&["put", "b", "1"]).is_err());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct EtcdBuilder {
    options: Vec<String>,
    /// `Some(true)` where clients must have a certificate.
    tls: Option<bool>,
    pub(super) root_password: Option<String>,
    pub(super) users: Vec<User>,
    host: Option<Host>,
    disk: Option<u32>,
}

/// Somebody who may touch the keys below a prefix.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
    pub(super) prefix: String,
}

impl EtcdBuilder {
    /// An option of the server, without its dashes: `quota-backend-bytes`, `max-txn-ops` … The last
    /// one of a name counts.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push(format!("--{name}={value}"));
        self
    }

    /// Passwords are asked for, and this is root's; [`Etcd::url`] and the kit's own commands use it.
    pub fn root_password(mut self, password: &str) -> Self {
        self.root_password = Some(password.to_owned());
        self
    }

    /// One more user, who may read and write the keys below a prefix; see [`Etcd::url_as`]. It
    /// needs [`root_password`](Self::root_password).
    pub fn user(mut self, name: &str, password: &str, prefix: &str) -> Self {
        self.users.push(User {
            name: name.to_owned(),
            password: password.to_owned(),
            prefix: prefix.to_owned(),
        });
        self
    }

    /// TLS for clients, with a certificate of its own authority; see [`Etcd::ca_file`]. Members of
    /// a cluster share it, and talk to each other without.
    pub fn tls(mut self) -> Self {
        self.tls = Some(self.tls.unwrap_or_default());
        self
    }

    /// TLS for clients with a certificate only; see [`Etcd::certificates`].
    pub fn tls_client_certificates(mut self) -> Self {
        self.tls = Some(true);
        self
    }

    /// A small disk of so many megabytes for what it keeps; see [`Etcd::disk`].
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// On a host of a private network.
    pub fn on_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// Where it listens: 127.0.0.1, or its host's address.
    pub(super) fn address(&self) -> Ipv4Addr {
        address(self.host.as_ref())
    }

    /// What a member tells the others of a port.
    pub(super) fn peer_url(&self, port: u16) -> String {
        format!("http://{}:{port}", self.address())
    }

    /// Starts it, and waits until it answers.
    pub fn start(self) -> Result<Etcd> {
        on_free_port(|port| {
            let secrets = self.secrets()?;
            let peer = Port::reserve()?;
            let advertised = peer.number();
            let cluster = format!("m0={}", self.peer_url(advertised));
            let etcd = self.launch("m0", [port, peer], advertised, &cluster, secrets)?;
            etcd.wait_ready()?;
            etcd.set_up_users()?;
            Ok(etcd)
        })
    }

    /// The certificates, where there is TLS.
    pub(super) fn secrets(&self) -> Result<Option<Arc<Secrets>>> {
        let make = |_| -> Result<_> {
            let folder = Folder::new("etcd-tls")?;
            let files = Certificates::make(&folder)?;
            Ok(Arc::new(Secrets {
                files,
                _folder: folder,
            }))
        };
        self.tls.map(make).transpose()
    }

    /// Starts a member on a port for clients and one for its peers, who may be told another; it is not ready before most of
    /// the cluster runs.
    pub(super) fn launch(
        &self,
        name: &str,
        [port, peer]: [Port; 2],
        advertised: u16,
        cluster: &str,
        secrets: Option<Arc<Secrets>>,
    ) -> Result<Etcd> {
        let folder = Folder::new("etcd")?;
        let disk = self
            .disk
            .map(|size| Disk::mount(&folder, "data", size))
            .transpose()?;
        let parts = Parts {
            setup: self.clone(),
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            port,
            peer,
            advertised,
            metrics: Port::reserve()?,
            secrets,
            disk,
            folder,
        };
        let arguments = self.arguments(&parts);
        let recipe = Recipe::new("etcd", parts.folder.path()).on(self.host.as_ref());
        let recipe = arguments.into_iter().fold(recipe, Recipe::arg);
        let process = ServerProcess::start(recipe)?;
        Ok(Etcd::new(process, parts))
    }

    /// What all have, what this member has, what was asked for.
    fn arguments(&self, parts: &Parts) -> Vec<String> {
        let mut all = BASICS.map(str::to_owned).to_vec();
        let (client, peer) = (parts.endpoint(), self.peer_url(parts.peer.number()));
        let advertised = self.peer_url(parts.advertised);
        let metrics = parts.counters();
        all.extend([
            format!("--name={}", parts.name),
            format!("--data-dir={}", parts.folder.path().join("data").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={advertised}"),
            format!("--initial-cluster={}", parts.cluster),
            format!("--listen-metrics-urls=http://{metrics}"),
        ]);
        if let Some(secrets) = &parts.secrets {
            let files = &secrets.files;
            all.extend([
                format!("--cert-file={}", files.server_certificate().display()),
                format!("--key-file={}", files.server_key().display()),
            ]);
            if self.tls == Some(true) {
                all.push("--client-cert-auth".to_owned());
                all.push(format!("--trusted-ca-file={}", files.ca_file().display()));
            }
        }
        all.extend(self.options.iter().cloned());
        all
    }
}

/// Certificates, which the members of a cluster share.
#[derive(Debug)]
pub(super) struct Secrets {
    pub(super) files: Certificates,
    _folder: Folder,
}

/// What a member is made of beside its process.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) setup: EtcdBuilder,
    pub(super) name: String,
    /// All members, as each is told.
    pub(super) cluster: String,
    pub(super) port: Port,
    pub(super) peer: Port,
    /// The port that its peers are told.
    pub(super) advertised: u16,
    /// Its counters, without TLS and passwords.
    pub(super) metrics: Port,
    pub(super) secrets: Option<Arc<Secrets>>,
    // Before the folder that it is in.
    pub(super) disk: Option<Disk>,
    pub(super) folder: Folder,
}

impl Parts {
    pub(super) fn endpoint(&self) -> String {
        let scheme = if self.secrets.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}:{}", self.setup.address(), self.port.number())
    }

    /// Where it shows its counters.
    pub(super) fn counters(&self) -> SocketAddr {
        (self.setup.address(), self.metrics.number()).into()
    }
}
