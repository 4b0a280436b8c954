//! Commands to one Redis server.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clinch_core::{Error, ErrorKind, Result};

use super::Redis;
use super::monitor::Monitor;
use super::resp::{Client, Reply};
use crate::servers::{Port, failed};

/// What only Redis has.
#[derive(Debug)]
pub struct State {
    /// The port on which the nodes of a cluster talk to each other.
    bus: Option<Port>,
    monitor: Mutex<Option<Monitor>>,
}

impl State {
    pub(super) fn new(bus: Option<Port>) -> Self {
        Self {
            bus,
            monitor: Mutex::new(None),
        }
    }
}

impl Redis {
    /// The port on which the nodes of a cluster talk to each other.
    pub(super) fn bus_port(&self) -> Option<u16> {
        self.state.bus.as_ref().map(Port::number)
    }

    /// The URL for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (scheme, address) = (self.scheme(), self.socket_address());
        format!("{scheme}://{user}:{password}@{address}")
    }

    /// `redis+unix:///PATH`, without a password.
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The socket file.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    /// Runs a command as the default user and returns the reply as `redis-cli` prints it to a pipe.
    /// An error reply is an error.
    pub fn cli(&self, args: &[&str]) -> Result<String> {
        self.command(args).map(|reply| reply.to_string())
    }

    /// Runs a command as the default user. An error reply is an error.
    pub fn command(&self, args: &[&str]) -> Result<Reply> {
        let reply = self.client().and_then(|mut client| client.call(args));
        self.checked(args, reply)
    }

    /// Runs a command on a key of a slot that this server imports. Without `ASKING`, it would redirect to
    /// the slot's owner.
    pub fn importing(&self, args: &[&str]) -> Result<Reply> {
        let reply = self.client().and_then(|mut client| {
            client.call(&["ASKING"])?;
            client.call(args)
        });
        self.checked(args, reply)
    }

    fn checked(&self, args: &[&str], reply: io::Result<Reply>) -> Result<Reply> {
        let what = || format!("{} to the Redis at {}", args.join(" "), self.port());
        match reply {
            Ok(Reply::Refused(why)) => {
                let message = format!("{}: {why}", what());
                Err(Error::new(ErrorKind::Invalid, message).with_store("redis"))
            }
            Ok(reply) => Ok(reply),
            Err(e) => Err(failed(what(), e)),
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

    /// Every key of the first database that matches, with its type, content and time to live.
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
                // It expired after KEYS.
                _ => continue,
            };
            let ttl = self.cli(&["PTTL", &key])?;
            let content = content.replace('\n', " ");
            keys.insert(key, format!("{kind} [{content}] pttl {ttl}"));
        }
        Ok(keys)
    }

    /// The number of commands that clients have sent since the first call, which returns 0.
    ///
    /// Counted with MONITOR, which names the sender of each command. INFO commandstats cannot be
    /// used: it adds what scripts call to what clients send. A script is one command, whatever it
    /// calls; so is each command of a transaction. MONITOR does not show, and so this does not
    /// count, the commands that log in (AUTH, HELLO) and those of administration (CONFIG, …). The
    /// kit's own commands count only on a server whose clients use the same
    /// [socket file](super::RedisBuilder::unix_socket). Commands that were under way when the server was
    /// killed may be lost.
    pub fn command_count(&self) -> Result<u64> {
        let mut monitor = self.monitor();
        let counted = match monitor.as_mut() {
            Some(monitor) => self.client().and_then(|control| monitor.count(control)),
            None => {
                *monitor = Some(self.new_monitor(0)?);
                Ok(0)
            }
        };
        counted.map_err(|e| failed("cannot count commands", e))
    }

    /// Goes on counting after a restart, which ended the monitor's connection.
    pub(super) fn resume_count(&self) -> Result<()> {
        let mut monitor = self.monitor();
        if let Some(old) = monitor.take() {
            *monitor = Some(self.new_monitor(old.last())?);
        }
        Ok(())
    }

    fn monitor(&self) -> MutexGuard<'_, Option<Monitor>> {
        let monitor = &self.state.monitor;
        monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_monitor(&self, count: u64) -> Result<Monitor> {
        let client = self.client();
        let unix = self.setup.engine.unix_only;
        let monitor = client.and_then(|client| Monitor::new(client, unix, count));
        monitor.map_err(|e| failed("cannot monitor the commands", e))
    }

    pub(super) fn scheme(&self) -> &'static str {
        match self.certificates() {
            Some(_) => "rediss",
            None => "redis",
        }
    }

    fn client(&self) -> io::Result<Client> {
        let mut client = Client::connect(&self.socket())?;
        if let Some(password) = &self.setup.engine.password {
            client.call(&["AUTH", password])?;
        }
        Ok(client)
    }
}
