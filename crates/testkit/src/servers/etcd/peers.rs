//! Proxies between the members of an etcd cluster, so that one can be cut off.
//!
//! Each member advertises the address of a [`Gate`], which forwards to the member itself. Each
//! request between members names its sender, which identifies both ends of a connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use clinch_core::Result;

use crate::servers::{Port, failed};

/// The header with the sender's id.
const FROM: &str = "x-server-from:";

/// The proxy before one member.
#[derive(Debug)]
pub(super) struct Gate {
    /// The port that the others connect to.
    port: Port,
    closed: Arc<AtomicBool>,
}

/// Which members are cut off, and the open connections.
#[derive(Debug, Default)]
pub(super) struct Cuts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Names of members.
    off: Vec<String>,
    /// The ids of the members, and their names.
    names: Vec<(String, String)>,
    links: Vec<Link>,
}

/// A connection between two members.
#[derive(Debug)]
struct Link {
    /// The id of the member that opened it; empty if the request does not name it.
    from: String,
    /// The name of the member that it leads to.
    to: String,
    ends: [TcpStream; 2],
}

impl State {
    fn is_off(&self, link: &Link) -> bool {
        let name = self.names.iter().find(|(id, _)| *id == link.from);
        let from = name.map(|(_, name)| name);
        self.off
            .iter()
            .any(|off| *off == link.to || Some(off) == from)
    }
}

impl Cuts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the ids of the members, and their names.
    pub(super) fn set_names(&self, names: Vec<(String, String)>) {
        self.state().names = names;
    }

    /// Cuts off exactly these members, and ends their connections.
    pub(super) fn set(&self, off: Vec<String>) {
        let mut state = self.state();
        state.off = off;
        let links = std::mem::take(&mut state.links);
        let (ended, kept) = links.into_iter().partition(|link| state.is_off(link));
        state.links = kept;
        drop(state);
        let ended: Vec<Link> = ended;
        for stream in ended.iter().flat_map(|link| &link.ends) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Gate {
    /// Listens for the peers of the member `name`, which itself listens at `inner`.
    pub(super) fn open(name: &str, port: Port, inner: u16, cuts: &Arc<Cuts>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port.number()));
        let listener = listener.map_err(|e| failed("cannot listen for peers", e))?;
        let (name, cuts) = (name.to_owned(), cuts.clone());
        let closed = Arc::new(AtomicBool::new(false));
        let over = closed.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (name, cuts) = (name.clone(), cuts.clone());
                // After a failure the member opens the connection again.
                thread::spawn(move || forward(client, &name, inner, &cuts));
            }
        });
        Ok(Self { port, closed })
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // The thread checks the flag at the next connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port()));
    }
}

/// Forwards bytes both ways until one side ends.
fn forward(mut client: TcpStream, to: &str, inner: u16, cuts: &Cuts) -> io::Result<()> {
    let head = head(&mut client)?;
    let mut server = TcpStream::connect(("127.0.0.1", inner))?;
    let link = Link {
        from: sender(&head),
        to: to.to_owned(),
        ends: [client.try_clone()?, server.try_clone()?],
    };
    {
        let mut state = cuts.state();
        if state.is_off(&link) {
            return Ok(());
        }
        state.links.push(link);
    }
    server.write_all(&head)?;
    let (mut back, mut front) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        // Whatever ended it, the other direction ends too.
        let _ = io::copy(&mut back, &mut front);
        let _ = (
            back.shutdown(Shutdown::Both),
            front.shutdown(Shutdown::Both),
        );
    });
    let _ = io::copy(&mut client, &mut server);
    let _ = (
        client.shutdown(Shutdown::Both),
        server.shutdown(Shutdown::Both),
    );
    Ok(())
}

/// The first request up to the end of its headers.
fn head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(head)
}

/// The sender's id in the headers.
fn sender(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix(FROM));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_their_sender() {
        let head = b"GET /raft/stream HTTP/1.1\r\nHost: a\r\nX-Server-From: 8E9e\r\n\r\n";
        assert_eq!(sender(head), "8e9e");
        assert_eq!(sender(b"GET /raft/probing HTTP/1.1\r\n\r\n"), "");
    }
}
