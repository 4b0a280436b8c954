//! The way of a worker process to the store: a fault proxy for each server, and for each worker its
//! own.

use std::net::{SocketAddr, ToSocketAddrs as _};

use clinch::{Error, ErrorKind, Result, StoreUrl};
use clinch_testkit::proxy::{Direction, Flow, Proxy, Splitter, Then, http2, jute, mysql, resp};

/// Where the servers of a URL are, or that they cannot be put behind a proxy.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    url: String,
    servers: Vec<SocketAddr>,
    scheme: String,
}

/// Schemes whose servers a proxy can stand for, with their port. Sentinels and clusters tell their
/// clients other addresses, and encrypted connections check the name: those go directly.
const PROXIED: [(&str, u16); 5] = [
    ("redis", 6379),
    ("redis+quorum", 6379),
    ("mysql", 3306),
    ("zookeeper", 2181),
    ("etcd", 2379),
];

impl Route {
    pub(crate) fn new(url: &str) -> Result<Self> {
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
        Ok(Self {
            url: url.to_owned(),
            servers,
            scheme,
        })
    }

    /// Whether connections can be disturbed.
    pub(crate) fn has_network(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Opens proxies of its own for one worker.
    pub(crate) async fn open(&self) -> Result<Way> {
        let failed = |why| Error::new(ErrorKind::Internal, format!("cannot start a proxy: {why}"));
        let mut proxies = Vec::new();
        for server in &self.servers {
            let proxy = Proxy::with_splitter(*server, splitter(&self.scheme)).await;
            proxies.push(proxy.map_err(failed)?);
        }
        let url = match hosts(&self.url) {
            Some((before, _, after)) if !proxies.is_empty() => {
                let hosts: Vec<_> = proxies
                    .iter()
                    .map(|proxy| proxy.addr().to_string())
                    .collect();
                format!("{before}{}{after}", hosts.join(","))
            }
            _ => self.url.clone(),
        };
        Ok(Way { url, proxies })
    }
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
    proxies: Vec<Proxy>,
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
        }
    }
}

impl Way {
    pub(crate) fn disturb(&self, fault: LinkFault, span: std::time::Duration) {
        for proxy in &self.proxies {
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
            }
        }
    }

    /// Makes every reply late, for good.
    pub(crate) fn lag(&self, lag: std::time::Duration) {
        for proxy in &self.proxies {
            proxy.flow(Direction::Down, Flow::Delay(lag));
        }
    }

    pub(crate) fn heal(&self, fault: LinkFault) {
        if fault == LinkFault::HalfOpen {
            return; // such a connection never comes back, and new ones are served
        }
        for proxy in &self.proxies {
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
    fn a_file_has_no_network() {
        assert!(!Route::new("sqlite:/tmp/a.db").unwrap().has_network());
        assert!(
            !Route::new("redis+cluster://127.0.0.1:1")
                .unwrap()
                .has_network()
        );
        assert!(Route::new("redis://127.0.0.1:1").unwrap().has_network());
    }

    #[tokio::test]
    async fn a_worker_gets_its_own_address() {
        let route = Route::new("redis://u:p@127.0.0.1:1/3").unwrap();
        let way = route.open().await.unwrap();
        assert!(way.url.starts_with("redis://u:p@127.0.0.1:"), "{}", way.url);
        assert!(
            way.url.ends_with("/3") && !way.url.contains(":1/3"),
            "{}",
            way.url
        );
    }
}
