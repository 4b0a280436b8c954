//! How a Redis is to be set up.

use std::path::Path;

use clinch_core::Result;

use super::redis::Redis;
use super::{Folder, Port, Recipe, on_free_port};

/// What every server gets: loopback only, no persistence, and no pauses that only large
/// installations need.
const BASICS: &str = "\
bind 127.0.0.1
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
    cluster: bool,
    sentinel: bool,
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

    /// Persistence by a log of all writes, flushed `always` or `everysec`.
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

    /// A replica of the server at this port of 127.0.0.1.
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// A node of a cluster that is still to be made.
    pub(super) fn cluster(mut self) -> Self {
        self.cluster = true;
        self.config("cluster-enabled", "yes")
    }

    /// A sentinel instead of a server.
    pub(super) fn sentinel(mut self) -> Self {
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
        let bus = self.cluster.then(Port::reserve).transpose()?;
        let socket = folder.path().join("socket");
        let open = if self.unix_only { 0 } else { port.number() };
        let mut lines = vec![
            format!("port {open}"),
            format!("unixsocket {}", quote(&socket.to_string_lossy())),
        ];
        lines.extend(
            bus.iter()
                .map(|bus| format!("cluster-port {}", bus.number())),
        );
        if !self.sentinel {
            lines.push("save \"\"\nappendonly no".to_owned());
        }
        let config = folder.write("config", self.text(&lines, &folder.path().join("data")))?;
        let mut recipe = Recipe::new("redis-server", folder.path()).arg(config.to_string_lossy());
        if self.sentinel {
            recipe = recipe.arg("--sentinel");
        }
        Redis::launch(self.clone(), recipe, folder, port, bus)
    }

    fn text(&self, own: &[String], data: &Path) -> String {
        let dir = format!("dir {}", quote(&data.to_string_lossy()));
        let lines = own.iter().chain([&dir]).chain(&self.lines);
        lines.fold(BASICS.to_owned(), |text, line| text + line + "\n")
    }
}

/// An argument as the configuration file wants it.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
