//! Options of an etcd server, and its command.

use std::net::Ipv4Addr;
use std::sync::Arc;

use clinch_core::Result;

use super::metrics::is_healthy;
use super::{Etcd, EtcdBuilder, EtcdMetrics};
use crate::proxy::{Splitter, http2};
use crate::servers::builder::Tls;
use crate::servers::engine::Site;
use crate::servers::{Engine, Port, Recipe};

/// What every server gets. The shortest lease is one and a half election timeouts, rounded up to
/// seconds: one second here, and still no election only because the machine is busy.
const BASICS: [&str; 6] = [
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--logger=zap",
    "--log-outputs=stderr",
    "--log-level=warn",
    "--enable-grpc-gateway=false",
];

/// etcd, with its own options.
#[derive(Debug, Clone, Default)]
pub struct EtcdEngine {
    pub(super) root_password: Option<String>,
    pub(super) users: Vec<User>,
    /// Its place in a cluster; without it the server is a cluster of one.
    member: Option<Arc<Member>>,
}

/// A user with access to the keys below a prefix.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
    pub(super) prefix: String,
}

/// A member of a cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// The port on which it listens for its peers.
    pub(super) peer: Port,
    /// The port that its peers connect to.
    pub(super) advertised: u16,
    /// All members, in the syntax of `--initial-cluster`.
    pub(super) cluster: String,
}

/// What only etcd has.
#[derive(Debug)]
pub struct State {
    pub(super) member: Arc<Member>,
    /// The port of the metrics, which need neither TLS nor a password.
    pub(super) metrics: Port,
}

impl EtcdBuilder {
    /// An option of the server, without its dashes: `quota-backend-bytes`, `max-txn-ops` … The last
    /// option of a name counts.
    pub fn option(self, name: &str, value: &str) -> Self {
        self.setting(format!("--{name}={value}"))
    }

    /// Enables authentication, with this password for root; [`url`](Etcd::url) and the kit's own
    /// commands use it.
    pub fn root_password(mut self, password: &str) -> Self {
        self.engine.root_password = Some(password.to_owned());
        self
    }

    /// Adds a user who may read and write the keys below a prefix; see [`Etcd::url_as`]. It
    /// needs [`root_password`](Self::root_password).
    pub fn user(mut self, name: &str, password: &str, prefix: &str) -> Self {
        self.engine.users.push(User {
            name: name.to_owned(),
            password: password.to_owned(),
            prefix: prefix.to_owned(),
        });
        self
    }

    pub(super) fn member(mut self, member: Member) -> Self {
        self.engine.member = Some(Arc::new(member));
        self
    }

    /// What all servers have, what this member has, the caller's options.
    fn arguments(&self, site: &Site, state: &State) -> Vec<String> {
        let member = &state.member;
        let client = endpoint(site);
        let data = site.folder.path().join("data");
        let mut all = BASICS.map(str::to_owned).to_vec();
        all.extend([
            format!("--name={}", member.name),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!(
                "--listen-peer-urls={}",
                peer_url(site.address, member.peer.number())
            ),
            format!(
                "--initial-advertise-peer-urls={}",
                peer_url(site.address, member.advertised)
            ),
            format!("--initial-cluster={}", member.cluster),
            format!(
                "--listen-metrics-urls=http://{}:{}",
                site.address,
                state.metrics.number()
            ),
        ]);
        if let Some(files) = &site.certificates {
            all.extend([
                format!("--cert-file={}", files.server_certificate().display()),
                format!("--key-file={}", files.server_key().display()),
            ]);
            if self.tls == Tls::Mutual {
                all.push("--client-cert-auth".to_owned());
                all.push(format!("--trusted-ca-file={}", files.ca_file().display()));
            }
        }
        all.extend(self.settings.iter().cloned());
        all
    }
}

impl Engine for EtcdEngine {
    const NAME: &'static str = "etcd";
    type State = State;

    fn prepare(setup: &EtcdBuilder, site: &Site) -> Result<(Recipe, State)> {
        let member = match &setup.engine.member {
            Some(member) => member.clone(),
            None => Arc::new(Member::alone(site.address)?),
        };
        let state = State {
            member,
            metrics: Port::reserve()?,
        };
        let recipe = Recipe::new("etcd", site.folder.path());
        Ok((recipe.args(setup.arguments(site, &state)), state))
    }

    /// It answers and has a leader.
    fn is_ready(etcd: &Etcd) -> bool {
        let has_leader = |metrics: EtcdMetrics| metrics.sum("etcd_server_has_leader", "") > 0;
        // Not the health alone: each look at it without a leader writes to the log.
        etcd.metrics().is_ok_and(has_leader) && is_healthy(etcd.metrics_address())
    }

    fn after_start(etcd: &Etcd, fresh: bool) -> Result<()> {
        match fresh {
            true => etcd.add_users(),
            false => Ok(()),
        }
    }

    /// `etcd://127.0.0.1:PORT`, with root's password if there is one. The same with TLS, which is an
    /// option of the client.
    fn url(etcd: &Etcd) -> String {
        match &etcd.setup.engine.root_password {
            Some(password) => etcd.url_as("root", password),
            None => format!("etcd://{}", etcd.socket_address()),
        }
    }

    fn splitter() -> Splitter {
        http2()
    }
}

impl Member {
    /// The only member of a cluster.
    fn alone(address: Ipv4Addr) -> Result<Self> {
        let peer = Port::reserve()?;
        let advertised = peer.number();
        Ok(Self {
            name: "m0".to_owned(),
            peer,
            advertised,
            cluster: format!("m0={}", peer_url(address, advertised)),
        })
    }
}

/// The URL for clients, in the syntax of etcd.
pub(super) fn endpoint(site: &Site) -> String {
    let scheme = match site.certificates {
        Some(_) => "https",
        None => "http",
    };
    format!("{scheme}://{}:{}", site.address, site.port.number())
}

/// The URL for peers at a port.
pub(super) fn peer_url(address: Ipv4Addr, port: u16) -> String {
    format!("http://{address}:{port}")
}
