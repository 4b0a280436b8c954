//! Options of a Redis server, and its configuration file.

use std::path::Path;

use clinch_core::Result;

use super::{Redis, RedisBuilder, server};
use crate::proxy::{Splitter, resp};
use crate::servers::builder::Tls;
use crate::servers::engine::{LibcClock, Site};
use crate::servers::{Engine, Port, Recipe};

/// What every server gets: no delays that only large installations need.
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

/// Redis, with its own options.
#[derive(Debug, Clone, Default)]
pub struct RedisEngine {
    pub(super) password: Option<String>,
    pub(super) unix_only: bool,
    role: Role,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Server,
    ClusterNode,
    Sentinel,
}

impl RedisBuilder {
    /// A line of the configuration file, with the value in the syntax of that file: an argument with
    /// blanks needs quotes. The last line of a name counts.
    pub fn config(self, name: &str, value: &str) -> Self {
        let value = if value.is_empty() { "\"\"" } else { value };
        self.setting(format!("{name} {value}"))
    }

    /// The password of the default user; [`url`](Redis::url) and the kit's own commands use it.
    pub fn password(mut self, password: &str) -> Self {
        self.engine.password = Some(password.to_owned());
        let quoted = quote(password);
        self.config("requirepass", &quoted)
            .config("masterauth", &quoted)
    }

    /// Adds a user, with rules such as `~* &* +@all`; see [`Redis::url_as`].
    pub fn user(self, name: &str, password: &str, rules: &str) -> Self {
        let secret = quote(&format!(">{password}"));
        self.config("user", &format!("{name} on {secret} {rules}"))
    }

    /// Persistence by a log of all writes, flushed `always`, `everysec` or `no` (by the system).
    pub fn append_only(self, flush: &str) -> Self {
        self.config("appendonly", "yes")
            .config("appendfsync", flush)
    }

    /// No TCP port: clients use the socket file of [`Redis::unix_url`].
    pub fn unix_socket(mut self) -> Self {
        self.engine.unix_only = true;
        self
    }

    /// A replica of the server at this port of 127.0.0.1.
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// A node of a cluster that is still to be formed.
    pub(super) fn cluster(mut self) -> Self {
        self.engine.role = Role::ClusterNode;
        self.config("cluster-enabled", "yes")
    }

    /// A sentinel instead of a server; lines of its configuration name what it monitors.
    pub fn sentinel(mut self) -> Self {
        self.engine.role = Role::Sentinel;
        self
    }

    /// The configuration file: what all servers have, what this one has, the caller's lines.
    fn file(&self, site: &Site, bus: Option<&Port>) -> String {
        let path = |path: &Path| quote(&path.to_string_lossy());
        let (plain, secure) = match (self.engine.unix_only, &site.certificates) {
            (true, _) => (0, 0),
            (false, None) => (site.port.number(), 0),
            (false, Some(_)) => (0, site.port.number()),
        };
        let folder = site.folder.path();
        let mut lines = vec![
            format!("bind {}", site.address),
            format!("port {plain}"),
            format!("unixsocket {}", path(&folder.join("socket"))),
            format!("dir {}", path(&folder.join("data"))),
        ];
        if let Some(bus) = bus {
            lines.push(format!("cluster-port {}", bus.number()));
        }
        if let Some(certificates) = &site.certificates {
            let clients = if self.tls == Tls::Mutual { "yes" } else { "no" };
            lines.extend([
                format!("tls-port {secure}"),
                format!("tls-ca-cert-file {}", path(certificates.ca_file())),
                format!("tls-cert-file {}", path(certificates.server_certificate())),
                format!("tls-key-file {}", path(certificates.server_key())),
                format!("tls-auth-clients {clients}"),
            ]);
        }
        if self.engine.role != Role::Sentinel {
            lines.push("save \"\"\nappendonly no".to_owned());
        }
        let lines = lines.iter().chain(&self.settings);
        lines.fold(BASICS.to_owned(), |text, line| text + line + "\n")
    }
}

impl Engine for RedisEngine {
    const NAME: &'static str = "redis";
    type State = server::State;

    fn prepare(setup: &RedisBuilder, site: &Site) -> Result<(Recipe, server::State)> {
        let is_node = setup.engine.role == Role::ClusterNode;
        let bus = is_node.then(Port::reserve).transpose()?;
        let text = setup.file(site, bus.as_ref());
        let config = site.folder.write("config", text)?;
        let recipe = Recipe::new("redis-server", site.folder.path()).arg(config.to_string_lossy());
        let recipe = match setup.engine.role {
            Role::Sentinel => recipe.arg("--sentinel"),
            Role::Server | Role::ClusterNode => recipe,
        };
        Ok((recipe, server::State::new(bus)))
    }

    /// The server opens its socket file last.
    fn is_ready(redis: &Redis) -> bool {
        redis.cli(&["PING"]).is_ok_and(|reply| reply == "PONG")
    }

    fn after_start(redis: &Redis, _fresh: bool) -> Result<()> {
        redis.resume_count()
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://` with TLS, with the default user's password if there
    /// is one; the [`unix_url`](Redis::unix_url) of a server without a port.
    fn url(redis: &Redis) -> String {
        match &redis.setup.engine.password {
            _ if redis.setup.engine.unix_only => redis.unix_url(),
            Some(password) => redis.url_as("", password),
            None => format!("{}://{}", redis.scheme(), redis.socket_address()),
        }
    }

    fn splitter() -> Splitter {
        resp()
    }
}

impl LibcClock for RedisEngine {}

/// An argument in the syntax of the configuration file.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
