//! Sessions of a ZooKeeper server, and ending one from outside.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use clinch_core::Result;

use super::ZooKeeper;
use super::server::ANSWER;
use crate::servers::failed;

/// The request that ends a session: length, number, type.
const CLOSE: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 1, 255, 255, 255, 245];

impl ZooKeeper {
    /// The sessions that have ephemeral nodes, according to this server.
    pub fn owners(&self) -> Result<Vec<u64>> {
        let dump = self.word("dump")?;
        let nodes = dump
            .lines()
            .skip_while(|line| !line.starts_with("Sessions with Ephemerals"));
        let ids = nodes.filter_map(|line| {
            let digits = line.strip_prefix("0x")?.trim_end_matches(':');
            u64::from_str_radix(digits, 16).ok()
        });
        Ok(ids.collect())
    }

    /// Closes a session in its owner's name: its nodes are deleted at once, and the owner sees an
    /// expired session. `false` if there is no such session.
    ///
    /// ```
    /// use clinch_testkit::servers::ZooKeeper;
    /// let zookeeper = ZooKeeper::start()?;
    /// assert!(zookeeper.owners()?.is_empty());
    /// assert!(!zookeeper.close_session(7)?);
    /// # Ok::<(), clinch_core::Error>(())
    /// ```
    pub fn close_session(&self, id: u64) -> Result<bool> {
        let closed = take_over(self.socket_address(), id);
        closed.map_err(|e| failed(format!("cannot close the session {id:#x}"), e))
    }
}

/// Connects with the id and the password of the session, and closes it.
fn take_over(server: SocketAddr, id: u64) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    // Protocol, last change seen, timeout, session, length of the password, password, read only.
    let mut hello = vec![0; 12];
    hello.extend(30_000_i32.to_be_bytes());
    hello.extend(id.to_be_bytes());
    hello.extend(16_i32.to_be_bytes());
    hello.extend(password(id));
    hello.push(0);
    stream.write_all(&[0, 0, 0, 45])?;
    stream.write_all(&hello)?;
    let mut welcome = [0; 40];
    stream.read_exact(&mut welcome)?;
    // Length, protocol, timeout, session: 0 if the session has ended.
    if welcome.get(12..20) != Some(&id.to_be_bytes()[..]) {
        return Ok(false);
    }
    stream.write_all(&CLOSE)?;
    // The server ends the connection, perhaps with a reset.
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(true)
}

/// The password of a session. Servers compute it from the id: sixteen bytes of Java's `Random`.
fn password(id: u64) -> Vec<u8> {
    const SECRET: u64 = 0xB341_5C00;
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const BITS: u64 = (1 << 48) - 1;
    let mut seed = (id ^ SECRET ^ FACTOR) & BITS;
    let mut next = || {
        seed = seed.wrapping_mul(FACTOR).wrapping_add(0xB) & BITS;
        let [a, b, c, d, ..] = (seed >> 16).to_le_bytes();
        [a, b, c, d]
    };
    (0..4).flat_map(|_| next()).collect()
}
