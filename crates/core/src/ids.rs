//! Request ids, owners, clients.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies one claim: a request repeated with the same id, after a lost reply, is idempotent.
///
/// It consists of the client's random number and a counter, so it is unique without a system call.
///
/// ```
/// use clinch::store::{Identity, RequestId};
/// let me = Identity::new();
/// let (a, b) = (me.request(), me.request());
/// assert!(a != b && a.client() == b.client());
/// assert_eq!(a.to_string().parse::<RequestId>().unwrap(), a);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    client: u64,
    serial: u64,
}

impl RequestId {
    /// The id as a number.
    pub fn as_u128(self) -> u128 {
        u128::from(self.client) << 64 | u128::from(self.serial)
    }

    /// The inverse of [`as_u128`](Self::as_u128).
    pub fn from_u128(id: u128) -> Self {
        let half = |part: u128| u64::try_from(part & u128::from(u64::MAX)).unwrap_or_default();
        Self {
            client: half(id >> 64),
            serial: half(id),
        }
    }

    /// The client that made it.
    pub fn client(self) -> ClientId {
        ClientId(self.client)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.client, self.serial)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RequestId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self::from_u128)
    }
}

/// The random id of one connected client (one `connect`).
///
/// ```
/// use clinch::{Clinch, ClientId};
/// let (a, b) = (Clinch::memory(), Clinch::memory());
/// assert_ne!(a.client_id(), b.client_id());
/// assert_eq!(a.client_id().to_string().parse::<ClientId>().unwrap(), a.client_id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(u64);

impl ClientId {
    /// The inverse of [`get`](Self::get).
    pub fn from_u64(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClientId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// The owner of a hold or a claim, as `clinch list` shows it.
///
/// ```
/// # clinch::blocking::block_on(async {
/// # let clinch = clinch::Clinch::memory();
/// let me = clinch.owner();
/// let guard = clinch.lock("a").as_owner(&me).acquire().await?;
/// assert_eq!(guard.owner().as_str(), me.id().as_str());
/// # Ok::<_, clinch::Error>(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// An owner id from text, as a store has recorded it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The client behind a claim: what an operator needs to find it.
///
/// ```
/// let info = clinch::store::Identity::new().info().clone();
/// assert_eq!(info.pid, std::process::id());
/// assert!(!info.host.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The client's random id.
    pub id: ClientId,
    /// The machine's host name.
    pub host: String,
    /// The process id on that host.
    pub pid: u32,
}

impl ClientInfo {
    /// A client as a store has recorded it.
    pub fn new(id: ClientId, host: impl Into<String>, pid: u32) -> Self {
        Self {
            id,
            host: host.into(),
            pid,
        }
    }
}

/// Makes request ids for one client.
///
/// ```
/// use clinch::store::Identity;
/// let (a, b) = (Identity::new(), Identity::new());
/// assert_eq!(a.request().client(), a.info().id);
/// assert_ne!(a.info().id, b.info().id); // two clients, even in one process
/// ```
#[derive(Debug)]
pub struct Identity {
    info: Arc<ClientInfo>,
    serial: AtomicU64,
}

impl Identity {
    /// A new random client of this process.
    pub fn new() -> Self {
        Self {
            info: Arc::new(ClientInfo::new(ClientId(random_u64()), host(), pid())),
            serial: AtomicU64::new(1),
        }
    }

    /// The client.
    pub fn info(&self) -> &Arc<ClientInfo> {
        &self.info
    }

    /// A fresh request id.
    pub fn request(&self) -> RequestId {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        RequestId {
            client: self.info.id.0,
            serial,
        }
    }
}

impl Identity {
    /// A unique owner, for a claim that sets none.
    pub(crate) fn owner(&self) -> OwnerId {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        OwnerId::new(format!("{}-{serial:x}", self.info.id))
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

/// 64 random bits from the operating system, by way of the keys of a fresh hasher.
pub(crate) fn random_u64() -> u64 {
    #[cfg(test)]
    if let Some(number) = crate::explore::hook::random() {
        return number;
    }
    // Each RandomState differs from the last one only by an increment, so the counter is hashed as
    // well; the boot clock and the pid separate forked children.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let state = RandomState::new();
    state.hash_one((call, pid(), crate::time::boot_nanos()))
}

/// This process.
pub(crate) fn pid() -> u32 {
    std::process::id()
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_printing_and_differ() {
        let identity = Identity::new();
        let (a, b) = (identity.request(), identity.request());
        assert_ne!(a, b);
        assert_eq!(a.to_string().parse::<RequestId>().unwrap(), a);
        assert_eq!(a.client(), identity.info().id);
        assert_ne!(Identity::new().info().id, identity.info().id);
    }
}
