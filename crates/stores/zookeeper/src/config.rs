//! The URL of a ZooKeeper store.

use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, StoreUrl, percent_decode};
use zookeeper_client::Connector;

use crate::tls::Tls;

/// ZooKeeper's own port.
const PORT: u16 = 2181;
/// How long an answer is waited for.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The `tickTime` of a server that nobody has changed.
const DEFAULT_TICK: Duration = Duration::from_secs(2);
/// How long the driver's list of servers is to be at least; see [`Config::endpoints`].
const ENDPOINTS: usize = 24;
/// The parameters of the URL.
const KNOWN: [&str; 8] = ["acl", "auth", "ca", "cert", "key", "tick", "timeout", "tls"];

/// What the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The servers: `host:port,host:port`.
    pub(crate) servers: String,
    /// Where locks live: empty, or a path with a slash in front.
    pub(crate) chroot: String,
    /// Who we are to the servers.
    pub(crate) login: Option<Login>,
    /// Who may touch our nodes.
    pub(crate) acl: Access,
    /// The files of encrypted connections.
    pub(crate) tls: Option<Tls>,
    /// The ensemble's `tickTime`: how late its leader may hear that a session lives.
    pub(crate) tick: Duration,
    /// How long an answer is waited for.
    pub(crate) timeout: Duration,
}

/// A name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    user: String,
    password: String,
    proof: Proof,
}

/// How the password is shown to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// As it is; the server takes every user at his word, and only ACLs compare.
    Digest,
    /// By DIGEST-MD5: the server knows its users, and the password is not sent.
    Sasl,
}

/// Who may touch our nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody.
    Open,
    /// The user who made them.
    CreatorAll,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({:?}, \"***\")", self.user)
    }
}

impl Login {
    /// Says at each connection who we are.
    pub(crate) fn introduce(&self, connector: Connector) -> Connector {
        match self.proof {
            Proof::Digest => connector.with_auth("digest", &self.digest()),
            #[cfg(feature = "sasl")]
            Proof::Sasl => connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(
                self.user.clone(),
                self.password.clone(),
            )),
            #[cfg(not(feature = "sasl"))]
            Proof::Sasl => connector,
        }
    }

    /// What the scheme `digest` wants.
    fn digest(&self) -> Vec<u8> {
        format!("{}:{}", self.user, self.password).into_bytes()
    }

    fn parse(text: &str, proof: Proof) -> Result<Self> {
        let (user, password) = text.split_once(':').ok_or_else(|| {
            Error::invalid("the password is missing").with_advice("write user:password@host")
        })?;
        Ok(Self {
            user: decoded(user)?,
            password: decoded(password)?,
            proof,
        })
    }
}

impl Proof {
    fn parse(text: Option<&str>) -> Result<Self> {
        match text {
            None | Some("digest") => Ok(Self::Digest),
            Some("sasl") if cfg!(feature = "sasl") => Ok(Self::Sasl),
            Some("sasl") => Err(Error::new(
                ErrorKind::Unsupported,
                "this build cannot log in by SASL",
            )
            .with_advice(
                "build with the feature zookeeper-sasl of clinch (sasl of clinch-zookeeper)",
            )),
            Some(other) => Err(Error::invalid(format!("auth={other} is not known"))
                .with_advice("it is digest or sasl")),
        }
    }
}

impl Config {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        Self::parse(&mut url.clone()).map_err(|error| error.with_store("zookeeper"))
    }

    fn parse(url: &mut StoreUrl) -> Result<Self> {
        let rest = url.rest().strip_prefix("//").ok_or_else(|| {
            Error::invalid(format!("{url} has no //"))
                .with_advice("write zookeeper://host:port/path")
        })?;
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login.to_owned()), rest.to_owned()),
            None => (None, rest.to_owned()),
        };
        let auth = url.take("auth");
        let proof = Proof::parse(auth.as_deref())?;
        let (hosts, path) = rest.split_once('/').unwrap_or((&rest, ""));
        let config = Self {
            servers: servers(hosts)?,
            chroot: chroot(path)?,
            acl: match url.take("acl").as_deref() {
                None | Some("open") => Access::Open,
                Some("creator-all") => Access::CreatorAll,
                Some(other) => {
                    return Err(Error::invalid(format!("acl={other} is not known"))
                        .with_advice("it is open or creator-all"));
                }
            },
            tls: Tls::from_url(url)?,
            login: login.map(|login| Login::parse(&login, proof)).transpose()?,
            tick: url.take_duration("tick")?.unwrap_or(DEFAULT_TICK),
            timeout: url.take_duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
        };
        url.finish(&KNOWN)?;
        if let Some(tls) = &config.tls {
            tls.check(config.hosts())?;
        }
        if config.timeout.is_zero() || config.tick.is_zero() {
            return Err(Error::invalid("timeout and tick must be above 0"));
        }
        let needs_user = config.acl == Access::CreatorAll || auth.is_some();
        if needs_user && config.login.is_none() {
            return Err(Error::invalid("acl=creator-all and auth need a user")
                .with_advice("write zookeeper://user:password@host"));
        }
        Ok(config)
    }

    /// The hosts of the servers, without ports and brackets.
    fn hosts(&self) -> impl Iterator<Item = &str> {
        let host = |server: &str| server.rfind(':').unwrap_or(server.len());
        let hosts = self.servers.split(',');
        let hosts = hosts.filter_map(move |server| server.get(..host(server)));
        hosts.map(|host| host.trim_start_matches('[').trim_end_matches(']'))
    }

    /// The servers for the driver, each several times.
    ///
    /// It tries its whole list, and pauses for twice as long as before whenever it starts again at the
    /// top; within the list its pauses are short and grow slowly. From a list of three it is back
    /// after an outage as late again as that was long. With 24 no pause is longer than two seconds in
    /// the first half minute, and none than eight in the first minute.
    pub(crate) fn endpoints(&self) -> String {
        let count = self.servers.split(',').count();
        vec![self.servers.as_str(); ENDPOINTS.div_ceil(count)].join(",")
    }

    /// How long a session must last so that a hold with this lease, and its lock-delay after it,
    /// are never ended too early by the ensemble: see docs/decisions/0012-zookeeper.md.
    pub(crate) fn session_for(&self, lease: Duration, lock_delay: Duration) -> Duration {
        lease + lease / 4 + self.tick + lock_delay
    }

    /// The longest lease that fits into a session of this length.
    pub(crate) fn lease_in(&self, session: Duration) -> Duration {
        session.saturating_sub(self.tick) * 4 / 5
    }
}

fn servers(hosts: &str) -> Result<String> {
    let mut servers: Vec<String> = Vec::new();
    for host in hosts.split(',') {
        let bad = || {
            Error::invalid(format!("{host:?} is not a host")).with_advice("write host or host:port")
        };
        let end = host.rfind(']').unwrap_or(0);
        let (name, port) = match host.get(end..).and_then(|rest| rest.rfind(':')) {
            Some(colon) => host.split_at(end + colon),
            None => (host, ""),
        };
        if name.is_empty() || name.contains(['/', '@']) {
            return Err(bad());
        }
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| bad())?,
            None => PORT,
        };
        let server = format!("{}:{port}", decoded(name)?);
        if servers.contains(&server) {
            return Err(Error::invalid(format!("{server} is given twice")));
        }
        servers.push(server);
    }
    Ok(servers.join(","))
}

fn chroot(path: &str) -> Result<String> {
    let mut chroot = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let part = decoded(part)?;
        if part == "." || part == ".." || part.chars().any(|c| c.is_control() || c == '/') {
            return Err(Error::invalid(format!("{part:?} is not a part of a path")));
        }
        chroot.push('/');
        chroot.push_str(&part);
    }
    Ok(chroot)
}

fn decoded(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| Error::invalid("the URL has a broken % escape"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::from_url(&url.parse().unwrap())
    }

    #[test]
    fn urls_are_read() {
        let config = read("zookeeper://a:1,b,[::1]:3/x/y?tick=200ms").unwrap();
        assert_eq!(config.servers, "a:1,b:2181,[::1]:3");
        assert_eq!(config.chroot, "/x/y");
        assert_eq!(config.tick, Duration::from_millis(200));
        assert!(config.login.is_none() && config.acl == Access::Open);
        let config = read("zookeeper://me:p%40ss@a/?acl=creator-all").unwrap();
        let login = config.login.as_ref().unwrap();
        assert_eq!(login.digest(), b"me:p@ss");
        assert_eq!(login.proof, Proof::Digest);
        assert_eq!(config.chroot, "");
        assert!(
            !format!("{config:?}").contains("p@ss"),
            "a password in a log"
        );
    }

    #[test]
    fn the_driver_gets_every_server_equally_often() {
        for (url, each) in [("a", 24), ("a,b,c", 8), ("a,b,c,d,e", 5)] {
            let endpoints = read(&format!("zookeeper://{url}")).unwrap().endpoints();
            for server in url.split(',') {
                let server = format!("{server}:2181");
                let found = endpoints.split(',').filter(|one| *one == server).count();
                assert_eq!(found, each, "{server} in {endpoints}");
            }
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for url in [
            "zookeeper:a",
            "zookeeper://",
            "zookeeper://a,a",
            "zookeeper://a:x",
            "zookeeper://a?acl=all",
            "zookeeper://a?acl=creator-all",
            "zookeeper://a?auth=sasl",
            "zookeeper://me:p@a?auth=plain",
            "zookeeper://a?tik=1s",
            "zookeeper://a?timeout=0s",
            "zookeeper://me@a",
            "zookeeper://a/../b",
            "zookeeper://a?tls=maybe",
            "zookeeper://a?ca=x",
            "zookeeper://a?tls=on",
            "zookeeper://a?tls=on&ca=x&cert=x",
            "zookeeper://a%20b?tls=on&ca=x",
        ] {
            assert!(read(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_session_outlives_its_lease() {
        let config = read("zookeeper://a").unwrap();
        // The default lease fits into what servers allow by default.
        let session = config.session_for(Duration::from_secs(30), Duration::ZERO);
        assert!(session <= Duration::from_secs(40));
        assert!(config.lease_in(session) >= Duration::from_secs(30));
    }
}
