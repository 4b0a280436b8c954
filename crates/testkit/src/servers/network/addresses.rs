//! Blocks of addresses and names that are unique on this machine, and the cleanup after killed
//! processes.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use clinch_core::{Error, ErrorKind, Result};

use crate::servers::{tool, until_some};

/// Has a file for each named namespace.
pub(super) const NAMESPACES: &str = "/run/netns";
/// The names of our namespaces begin with this.
const PREFIX: &str = "clinch-testkit-";
/// The range for tests of networks (RFC 2544), in blocks of sixteen addresses.
const RANGE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const BLOCKS: u32 = 1 << 13;

/// Sixteen addresses, and the names that belong to them.
#[derive(Debug)]
pub(super) struct Block {
    number: u32,
    /// Reserves it among processes; ends with the process.
    _claim: UnixListener,
}

impl Block {
    /// Reserves an unused one, after removing the networks of processes that have ended.
    pub(super) fn choose() -> Result<Self> {
        let _exclusive = exclusive()?;
        sweep();
        for _ in 0..100 {
            let number = RandomState::new().hash_one(0) % u64::from(BLOCKS);
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

    /// The address of a host; the first of the sixteen is the address of the block itself.
    pub(super) fn address(&self, host: usize) -> Ipv4Addr {
        let host = u32::try_from(host).unwrap_or_default();
        Ipv4Addr::from(base(self.number) + 1 + host)
    }

    pub(super) fn namespace(&self, part: &str) -> String {
        format!("{PREFIX}{}-{}-{part}", std::process::id(), self.number)
    }

    /// The interface in the namespace of this process.
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

/// Reserves the number; `None` if a process has it.
fn claim(number: u32) -> Option<UnixListener> {
    take(&number.to_string())
}

/// Waits until no other process on this machine removes networks and chooses numbers.
///
/// Otherwise a network that one process is removing looks reserved to the next process, which would
/// go on while it still exists.
fn exclusive() -> Result<UnixListener> {
    let text = "other processes do not stop choosing addresses for private networks";
    until_some(|| take("turn")).ok_or_else(|| Error::new(ErrorKind::Unreachable, text))
}

/// Takes a name that one process has at a time, until it ends.
fn take(name: &str) -> Option<UnixListener> {
    let name = format!("clinch-testkit-network-{name}");
    let name = SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&name).ok()
}

/// Whether this machine has no route to any of the addresses, except the default route.
fn is_free(number: u32) -> Result<bool> {
    let block = format!("{}/28", Ipv4Addr::from(base(number)));
    for which in ["root", "match"] {
        let args = ["-4", "route", "show", "table", "all", "to", which, &block];
        let routes = tool::run("ip", &args, &[], "ip route")?;
        let taken = |route: &str| !route.is_empty() && !route.starts_with("default");
        if routes.lines().any(taken) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the networks of processes that have ended.
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
            // An error is ignored: it belongs to another user then.
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

/// Removes a network, or what there is of it.
pub(super) fn remove(interface: &str, namespaces: &[String]) {
    // First and separately: the kernel removes namespaces late, and this interface is in our own.
    let _ = tool::run("ip", &["link", "del", "dev", interface], &[], "ip link");
    for name in namespaces {
        let _ = tool::run("ip", &["netns", "del", name], &[], "ip netns");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_their_owner() {
        assert_eq!(owner("clinch-testkit-17-204-switch"), Some((17, 204)));
        assert_eq!(owner("clinch-testkit-17-204-3"), Some((17, 204)));
        assert_eq!(owner("clinch-testkit-17"), None);
        assert_eq!(owner("other-17-204-3"), None);
    }

    #[test]
    fn a_number_is_taken_once() {
        let number = BLOCKS + 5; // outside the range that is chosen from
        let first = claim(number);
        assert!(first.is_some() && claim(number).is_none());
        drop(first);
        assert!(claim(number).is_some());
    }
}
