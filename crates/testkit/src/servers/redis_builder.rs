//! How a Redis is to be set up.

use std::path::Path;

use clinch_core::Result;

use super::network::address;
use super::redis::Redis;
use super::{Certificates, ClockShim, Disk, Folder, Host, Port, Recipe, on_free_port};

/// What every server gets: no persistence, and no pauses that only large
/// installations need.
const BASICS: &str = "\
protected-mode no
daemonize no
logfile \"\"
databases 16
repl-backlog-size 256kb
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-ping-replica-period 1
";

/// Options of a [`Redis`] that is still to be started; see [`Redis::with`].
///
/// ```
/// use clinch_testkit::servers::Redis;
/// let redis = Redis::with().password("x").config("maxmemory-policy", "allkeys-lru").start()?;
/// assert!(redis.url().starts_with("redis://:x@127.0.0.1:"));
/// assert_eq!(redis.cli(&["CONFIG", "GET", "maxmemory-policy"])?, "maxmemory-policy\nallkeys-lru");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs before start()"]
pub struct RedisBuilder {
    lines: Vec<String>,
    pub(super) password: Option<String>,
    pub(super) unix_only: bool,
    /// `Some(true)` where clients must have a certificate.
    pub(super) tls: Option<bool>,
    shim: bool,
    cluster: bool,
    sentinel: bool,
    pub(super) host: Option<Host>,
    disk: Option<u32>,
}

impl RedisBuilder {
    /// A line of the configuration file: the value as it would stand there, so one with blanks that
    /// is a single argument needs its quotes. The last one of a name counts.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        let value = if value.is_empty() { "\"\"" } else { value };
        self.lines.push(format!("{name} {value}"));
        self
    }

    /// The password of the default user; [`Redis::url`] and the kit's own commands use it.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        let quoted = quote(password);
        self.config("requirepass", &quoted)
            .config("masterauth", &quoted)
    }

    /// One more user, with rules such as `~* &* +@all`; see [`Redis::url_as`].
    pub fn user(self, name: &str, password: &str, rules: &str) -> Self {
        let secret = quote(&format!(">{password}"));
        self.config("user", &format!("{name} on {secret} {rules}"))
    }

    /// Persistence by a log of all writes, flushed `always`, `everysec` or `no`: when the system does.
    pub fn append_only(self, flush: &str) -> Self {
        self.config("appendonly", "yes")
            .config("appendfsync", flush)
    }

    /// No TCP port: the socket file of [`Redis::unix_url`], which all servers have, is the only way
    /// in.
    pub fn unix_socket(mut self) -> Self {
        self.unix_only = true;
        self
    }

    /// TLS instead of the plain port, with a certificate of its own authority; see
    /// [`Redis::ca_file`].
    pub fn tls(mut self) -> Self {
        self.tls = Some(self.tls.unwrap_or_default());
        self
    }

    /// TLS for clients with a certificate only; see [`Redis::certificates`].
    pub fn tls_client_certificates(mut self) -> Self {
        self.tls = Some(true);
        self
    }

    /// A wall clock that can be moved; see [`Redis::step_clock`].
    pub fn clock_shim(mut self) -> Self {
        self.shim = true;
        self
    }

    /// A replica of the server at this port of 127.0.0.1.
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// A small disk of so many megabytes for what it keeps; see [`Redis::disk`].
    pub fn disk(mut self, megabytes: u32) -> Self {
        self.disk = Some(megabytes);
        self
    }

    /// On a host of a private network.
    pub fn on_host(mut self, host: &Host) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// A node of a cluster that is still to be made.
    pub(super) fn cluster(mut self) -> Self {
        self.cluster = true;
        self.config("cluster-enabled", "yes")
    }

    /// A sentinel instead of a server; what it watches are lines of its configuration.
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts it, and waits until it answers.
    pub fn start(self) -> Result<Redis> {
        on_free_port(|port| self.start_on(port))
    }

    fn start_on(&self, port: Port) -> Result<Redis> {
        let folder = Folder::new("redis")?;
        folder.empty("data")?;
        let disk = self
            .disk
            .map(|size| Disk::mount(&folder, "data", size))
            .transpose()?;
        let bus = self.cluster.then(Port::reserve).transpose()?;
        let certificates = self.tls.map(|_| Certificates::make(&folder)).transpose()?;
        let clock = self.shim.then(|| ClockShim::new(&folder)).transpose()?;
        let text = self.file(&folder, &port, bus.as_ref(), certificates.as_ref());
        let config = folder.write("config", text)?;
        let recipe = Recipe::new("redis-server", folder.path()).on(self.host.as_ref());
        let mut recipe = recipe.arg(config.to_string_lossy());
        if self.sentinel {
            recipe = recipe.arg("--sentinel");
        }
        if let Some(clock) = &clock {
            recipe = clock.preload(recipe);
        }
        let parts = Parts {
            setup: self.clone(),
            port,
            bus,
            clock,
            certificates,
            disk,
            folder,
        };
        Redis::launch(recipe, parts)
    }

    /// The configuration file: what all have, what this server has, what was asked for.
    fn file(
        &self,
        folder: &Folder,
        port: &Port,
        bus: Option<&Port>,
        certificates: Option<&Certificates>,
    ) -> String {
        let path = |path: &Path| quote(&path.to_string_lossy());
        let (plain, secure) = match (self.unix_only, certificates) {
            (true, _) => (0, 0),
            (false, None) => (port.number(), 0),
            (false, Some(_)) => (0, port.number()),
        };
        let mut lines = vec![
            format!("bind {}", address(self.host.as_ref())),
            format!("port {plain}"),
            format!("unixsocket {}", path(&folder.path().join("socket"))),
            format!("dir {}", path(&folder.path().join("data"))),
        ];
        if let Some(bus) = bus {
            lines.push(format!("cluster-port {}", bus.number()));
        }
        if let Some(certificates) = certificates {
            let asked = if self.tls == Some(true) { "yes" } else { "no" };
            lines.extend([
                format!("tls-port {secure}"),
                format!("tls-ca-cert-file {}", path(certificates.ca_file())),
                format!("tls-cert-file {}", path(certificates.server_certificate())),
                format!("tls-key-file {}", path(certificates.server_key())),
                format!("tls-auth-clients {asked}"),
            ]);
        }
        if !self.sentinel {
            lines.push("save \"\"\nappendonly no".to_owned());
        }
        let lines = lines.iter().chain(&self.lines);
        lines.fold(BASICS.to_owned(), |text, line| text + line + "\n")
    }
}

/// What a server is made of beside its process.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) setup: RedisBuilder,
    pub(super) port: Port,
    pub(super) bus: Option<Port>,
    pub(super) clock: Option<ClockShim>,
    pub(super) certificates: Option<Certificates>,
    // Before the folder that it is in.
    pub(super) disk: Option<Disk>,
    pub(super) folder: Folder,
}

/// An argument as the configuration file wants it.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
