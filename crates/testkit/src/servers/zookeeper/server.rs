//! Four-letter words to one ZooKeeper server.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result};

use super::ZooKeeper;
use crate::servers::{Port, failed};

/// Limit for an answer.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

impl ZooKeeper {
    /// `zookeeper://127.0.0.1:PORT` of the port with TLS, if there is one.
    pub fn tls_url(&self) -> Option<String> {
        let port = self.state.as_ref().map(Port::number)?;
        Some(format!("zookeeper://127.0.0.1:{port}"))
    }

    /// The server's answer to a four-letter word (`ruok`, `mntr`, `cons`, `dump`, …).
    pub fn word(&self, word: &str) -> Result<String> {
        let answer = self.send(word);
        answer.map_err(|e| failed(format!("{word} to the ZooKeeper at {}", self.port()), e))
    }

    /// `standalone`, `leader` or `follower`; `None` while it does not serve.
    pub fn mode(&self) -> Option<String> {
        let answer = self.send("srvr").ok()?;
        let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
        mode.map(str::to_owned)
    }

    /// The counters of `mntr`, by name.
    pub fn counters(&self) -> Result<BTreeMap<String, String>> {
        let text = self.word("mntr")?;
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect())
    }

    /// Packets that clients have sent to this server since it started: requests, pings, and the
    /// kit's four-letter words.
    pub fn packets(&self) -> Result<u64> {
        self.counter("zk_packets_received")
    }

    /// The number of ephemeral nodes.
    pub fn ephemerals(&self) -> Result<u64> {
        self.counter("zk_ephemerals_count")
    }

    /// The number of live sessions, connected or not. A follower counts only its own.
    pub fn sessions(&self) -> Result<u64> {
        // `mntr` of a standalone server has no such counter.
        let dump = self.word("dump")?;
        let has_sets = |line: &str| {
            let rest = line.strip_prefix("Session Sets (");
            rest.is_some_and(|rest| rest.contains(')'))
        };
        if !dump.lines().any(has_sets) {
            return Err(unexpected("dump", &dump));
        }
        let listed = dump
            .lines()
            .skip_while(|line| !line.starts_with("Session Sets"))
            .take_while(|line| !line.starts_with("ephemeral nodes dump"))
            .filter(|line| line.trim_start().starts_with("0x"))
            .count();
        Ok(listed as u64)
    }

    fn counter(&self, name: &str) -> Result<u64> {
        let counters = self.counters()?;
        let value = counters.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| unexpected("mntr", &format!("{counters:?}")))
    }

    fn send(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.socket_address(), ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        // The server may have closed its side already.
        let _ = stream.shutdown(Shutdown::Both);
        Ok(answer)
    }
}

fn unexpected(word: &str, answer: &str) -> Error {
    let message = format!("unexpected answer of ZooKeeper to {word}: {answer}");
    Error::new(ErrorKind::Internal, message)
}
