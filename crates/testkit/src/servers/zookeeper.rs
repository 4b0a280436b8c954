//! One ZooKeeper server.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};

use super::zookeeper_builder::{Parts, ZooKeeperBuilder};
use super::{Certificates, Disk, Recipe, ServerProcess, failed};

/// How long an answer to a four-letter word may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A running ZooKeeper, alone in its folder; it is killed, and the folder removed, on drop.
///
/// ```
/// use clinch_testkit::servers::ZooKeeper;
/// let zookeeper = ZooKeeper::start()?;
/// assert_eq!(zookeeper.word("ruok")?, "imok");
/// assert_eq!(zookeeper.mode().as_deref(), Some("standalone"));
/// zookeeper.kill()?;
/// zookeeper.start_again()?;
/// assert_eq!(zookeeper.sessions()?, 0);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    // Fields are dropped in this order: first the process, then its folder.
    process: ServerProcess,
    parts: Parts,
}

super::process::signals!(ZooKeeper);

impl ZooKeeper {
    /// A server alone, with ticks of 200 ms and sessions of 400 ms to 10 minutes.
    pub fn start() -> Result<Self> {
        Self::with().start()
    }

    /// A server with options.
    pub fn with() -> ZooKeeperBuilder {
        ZooKeeperBuilder::default()
    }

    /// Starts the process; a member of an ensemble is not ready before the others are there.
    pub(super) fn launch(recipe: Recipe, parts: Parts) -> Result<Self> {
        Ok(Self {
            process: ServerProcess::start(recipe)?,
            parts,
        })
    }

    /// The port for clients. It stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.parts.port.number()
    }

    /// The address: 127.0.0.1, or its [host's](ZooKeeperBuilder::on_host).
    pub fn address(&self) -> Ipv4Addr {
        self.parts.address
    }

    /// `zookeeper://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("zookeeper://{}:{}", self.address(), self.port())
    }

    /// `zookeeper://127.0.0.1:PORT` of the port with TLS, where there is one.
    pub fn tls_url(&self) -> Option<String> {
        let secure = self.parts.secure.as_ref()?;
        Some(format!("zookeeper://127.0.0.1:{}", secure.port.number()))
    }

    /// The certificates of a server with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.parts.secure.as_ref().map(|secure| &secure.files)
    }

    /// The private folder: `config`, `log` and `data`.
    pub fn folder(&self) -> &Path {
        self.parts.folder.path()
    }

    /// The disk of a server that was started with [`disk`](ZooKeeperBuilder::disk).
    pub fn disk(&self) -> Option<&Disk> {
        self.parts.disk.as_ref()
    }

    /// Starts it again on the same port with its data, after killing it if it runs, and waits until
    /// it serves.
    pub fn start_again(&self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready()
    }

    /// Starts it again without waiting: a member of an ensemble serves when a majority is there.
    pub fn restart(&self) -> Result<()> {
        self.process.restart()
    }

    /// Starts it again without its data and without waiting, after killing it if it runs: a member
    /// of an ensemble gets them from the leader.
    pub fn restart_empty(&self) -> Result<()> {
        self.process.kill()?;
        self.parts.folder.empty("data/version-2")?;
        self.process.restart()
    }

    /// What the server answers to a four-letter word (`ruok`, `mntr`, `cons`, `dump`, …).
    pub fn word(&self, word: &str) -> Result<String> {
        let asked = self.ask(word);
        asked.map_err(|e| failed(format!("{word} to the ZooKeeper at {}", self.port()), e))
    }

    /// `standalone`, `leader` or `follower`, once it serves.
    pub fn mode(&self) -> Option<String> {
        let answer = self.ask("srvr").ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned)
    }

    /// What `mntr` counts, by name.
    pub fn counters(&self) -> Result<BTreeMap<String, String>> {
        let text = self.word("mntr")?;
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// Packets that clients have sent to this server since it started: requests, pings, and the
    /// words of this kit.
    pub fn packets(&self) -> Result<u64> {
        self.counter("zk_packets_received")
    }

    /// Ephemeral nodes that this server knows of.
    pub fn ephemerals(&self) -> Result<u64> {
        self.counter("zk_ephemerals_count")
    }

    /// Sessions that live, whether or not they are connected. A follower knows of its own only.
    pub fn sessions(&self) -> Result<u64> {
        // A server that stands alone does not count them among its counters.
        let dump = self.word("dump")?;
        let count = dump.lines().find_map(|line| {
            let line = line.strip_prefix("Session Sets (")?;
            line.split(')').nth(1).map(|_| ())
        });
        let listed = dump
            .lines()
            .skip_while(|line| !line.starts_with("Session Sets"))
            .take_while(|line| !line.starts_with("ephemeral nodes dump"))
            .filter(|line| line.trim_start().starts_with("0x"))
            .count();
        match count {
            Some(()) => Ok(listed as u64),
            None => Err(strange("dump", &dump)),
        }
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let counters = self.counters()?;
        let value = counters.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| strange("mntr", &format!("{counters:?}")))
    }

    fn ask(&self, word: &str) -> io::Result<String> {
        let address = (self.address(), self.port()).into();
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        // It may have closed its side already.
        let _ = stream.shutdown(Shutdown::Both);
        Ok(answer)
    }

    /// Waits until it serves.
    pub fn wait_ready(&self) -> Result<()> {
        self.process.wait_ready(|| self.mode().is_some())
    }
}

fn strange(word: &str, answer: &str) -> Error {
    let message = format!("ZooKeeper's {word} says something else: {answer}");
    Error::new(ErrorKind::Internal, message)
}
