//! One Redis server.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};

use super::network::address;
use super::redis_builder::{Parts, RedisBuilder};
use super::redis_monitor::Monitor;
use super::resp::{Client, Reply};
use super::{Certificates, Disk, Port, Recipe, ServerProcess, Step, failed};

/// A running Redis, alone in its folder; it is killed, and the folder removed, on drop.
///
/// Its own commands go through a socket file, which every server has beside its port.
///
/// ```
/// use clinch_testkit::servers::Redis;
/// let redis = Redis::with().append_only("always").start()?;
/// redis.cli(&["SET", "a", "1"])?;
/// redis.kill()?;
/// redis.start_again()?;
/// assert_eq!(redis.cli(&["GET", "a"])?, "1");
/// redis.start_empty()?;
/// assert_eq!(redis.cli(&["DBSIZE"])?, "0");
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Redis {
    // Fields are dropped in this order: first the process, then its folder.
    process: ServerProcess,
    parts: Parts,
    monitor: Mutex<Option<Monitor>>,
}

super::process::signals!(Redis);

impl Redis {
    /// A server without persistence and password.
    pub fn start() -> Result<Self> {
        Self::with().start()
    }

    /// A server with options.
    pub fn with() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(super) fn launch(recipe: Recipe, parts: Parts) -> Result<Self> {
        let redis = Self {
            process: ServerProcess::start(recipe)?,
            parts,
            monitor: Mutex::new(None),
        };
        redis.wait_ready()?;
        Ok(redis)
    }

    /// The port. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.parts.port.number()
    }

    /// The address: 127.0.0.1, or its [host's](RedisBuilder::on_host).
    pub fn address(&self) -> Ipv4Addr {
        address(self.parts.setup.host.as_ref())
    }

    /// The port on which the nodes of a cluster talk.
    pub(super) fn bus_port(&self) -> Option<u16> {
        self.parts.bus.as_ref().map(Port::number)
    }

    /// `redis://127.0.0.1:PORT`, or `rediss://` with TLS, with the default user's password if there
    /// is one; the [`unix_url`](Self::unix_url) of a server without a port.
    pub fn url(&self) -> String {
        match &self.parts.setup.password {
            _ if self.parts.setup.unix_only => self.unix_url(),
            Some(password) => self.url_as("", password),
            None => format!("{}://{}:{}", self.scheme(), self.address(), self.port()),
        }
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (scheme, address, port) = (self.scheme(), self.address(), self.port());
        format!("{scheme}://{user}:{password}@{address}:{port}")
    }

    /// `redis+unix:///PATH`, without a password.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The socket file.
    pub fn socket(&self) -> PathBuf {
        self.parts.folder.path().join("socket")
    }

    /// The authority of a server with TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        self.certificates().map(Certificates::ca_file)
    }

    /// All certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.parts.certificates.as_ref()
    }

    /// The private folder: `config`, `log`, `socket` and `data`.
    pub fn folder(&self) -> &Path {
        self.parts.folder.path()
    }

    /// The disk of a server that was started with [`disk`](RedisBuilder::disk).
    pub fn disk(&self) -> Option<&Disk> {
        self.parts.disk.as_ref()
    }

    /// Starts it again on the same port with the data that it kept, after killing it if it runs.
    pub fn start_again(&self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready()?;
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = monitor.take() {
            *monitor = Some(self.monitor(old.last())?);
        }
        Ok(())
    }

    /// Starts it again on the same port with an empty data folder, after killing it if it runs.
    pub fn start_empty(&self) -> Result<()> {
        self.process.kill()?;
        self.parts.folder.empty("data")?;
        self.start_again()
    }

    /// Steps the wall clock of a server that was started with
    /// [`clock_shim`](RedisBuilder::clock_shim). Steps add up and outlive restarts.
    pub fn step_clock(&self, by: Duration, step: Step) -> Result<()> {
        match &self.parts.clock {
            Some(clock) => clock.step(by, step),
            None => Err(Error::invalid(
                "this Redis was started without clock_shim()",
            )),
        }
    }

    /// Runs a command as the default user and gives the reply as `redis-cli` prints it to a pipe.
    /// A refusal is an error.
    pub fn cli(&self, words: &[&str]) -> Result<String> {
        self.command(words).map(|reply| reply.to_string())
    }

    /// Runs a command as the default user. A refusal is an error.
    pub fn command(&self, words: &[&str]) -> Result<Reply> {
        let told = || format!("{} to the Redis at {}", words.join(" "), self.port());
        let reply = self.client().and_then(|mut client| client.call(words));
        match reply {
            Ok(Reply::Refused(why)) => {
                let message = format!("{}: {why}", told());
                Err(Error::new(ErrorKind::Invalid, message).with_store("redis"))
            }
            Ok(reply) => Ok(reply),
            Err(e) => Err(failed(told(), e)),
        }
    }

    /// A section of INFO (`server`, `replication`, `commandstats` …) as names and values.
    pub fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let text = self.cli(&["INFO", section])?;
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// Every key that matches, of the first database, with its type, content and time to live: to
    /// show what is left.
    pub fn dump_keys(&self, pattern: &str) -> Result<BTreeMap<String, String>> {
        let mut keys = BTreeMap::new();
        for key in self.command(&["KEYS", pattern])?.texts() {
            let kind = self.cli(&["TYPE", &key])?;
            let content = match kind.as_str() {
                "string" => self.cli(&["GET", &key])?,
                "hash" => self.cli(&["HGETALL", &key])?,
                "list" => self.cli(&["LRANGE", &key, "0", "-1"])?,
                "set" => self.cli(&["SMEMBERS", &key])?,
                "zset" => self.cli(&["ZRANGE", &key, "0", "-1", "WITHSCORES"])?,
                "stream" => self.cli(&["XRANGE", &key, "-", "+"])?,
                // It ended since we asked for the keys.
                _ => continue,
            };
            let ttl = self.cli(&["PTTL", &key])?;
            let content = content.replace('\n', " ");
            keys.insert(key, format!("{kind} [{content}] pttl {ttl}"));
        }
        Ok(keys)
    }

    /// How many commands clients have sent since this was first called; 0 the first time.
    ///
    /// They are taken from MONITOR, which says who sent each, not from INFO commandstats, which
    /// adds what scripts call to what clients send. A script is one command, whatever it calls; so
    /// is each command of a transaction. The commands that log in (AUTH, HELLO) and those of
    /// administration (CONFIG, …) are not shown there and do not count; what the kit itself sends
    /// counts only on a server whose clients come through the same
    /// [socket file](RedisBuilder::unix_socket). What was under way when the server was killed may
    /// be lost.
    pub fn command_count(&self) -> Result<u64> {
        let mut monitor = self.monitor.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = match monitor.as_mut() {
            Some(monitor) => self.client().and_then(|control| monitor.count(control)),
            None => {
                *monitor = Some(self.monitor(0)?);
                Ok(0)
            }
        };
        counted.map_err(|e| failed("cannot count commands", e))
    }

    fn monitor(&self, count: u64) -> Result<Monitor> {
        let client = self.client();
        let unix = self.parts.setup.unix_only;
        let monitor = client.and_then(|client| Monitor::new(client, unix, count));
        monitor.map_err(|e| failed("cannot watch the commands", e))
    }

    fn scheme(&self) -> &'static str {
        match self.parts.certificates {
            Some(_) => "rediss",
            None => "redis",
        }
    }

    fn client(&self) -> io::Result<Client> {
        let mut client = Client::connect(&self.socket())?;
        if let Some(password) = &self.parts.setup.password {
            client.call(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// The socket file is the last thing that a server opens, and is its own.
    fn wait_ready(&self) -> Result<()> {
        let ready = || matches!(self.command(&["PING"]), Ok(Reply::Text(pong)) if pong == "PONG");
        self.process.wait_ready(ready)
    }
}
