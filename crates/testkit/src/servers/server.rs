//! One server of any engine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};

use super::engine::{LibcClock, Site};
use super::{Builder, Certificates, Disk, Engine, Recipe, ServerProcess, Step};

/// A running server, alone in its folder; it is killed, and the folder removed, on drop.
///
/// Each engine has an alias with more methods: [`Redis`](super::Redis),
/// [`MariaDb`](super::MariaDb), [`Etcd`](super::Etcd), [`ZooKeeper`](super::ZooKeeper).
///
/// ```
/// use clinch_testkit::servers::Etcd;
/// let etcd = Etcd::start()?;
/// etcd.pause()?; // connections stay open, no request is answered
/// etcd.resume()?;
/// etcd.kill()?;
/// assert!(!etcd.is_running());
/// etcd.start_again()?; // on the same port, with the data that it kept
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Server<E: Engine> {
    // Fields are dropped in this order: first the process, last its folder.
    process: ServerProcess,
    pub(super) state: E::State,
    pub(super) setup: Builder<E>,
    pub(super) site: Site,
}

impl<E: Engine> Server<E> {
    /// Starts a server with the defaults, and waits until it is ready.
    pub fn start() -> Result<Self> {
        Self::with().start()
    }

    /// Options for a server.
    pub fn with() -> Builder<E> {
        Builder::default()
    }

    /// Starts the process without waiting.
    pub(super) fn launch(
        recipe: Recipe,
        state: E::State,
        setup: Builder<E>,
        site: Site,
    ) -> Result<Self> {
        Ok(Self {
            process: ServerProcess::start(recipe)?,
            state,
            setup,
            site,
        })
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        E::url(self)
    }

    /// The port. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.site.port.number()
    }

    /// The address: 127.0.0.1, or its [host's](Builder::on_host).
    pub fn address(&self) -> Ipv4Addr {
        self.site.address
    }

    /// The address with the port.
    pub fn socket_address(&self) -> SocketAddr {
        (self.address(), self.port()).into()
    }

    /// The authority's certificate, if the server has [TLS](Builder::tls).
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificates().map(Certificates::ca_file)
    }

    /// All certificates, if the server has [TLS](Builder::tls).
    pub fn certificates(&self) -> Option<&Certificates> {
        self.site.certificates.as_deref()
    }

    /// The private folder with `log`, `data` and, depending on the engine, `config` and `socket`.
    pub fn folder(&self) -> &Path {
        self.site.folder.path()
    }

    /// The disk of a server that was started with [`disk`](Builder::disk).
    pub fn disk(&self) -> Option<&Disk> {
        self.site.disk.as_ref()
    }

    /// The process, for signals and the log.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Kills it, as a machine that loses its power does.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Stops it with SIGSTOP: connections stay open, no request is answered.
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Continues it after a [`pause`](Self::pause).
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Whether it runs; a paused one does.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Waits until it is ready.
    pub fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(|| E::is_ready(self))
    }

    /// Starts it again on the same port with the data that it kept, and waits until it is ready.
    /// Kills it first if it runs.
    pub fn start_again(&self) -> Result<()> {
        self.restart()?;
        self.wait_started(false)
    }

    /// Starts it again on the same port with an empty data folder, and waits until it is ready.
    /// Kills it first if it runs.
    pub fn start_empty(&self) -> Result<()> {
        self.restart_empty()?;
        self.wait_started(true)
    }

    /// [`start_again`](Self::start_again) without waiting, as a member of a cluster needs that is
    /// not ready before the others run.
    pub fn restart(&self) -> Result<()> {
        self.process.restart()
    }

    /// [`start_empty`](Self::start_empty) without waiting.
    pub fn restart_empty(&self) -> Result<()> {
        self.kill()?;
        self.site.folder.empty("data")?;
        E::fill(&self.setup, &self.site.folder)?;
        self.restart()
    }

    pub(super) fn wait_started(&self, fresh: bool) -> Result<()> {
        self.wait_ready()?;
        E::after_start(self, fresh)
    }
}

impl<E: LibcClock> Server<E> {
    /// Steps the wall clock of a server that was started with
    /// [`clock_shim`](Builder::clock_shim). Steps add up and survive restarts.
    pub fn step_clock(&self, by: Duration, step: Step) -> Result<()> {
        match &self.site.clock {
            Some(clock) => clock.step(by, step),
            None => Err(Error::invalid(format!(
                "this {} server was started without clock_shim()",
                E::NAME
            ))),
        }
    }
}

/// An error about servers that belong together, with the end of each log.
pub(super) fn group_error<'a, E: Engine>(
    what: &str,
    servers: impl IntoIterator<Item = &'a Server<E>>,
) -> Error {
    let logs = servers
        .into_iter()
        .map(|server| server.process.log_tail())
        .fold(String::new(), |all, log| all + "\n--\n" + &log);
    Error::new(ErrorKind::Unreachable, format!("{what}{logs}"))
}
