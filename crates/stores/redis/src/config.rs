//! The URL of a Redis store.

use std::path::PathBuf;
use std::time::Duration;

use clinch_core::{Error, Result, StoreUrl};
use clinch_kit::url::{Host, Login, UrlParts, decode, not_known, take_number};

use crate::guest::Layout;

/// How long a reply is awaited before the connection is dropped.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an idle name is remembered: longer than any copy of a request is in transit.
const DEFAULT_REMEMBER: Duration = Duration::from_secs(600);
/// The longest lease + lock-delay in strict mode.
const DEFAULT_LONGEST: Duration = Duration::from_secs(60);
/// Its bounds: a usable lease and lock-delay, and the longest of both together.
const SHORTEST_LONGEST: Duration = Duration::from_millis(100);
const LONGEST_LONGEST: Duration = Duration::from_secs(8 * 86_400);
/// Redis' own port, and that of its sentinels.
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The parameters of the URL.
const KNOWN: [&str; 15] = [
    "ca",
    "cert",
    "db",
    "durability",
    "eviction",
    "key",
    "layout",
    "longest",
    "need",
    "remember",
    "sentinel_password",
    "sentinel_user",
    "timeout",
    "tls",
    "wait",
];

/// The settings in the URL.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The scheme of the URL.
    pub(crate) scheme: &'static str,
    /// The servers.
    pub(crate) deployment: Deployment,
    /// How to log in to them.
    pub(crate) login: Login,
    /// How to log in to the sentinels.
    pub(crate) sentinel_login: Login,
    /// The number of the database.
    pub(crate) db: i64,
    /// How connections are encrypted, if they are.
    pub(crate) tls: Option<Tls>,
    /// How long a reply is awaited before the connection is dropped.
    pub(crate) timeout: Duration,
    /// How long an idle name is remembered.
    pub(crate) remember: Duration,
    /// Whether a server that may evict locks from its memory is accepted.
    pub(crate) accept_eviction: bool,
    /// How many replicas must have a grant before it counts.
    pub(crate) wait: u32,
    /// Strict mode: the longest lease + lock-delay.
    pub(crate) strict: Option<Duration>,
    /// The layout of another library, for a guest in its locks.
    pub(crate) guest: Option<Layout>,
}

/// The servers of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// Each lock is at one server.
    Single(Topology),
    /// Independent servers, each with all locks, and how many of them must agree.
    Quorum(Vec<Address>, usize),
}

/// How the server of a lock is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    One(Address),
    /// The master that these sentinels have under this name.
    Sentinel(Vec<Address>, String),
    /// A cluster that these servers belong to.
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp(Host),
    Unix(PathBuf),
}

/// The files of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tls {
    /// The certificate of the authority; the system's without one.
    pub(crate) ca: Option<PathBuf>,
    /// The client's own certificate and key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Config {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut url = url.clone();
        let scheme = match url.scheme() {
            "redis" => "redis",
            "rediss" => "rediss",
            "redis+unix" => "redis+unix",
            "redis+sentinel" => "redis+sentinel",
            "redis+cluster" => "redis+cluster",
            "redis+quorum" => "redis+quorum",
            other => {
                return Err(Error::invalid(format!(
                    "{other:?} is not a scheme of Redis"
                )));
            }
        };
        Self::parse(&mut url, scheme).map_err(|error| {
            // Some messages begin with the scheme themselves.
            match error.message().starts_with(scheme) {
                true => error,
                false => error.with_store(scheme),
            }
        })
    }

    fn parse(url: &mut StoreUrl, scheme: &'static str) -> Result<Self> {
        let parts = UrlParts::of(url, &format!("write {scheme}://host:port"))?;
        let wait = take_number(url, "wait")?;
        let mut db = take_number::<i64>(url, "db")?;
        let encrypted = url.take_switch_or("tls", scheme == "rediss")?;
        if scheme == "rediss" && !encrypted {
            return Err(
                Error::invalid("tls=off contradicts the scheme, which is encrypted")
                    .with_advice("use redis:// for a connection that is not encrypted"),
            );
        }
        let deployment = if scheme == "redis+unix" {
            Deployment::Single(Topology::One(Address::Unix(PathBuf::from(decode(
                &parts.rest,
            )?))))
        } else {
            let path = parts.path();
            match scheme {
                "redis+sentinel" => {
                    let (master, number) = path.split_once('/').unwrap_or((path, ""));
                    if master.is_empty() {
                        return Err(Error::invalid("the name of the master is missing")
                            .with_advice("write redis+sentinel://h1,h2,h3/MASTER"));
                    }
                    db = db.or(path_db(number)?);
                    let hosts = addresses(&parts, SENTINEL_PORT)?;
                    Deployment::Single(Topology::Sentinel(hosts, decode(master)?))
                }
                "redis+cluster" => {
                    if path_db(path)?.or(db).is_some_and(|db| db != 0) {
                        return Err(Error::invalid("a cluster has database 0 only"));
                    }
                    Deployment::Single(Topology::Cluster(addresses(&parts, PORT)?))
                }
                "redis+quorum" => {
                    db = db.or(path_db(path)?);
                    let hosts = addresses(&parts, PORT)?;
                    let need = need(url, hosts.len())?;
                    Deployment::Quorum(hosts, need)
                }
                _ => {
                    db = db.or(path_db(path)?);
                    let mut hosts = addresses(&parts, PORT)?;
                    match (hosts.pop(), hosts.pop()) {
                        (Some(host), None) => Deployment::Single(Topology::One(host)),
                        _ => {
                            return Err(Error::invalid("this is more than one server")
                                .with_advice(
                                    "use redis+sentinel:, redis+cluster: or redis+quorum:",
                                ));
                        }
                    }
                }
            }
        };
        let strict = match url.take("durability").as_deref() {
            None | Some("default") => None,
            Some("strict") => Some(url.take_duration("longest")?.unwrap_or(DEFAULT_LONGEST)),
            Some(other) => return Err(not_known("durability", other, "default or strict")),
        };
        let (sentinel, cluster) = (deployment.is_sentinel(), deployment.is_cluster());
        if strict.is_some() && cluster {
            return Err(Error::new(
                clinch_core::ErrorKind::Unsupported,
                "strict durability is not to be had on a cluster: its slots have no common memory",
            )
            .with_advice("use it on one server, with sentinels or with redis+quorum:"));
        }
        let files = url.take_tls_files(encrypted, "use rediss://, or tls=on")?;
        let tls = Tls {
            ca: files.ca,
            client: files.client,
        };
        let config = Self {
            scheme,
            deployment,
            login: login(parts.login),
            sentinel_login: Login {
                user: url.take("sentinel_user"),
                password: url.take("sentinel_password"),
            },
            db: db.unwrap_or(0),
            tls: encrypted.then_some(tls),
            timeout: url.take_duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
            remember: url.take_duration("remember")?.unwrap_or(DEFAULT_REMEMBER),
            accept_eviction: match url.take("eviction").as_deref() {
                None | Some("refuse") => false,
                Some("accept") => true,
                Some(other) => return Err(not_known("eviction", other, "refuse or accept")),
            },
            wait: wait.unwrap_or(u32::from(sentinel || cluster)),
            strict,
            guest: match url.take("layout").as_deref() {
                None | Some("clinch") => None,
                Some("plain") => Some(Layout::Plain),
                Some("redisson") => Some(Layout::Redisson),
                Some(other) => {
                    return Err(not_known("layout", other, "clinch, plain or redisson"));
                }
            },
        };
        url.finish(&KNOWN)?;
        config.check_strict()?;
        if config.timeout.is_zero() || config.remember < Duration::from_secs(1) {
            return Err(Error::invalid(
                "timeout must be above 0, and remember at least 1s",
            ));
        }
        Ok(config)
    }
}

impl Config {
    /// Whether a server is used even if its `INFO` is denied.
    pub(crate) fn trusts_blindly(&self) -> bool {
        let one = matches!(self.deployment, Deployment::Single(Topology::One(_)));
        one && self.strict.is_none()
    }

    fn check_strict(&self) -> Result<()> {
        let Some(longest) = self.strict else {
            return Ok(());
        };
        if longest < SHORTEST_LONGEST || longest > LONGEST_LONGEST {
            return Err(Error::invalid(format!(
                "longest={longest:?} is not between {SHORTEST_LONGEST:?} and {LONGEST_LONGEST:?}"
            )));
        }
        if self.accept_eviction {
            return Err(Error::invalid(
                "eviction=accept and durability=strict contradict each other: an evicted lock \
                 would go unnoticed",
            ));
        }
        Ok(())
    }
}

impl Deployment {
    pub(crate) fn is_sentinel(&self) -> bool {
        matches!(self, Self::Single(Topology::Sentinel(..)))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Single(Topology::Cluster(_)))
    }
}

/// The login of the URL. An empty password counts as none.
fn login(login: Option<Login>) -> Login {
    let login = login.unwrap_or_default();
    Login {
        password: login.password.filter(|password| !password.is_empty()),
        ..login
    }
}

fn addresses(parts: &UrlParts, port: u16) -> Result<Vec<Address>> {
    let hosts = parts.hosts(port)?;
    Ok(hosts.into_iter().map(Address::Tcp).collect())
}

fn path_db(path: &str) -> Result<Option<i64>> {
    match path {
        "" => Ok(None),
        path => path.parse().map(Some).map_err(|_| {
            Error::invalid(format!("{path:?} is not the number of a database"))
                .with_advice("write for example redis://host/0")
        }),
    }
}

fn need(url: &mut StoreUrl, servers: usize) -> Result<usize> {
    let majority = servers / 2 + 1;
    match url.take("need").as_deref() {
        None | Some("majority") if servers < 3 => Err(Error::invalid(format!(
            "a majority of {servers} servers survives no loss"
        ))
        .with_advice("give three or five servers, or need=all")),
        None | Some("majority") => Ok(majority),
        Some("all") => Ok(servers),
        Some(other) => Err(not_known("need", other, "majority or all")),
    }
}
