//! Addresses and names that no other network has, and the end of what killed processes left.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use clinch_core::{Error, ErrorKind, Result};

use super::{tool, until};

/// Where namespaces have their names.
pub(super) const NAMESPACES: &str = "/run/netns";
/// How our names begin.
const PREFIX: &str = "clinch-testkit-";
/// The range that is kept for tests of networks (RFC 2544), in parts of sixteen addresses.
const RANGE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const PARTS: u32 = 1 << 13;

/// Sixteen addresses, and names that go with them.
#[derive(Debug)]
pub(super) struct Plot {
    number: u32,
    /// Says to other processes that it is taken; it ends with the process.
    _claim: UnixListener,
}

impl Plot {
    /// Takes one that nobody uses, after removing what nobody uses any more.
    pub(super) fn choose() -> Result<Self> {
        let _turn = turn()?;
        sweep();
        for _ in 0..100 {
            let number = RandomState::new().hash_one(0) % u64::from(PARTS);
            let number = u32::try_from(number).unwrap_or_default();
            if let Some(claim) = claim(number)
                && is_free(number)?
            {
                return Ok(Self {
                    number,
                    _claim: claim,
                });
            }
        }
        let text = "no addresses are left for a private network";
        Err(Error::new(ErrorKind::Unreachable, text))
    }

    /// The first address of the sixteen names all of them.
    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        let host = u32::try_from(host).unwrap_or_default();
        Ipv4Addr::from(base(self.number) + 1 + host)
    }

    pub(super) fn namespace(&self, part: &str) -> String {
        format!("{PREFIX}{}-{}-{part}", std::process::id(), self.number)
    }

    /// The interface of our own namespace.
    pub(super) fn interface(&self) -> String {
        interface(self.number)
    }
}

fn base(number: u32) -> u32 {
    RANGE + number * 16
}

fn interface(number: u32) -> String {
    format!("clinch{number}")
}

/// The number, if no process has it.
fn claim(number: u32) -> Option<UnixListener> {
    take(&number.to_string())
}

/// Waits until nobody else on this machine removes and chooses.
///
/// Otherwise a network that one process removes looks claimed to the next one, which would go on
/// while it is still there.
fn turn() -> Result<UnixListener> {
    let mut turn = None;
    until(|| {
        turn = take("turn");
        turn.is_some()
    });
    let text = "other processes do not stop choosing addresses for private networks";
    turn.ok_or_else(|| Error::new(ErrorKind::Unreachable, text))
}

/// A name that one process has at a time, until it ends.
fn take(name: &str) -> Option<UnixListener> {
    let name = format!("clinch-testkit-network-{name}");
    let name = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// Whether this machine has no route to any of the addresses, but for that to everywhere.
fn is_free(number: u32) -> Result<bool> {
    let part = format!("{}/28", Ipv4Addr::from(base(number)));
    for which in ["root", "match"] {
        let words = ["-4", "route", "show", "table", "all", "to", which, &part];
        let routes = tool::run("ip", &words, &[], "ip route")?;
        let taken = |route: &str| !route.is_empty() && !route.starts_with("default");
        if routes.lines().any(taken) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the networks of processes that are gone.
fn sweep() {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    for name in &names {
        let Some((pid, number)) = owner(name) else {
            continue;
        };
        let gone = !Path::new(&format!("/proc/{pid}")).exists();
        if gone && let Some(_claim) = claim(number) {
            // What cannot be removed is not ours.
            remove(&interface(number), std::slice::from_ref(name));
        }
    }
}

/// The process and the number in a namespace's name.
fn owner(name: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (pid, number) = (parts.next()?, parts.next()?);
    Some((pid.parse().ok()?, number.parse().ok()?))
}

/// Removes a network, as far as it is there.
pub(super) fn remove(interface: &str, namespaces: &[String]) {
    // The kernel takes its time over namespaces; this one is seen by everybody.
    let _ = tool::run("ip", &["link", "del", "dev", interface], &[], "ip link");
    for name in namespaces {
        let _ = tool::run("ip", &["netns", "del", name], &[], "ip netns");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_they_are() {
        assert_eq!(owner("clinch-testkit-17-204-switch"), Some((17, 204)));
        assert_eq!(owner("clinch-testkit-17-204-3"), Some((17, 204)));
        assert_eq!(owner("clinch-testkit-17"), None);
        assert_eq!(owner("other-17-204-3"), None);
    }

    #[test]
    fn a_number_is_taken_once() {
        let number = PARTS + 5; // none that is ever chosen
        let first = claim(number);
        assert!(first.is_some() && claim(number).is_none());
        drop(first);
        assert!(claim(number).is_some());
    }
}
