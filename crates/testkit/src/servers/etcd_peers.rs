//! What stands between the members of an etcd cluster, so that one can be cut off.
//!
//! Each member tells the others an address at which a [`Gate`] listens and passes on to the member
//! itself. A member says in each request who it is, so the gate knows both ends of a connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use clinch_core::Result;

use super::{Port, failed};

/// The line of a request by which a member says its id.
const FROM: &str = "x-server-from:";

/// The connections to one member.
#[derive(Debug)]
pub(super) struct Gate {
    /// What the others connect to.
    port: Port,
    closed: Arc<AtomicBool>,
}

/// Who is cut off, and what is open.
#[derive(Debug, Default)]
pub(super) struct Cuts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Names of members.
    off: Vec<String>,
    /// The ids by which members call themselves, and their names.
    names: Vec<(String, String)>,
    links: Vec<Link>,
}

/// A connection between two members.
#[derive(Debug)]
struct Link {
    /// The id of who opened it; empty if it did not say.
    from: String,
    /// The name of whom it leads to.
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

    /// Learns what members call themselves.
    pub(super) fn learn(&self, names: Vec<(String, String)>) {
        self.state().names = names;
    }

    /// Cuts off exactly these members, and ends what they have open.
    pub(super) fn set(&self, off: Vec<String>) {
        let mut state = self.state();
        state.off = off;
        let links = std::mem::take(&mut state.links);
        let (ended, kept) = links.into_iter().partition(|link| state.is_off(link));
        state.links = kept;
        drop(state);
        let ended: Vec<Link> = ended;
        for stream in ended.iter().flat_map(|link| &link.ends) {
            // One that has ended by itself needs no end.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Gate {
    /// Listens for those who want to talk to the member of this name, which listens at `inner`.
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
                // A connection that fails is one that the member opens again.
                thread::spawn(move || pass(client, &name, inner, &cuts));
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
        // The thread looks when somebody comes.
        let _ = TcpStream::connect(("127.0.0.1", self.port()));
    }
}

/// Passes bytes both ways until one side ends.
fn pass(mut client: TcpStream, to: &str, inner: u16, cuts: &Cuts) -> io::Result<()> {
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
        // It ended, in whatever way: so does the other direction.
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

/// The bytes up to the end of the first request's head.
fn head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(head)
}

/// The id that a head names as its sender.
fn sender(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix(FROM));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_say_who_they_are() {
        let head = b"GET /raft/stream HTTP/1.1\r\nHost: a\r\nX-Server-From: 8E9e\r\n\r\n";
        assert_eq!(sender(head), "8e9e");
        assert_eq!(sender(b"GET /raft/probing HTTP/1.1\r\n\r\n"), "");
    }
}
