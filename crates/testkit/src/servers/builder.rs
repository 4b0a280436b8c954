//! Options of a server, and its start.

use std::net::Ipv4Addr;
use std::sync::Arc;

use clinch_core::Result;

use super::engine::{LibcClock, Site};
use super::network::address;
use super::{Certificates, ClockShim, Disk, Engine, Folder, Host, Port, Server, on_free_port};

/// Options of a [`Server`] that is still to be started; see [`Server::with`].
///
/// Each engine has an alias with more options: [`RedisBuilder`](super::RedisBuilder),
/// [`MariaDbBuilder`](super::MariaDbBuilder), [`EtcdBuilder`](super::EtcdBuilder),
/// [`ZooKeeperBuilder`](super::ZooKeeperBuilder).
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::with().tls().start()?;
/// assert!(etcd.ca_file().is_some());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct Builder<E> {
    /// The options that only this engine has.
    pub(super) engine: E,
    /// Lines of the configuration file, or arguments of the command.
    pub(super) settings: Vec<String>,
    pub(super) tls: Tls,
    /// Made before, for servers that share them.
    certificates: Option<Arc<Certificates>>,
    clock: bool,
    disk: Option<u32>,
    host: Option<Host>,
}

/// Who needs a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tls {
    #[default]
    Off,
    /// The server only.
    Server,
    /// The server and its clients.
    Mutual,
}

impl<E: Engine> Builder<E> {
    /// TLS with a certificate of a new authority; see [`Server::ca_file`].
    ///
    /// ZooKeeper gets a second port for TLS, which always requires a client certificate.
    pub fn tls(mut self) -> Self {
        if self.tls == Tls::Off {
            self.tls = Tls::Server;
        }
        self
    }

    /// TLS only for clients that have a certificate; see [`Server::certificates`].
    pub fn tls_client_certificates(mut self) -> Self {
        self.tls = Tls::Mutual;
        self
    }

    /// A small disk of this size for the data; see [`Server::disk`].
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// On a host of a private network.
    pub fn on_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// 127.0.0.1, or the address of its host.
    pub(super) fn address(&self) -> Ipv4Addr {
        address(self.host.as_ref())
    }

    pub(super) fn setting(mut self, setting: String) -> Self {
        self.settings.push(setting);
        self
    }

    /// Uses certificates that other servers use too; their folder must outlive the server.
    pub(super) fn share(mut self, certificates: Option<Arc<Certificates>>) -> Self {
        self.certificates = certificates;
        self
    }

    /// The shared certificates, or new ones in the folder, if there is TLS.
    pub(super) fn certificates_in(&self, folder: &Folder) -> Result<Option<Arc<Certificates>>> {
        match (&self.certificates, self.tls) {
            (_, Tls::Off) => Ok(None),
            (Some(shared), _) => Ok(Some(shared.clone())),
            (None, _) => Certificates::make(folder).map(|made| Some(Arc::new(made))),
        }
    }

    /// Starts it, and waits until it is ready.
    pub fn start(self) -> Result<Server<E>> {
        on_free_port(|port| {
            let server = self.launch(port)?;
            server.wait_started(true)?;
            Ok(server)
        })
    }

    /// Starts it without waiting: a member of a cluster is not ready before the others run.
    pub(super) fn launch(&self, port: Port) -> Result<Server<E>> {
        let folder = Folder::new(E::NAME)?;
        folder.empty("data")?;
        let mount = |megabytes| Disk::mount(&folder, "data", megabytes);
        let disk = self.disk.map(mount).transpose()?;
        E::fill(self, &folder)?;
        let site = Site {
            address: self.address(),
            port,
            clock: self.clock.then(|| ClockShim::new(&folder)).transpose()?,
            certificates: self.certificates_in(&folder)?,
            disk,
            folder,
        };
        let (recipe, state) = E::prepare(self, &site)?;
        let recipe = recipe.on(self.host.as_ref());
        let recipe = match &site.clock {
            Some(clock) => clock.preload(recipe),
            None => recipe,
        };
        Server::launch(recipe, state, self.clone(), site)
    }
}

impl<E: LibcClock> Builder<E> {
    /// A wall clock that can be moved; see [`Server::step_clock`].
    pub fn clock_shim(mut self) -> Self {
        self.clock = true;
        self
    }
}
