//! The way of a worker process to the store: a fault proxy for each server, and for each worker its
//! own.

use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs as _};
use std::sync::{Mutex, PoisonError};

use clinch::store::StoreUrl;
use clinch::{Error, ErrorKind, Result};
use clinch_testkit::proxy::{
    Direction, Flow, Link, Places, Proxy, Splitter, Then, http2, jute, mysql, resp,
    resp_with_places,
};

/// Where the servers of a URL are, or that they cannot be put behind a proxy.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    url: String,
    servers: Vec<SocketAddr>,
    scheme: String,
    /// The servers announce addresses to their clients, which are replaced.
    announced: bool,
}

/// Schemes whose servers a proxy can stand for, with their port. Sentinels and clusters tell their
/// clients other addresses, so all of them must be known, as in a lab. Encrypted connections check the
/// name and go directly.
const PROXIED: [(&str, u16); 5] = [
    ("redis", 6379),
    ("redis+quorum", 6379),
    ("mysql", 3306),
    ("zookeeper", 2181),
    ("etcd", 2379),
];

/// The default of `timeout=` of these stores.
const REPLY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

impl Route {
    /// `all` are the servers that clients of sentinels and clusters may be sent to.
    pub(crate) fn new(url: &str, all: Vec<SocketAddr>) -> Result<Self> {
        let parsed: StoreUrl = url.parse()?;
        let scheme = parsed.scheme().to_owned();
        let port = PROXIED
            .iter()
            .find(|(known, _)| *known == scheme)
            .map(|(_, port)| *port);
        let hosts = port.and_then(|port| Some((hosts(url)?, port)));
        let mut servers = Vec::new();
        if let Some(((_, hosts, _), port)) = hosts {
            for host in hosts.split(',') {
                servers.push(resolve(host, port)?);
            }
        }
        let announced = !all.is_empty() && servers.is_empty();
        Ok(Self {
            url: url.to_owned(),
            servers: if announced { all } else { servers },
            scheme,
            announced,
        })
    }

    /// Whether requests can be counted: where each has one reply, and nothing else is one. What etcd
    /// tells unasked looks like a reply.
    pub(crate) fn counts_requests(&self) -> bool {
        self.has_network() && self.scheme != "etcd" && !self.announced
    }

    /// What kind of store it is.
    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// How long a client of this store waits for a reply before it gives the connection up, where that is all
    /// that a fault leaves behind: clients of sentinels and clusters also have to find the servers again, and
    /// others may come upon a dead connection later.
    pub(crate) fn reply_timeout(&self) -> Option<std::time::Duration> {
        let known = ["redis", "redis+quorum"].contains(&self.scheme.as_str());
        let mut url: StoreUrl = self.url.parse().ok().filter(|_| known)?;
        let given = url.take_duration("timeout").ok().flatten();
        Some(given.unwrap_or(REPLY_TIMEOUT))
    }

    /// Whether the store is a file that processes of this machine share: it sees them end.
    pub(crate) fn is_embedded(&self) -> bool {
        self.scheme == "sqlite"
    }

    /// Whether connections can be disturbed.
    pub(crate) fn has_network(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Opens proxies of its own for one worker.
    pub(crate) async fn open(&self) -> Result<Way> {
        let failed = |why| Error::new(ErrorKind::Internal, format!("cannot start a proxy: {why}"));
        let places = Places::default();
        let mut proxies = Vec::new();
        for server in &self.servers {
            let splitter = match self.announced {
                true => resp_with_places(&places),
                false => splitter(&self.scheme),
            };
            let proxy = Proxy::with_splitter(*server, splitter).await;
            let proxy = proxy.map_err(failed)?;
            if let (SocketAddr::V4(server), SocketAddr::V4(instead)) = (*server, proxy.addr()) {
                places.put(server, instead);
            }
            proxies.push((*server, proxy));
        }
        let url = match hosts(&self.url) {
            Some((before, hosts, after)) if !proxies.is_empty() => {
                let hosts: Vec<_> = match self.announced {
                    true => hosts
                        .split(',')
                        .map(|host| instead(host, &proxies))
                        .collect(),
                    false => proxies
                        .iter()
                        .map(|(_, proxy)| proxy.addr().to_string())
                        .collect(),
                };
                format!("{before}{}{after}", hosts.join(","))
            }
            _ => self.url.clone(),
        };
        Ok(Way {
            url,
            proxies,
            sealed: Mutex::default(),
        })
    }
}

/// The proxy of a server.
fn instead(host: &str, proxies: &[(SocketAddr, Proxy)]) -> String {
    let server = host.parse::<SocketAddrV4>().map(SocketAddr::V4).ok();
    let proxy = proxies.iter().find(|(of, _)| Some(*of) == server);
    proxy.map_or_else(|| host.to_owned(), |(_, proxy)| proxy.addr().to_string())
}

/// What cuts the bytes of an engine into replies, so that "one reply swallowed" is one reply.
fn splitter(scheme: &str) -> Splitter {
    match scheme {
        "mysql" => mysql(),
        "etcd" => http2(),
        "zookeeper" => jute(),
        _ => resp(),
    }
}

/// `redis://me:pw@` `h1:1,h2:2` `/0?x=y`.
fn hosts(url: &str) -> Option<(&str, &str, &str)> {
    let start = url.find("://")? + 3;
    let end = url
        .get(start..)?
        .find(['/', '?'])
        .map_or(url.len(), |at| start + at);
    let authority = url.get(start..end)?;
    let start = authority.rfind('@').map_or(start, |at| start + at + 1);
    Some((url.get(..start)?, url.get(start..end)?, url.get(end..)?))
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let with_port = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{port}"),
    };
    let mut found = with_port.to_socket_addrs().map_err(|why| {
        Error::new(
            ErrorKind::Unreachable,
            format!("cannot find {with_port}: {why}"),
        )
    })?;
    let none = || {
        Error::new(
            ErrorKind::Unreachable,
            format!("{with_port} has no address"),
        )
    };
    found.next().ok_or_else(none)
}

/// One worker's way.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) url: String,
    proxies: Vec<(SocketAddr, Proxy)>,
    /// The servers that are on the other side of a split network.
    sealed: Mutex<Vec<SocketAddr>>,
}

/// What can be done to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkFault {
    Reset,
    HalfOpen,
    Delay,
    HoldAndFlush,
    RequestsLost,
    RepliesLost,
    ReplySwallowed(u64, bool),
    Refused,
    /// What is sent on the connections that are open arrives after many leases, even if the sender is gone.
    Kept,
}

impl LinkFault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reset => "connections reset",
            Self::HalfOpen => "connections half-open",
            Self::Delay => "replies delayed",
            Self::HoldAndFlush => "requests held, then flushed",
            Self::RequestsLost => "requests lost",
            Self::RepliesLost => "replies lost",
            Self::ReplySwallowed(..) => "one reply swallowed",
            Self::Refused => "cut off",
            Self::Kept => "requests kept for many leases",
        }
    }
}

impl Way {
    /// The proxies of this side.
    fn open_proxies(&self) -> impl Iterator<Item = &Proxy> {
        let sealed = self
            .sealed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let open = self
            .proxies
            .iter()
            .filter(move |(of, _)| !sealed.contains(of));
        open.map(|(_, proxy)| proxy)
    }

    /// Puts this worker on one side of a split network: packets to and from the other side wait for it to
    /// heal, and those who sent them may give up before.
    pub(crate) fn seal(&self, beyond: impl Fn(&SocketAddr) -> bool) {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        for (server, proxy) in self.proxies.iter().filter(|(server, _)| beyond(server)) {
            sealed.push(*server);
            proxy.flow(Direction::Up, Flow::Hold);
            proxy.flow(Direction::Down, Flow::Hold);
        }
    }

    /// Heals the network.
    pub(crate) fn unseal(&self) {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = std::mem::take(&mut *sealed);
        let healed = self.proxies.iter().filter(|(of, _)| beyond.contains(of));
        healed.for_each(|(_, proxy)| proxy.heal());
    }

    /// Keeps what is sent on the connections that are open, which are given away.
    pub(crate) fn keep(&self) -> Vec<Link> {
        self.open_proxies().flat_map(Proxy::keep_requests).collect()
    }

    pub(crate) fn disturb(&self, fault: LinkFault, span: std::time::Duration) {
        for proxy in self.open_proxies() {
            match fault {
                LinkFault::Reset => proxy.reset(),
                LinkFault::HalfOpen => proxy.half_open(),
                LinkFault::Delay => proxy.flow(Direction::Down, Flow::Delay(span / 4)),
                LinkFault::HoldAndFlush => proxy.flow(Direction::Up, Flow::Hold),
                LinkFault::RequestsLost => proxy.flow(Direction::Up, Flow::Blackhole),
                LinkFault::RepliesLost => proxy.flow(Direction::Down, Flow::Blackhole),
                LinkFault::ReplySwallowed(nth, reset) => {
                    proxy.swallow(nth, if reset { Then::Reset } else { Then::Silence });
                }
                LinkFault::Refused => proxy.down(),
                LinkFault::Kept => {}
            }
        }
    }

    /// How many requests were answered on it so far.
    pub(crate) fn requests(&self) -> u64 {
        let proxies = self.proxies.iter();
        proxies.map(|(_, proxy)| proxy.replies()).sum()
    }

    /// Makes every reply late, for good.
    pub(crate) fn lag(&self, lag: std::time::Duration) {
        for (_, proxy) in &self.proxies {
            proxy.flow(Direction::Down, Flow::Delay(lag));
        }
    }

    pub(crate) fn heal(&self, fault: LinkFault) {
        if matches!(fault, LinkFault::HalfOpen | LinkFault::Kept) {
            return; // such a connection never comes back, and new ones are served
        }
        for proxy in self.open_proxies() {
            // Bytes that vanished are missing in the stream: such a connection is of no more use.
            let torn = matches!(
                fault,
                LinkFault::RequestsLost | LinkFault::RepliesLost | LinkFault::ReplySwallowed(..)
            );
            proxy.heal();
            if torn {
                proxy.reset();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_urls() {
        for (url, want) in [
            (
                "redis://127.0.0.1:6379/0?a=b",
                ("redis://", "127.0.0.1:6379", "/0?a=b"),
            ),
            ("etcd://a,b:1", ("etcd://", "a,b:1", "")),
            ("mysql://me:p@ss@h?x=1", ("mysql://me:p@ss@", "h", "?x=1")),
        ] {
            assert_eq!(hosts(url), Some(want));
        }
        assert_eq!(hosts("sqlite:/a"), None);
    }

    #[test]
    fn the_reply_timeout_is_that_of_the_url() {
        let of = |url| Route::new(url, Vec::new()).unwrap().reply_timeout();
        let millis = std::time::Duration::from_millis;
        assert_eq!(of("redis://127.0.0.1:1"), Some(millis(2000)));
        assert_eq!(of("redis://127.0.0.1:1?timeout=700ms"), Some(millis(700)));
        assert_eq!(of("redis+cluster://127.0.0.1:1"), None);
        assert_eq!(of("mysql://127.0.0.1:1"), None);
    }

    #[test]
    fn a_file_has_no_network() {
        assert!(
            !Route::new("sqlite:/tmp/a.db", Vec::new())
                .unwrap()
                .has_network()
        );
        assert!(
            !Route::new("redis+cluster://127.0.0.1:1", Vec::new())
                .unwrap()
                .has_network()
        );
        assert!(
            Route::new("redis://127.0.0.1:1", Vec::new())
                .unwrap()
                .has_network()
        );
    }

    #[tokio::test]
    async fn a_worker_of_a_cluster_gets_its_own_addresses() {
        let servers = ["127.0.0.1:1", "127.0.0.1:2"].map(|at| at.parse().unwrap());
        let route = Route::new("redis+cluster://127.0.0.1:2?x=1", servers.into()).unwrap();
        assert!(route.has_network() && !route.counts_requests());
        let way = route.open().await.unwrap();
        let (_, proxy) = &way.proxies[1];
        assert_eq!(way.url, format!("redis+cluster://{}?x=1", proxy.addr()));
    }

    #[tokio::test]
    async fn a_worker_gets_its_own_address() {
        let route = Route::new("redis://u:p@127.0.0.1:1/3", Vec::new()).unwrap();
        let way = route.open().await.unwrap();
        assert!(way.url.starts_with("redis://u:p@127.0.0.1:"), "{}", way.url);
        assert!(
            way.url.ends_with("/3") && !way.url.contains(":1/3"),
            "{}",
            way.url
        );
    }
}
