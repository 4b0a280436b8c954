//! The parameters of a ZooKeeper URL.

use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, StoreUrl};
use clinch_kit::url::{Host, Login, UrlParts, decode, not_known};
use zookeeper_client::Connector;

use crate::connection::Tls;

/// ZooKeeper's own port.
const PORT: u16 = 2181;
/// The default of `timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of `tick`, and of a server's `tickTime`.
const DEFAULT_TICK: Duration = Duration::from_secs(2);
/// The least length of the driver's list of servers; see [`Config::endpoints`].
const ENDPOINTS: usize = 24;
/// The parameters of the URL.
const KNOWN: [&str; 8] = ["acl", "auth", "ca", "cert", "key", "tick", "timeout", "tls"];

/// The settings of a URL.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) servers: Vec<Host>,
    /// The path above the namespace: empty, or with a slash in front.
    pub(crate) chroot: String,
    login: Option<Login>,
    auth: Auth,
    pub(crate) access: Access,
    /// The files of encrypted connections.
    pub(crate) tls: Option<Tls>,
    /// The ensemble's `tickTime`: how late its leader may learn that a session is alive.
    pub(crate) tick: Duration,
    /// How long to wait for a reply or a connection.
    pub(crate) timeout: Duration,
}

/// How the password is proved to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Auth {
    /// It is sent. The server accepts every user; only ACLs compare passwords.
    Digest,
    /// By DIGEST-MD5: the server has a list of users, and the password is not sent.
    Sasl,
}

/// The ACL of created nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every client.
    Open,
    /// The user that created them.
    CreatorAll,
}

impl Auth {
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
            Some(other) => Err(not_known("auth", other, "digest or sasl")),
        }
    }
}

impl Access {
    fn parse(text: Option<&str>) -> Result<Self> {
        match text {
            None | Some("open") => Ok(Self::Open),
            Some("creator-all") => Ok(Self::CreatorAll),
            Some(other) => Err(not_known("acl", other, "open or creator-all")),
        }
    }
}

impl Config {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        Self::parse(&mut url.clone()).map_err(|error| error.with_store("zookeeper"))
    }

    fn parse(url: &mut StoreUrl) -> Result<Self> {
        let parts = UrlParts::of(url, "write zookeeper://host:port/path")?;
        let auth = url.take("auth");
        let config = Self {
            servers: parts.hosts(PORT)?,
            chroot: chroot(parts.path())?,
            auth: Auth::parse(auth.as_deref())?,
            access: Access::parse(url.take("acl").as_deref())?,
            tls: Tls::from_url(url)?,
            login: parts.login,
            tick: url.take_duration("tick")?.unwrap_or(DEFAULT_TICK),
            timeout: url.take_duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
        };
        url.finish(&KNOWN)?;
        if let Some(tls) = &config.tls {
            tls.check(config.servers.iter().map(|host| host.name.as_str()))?;
        }
        if config.timeout.is_zero() || config.tick.is_zero() {
            return Err(Error::invalid("timeout and tick must be above 0"));
        }
        let needs_user = config.access == Access::CreatorAll || auth.is_some();
        match &config.login {
            Some(login) if login.password.is_none() => {
                Err(Error::invalid("the password is missing")
                    .with_advice("write user:password@host"))
            }
            None if needs_user => Err(Error::invalid("acl=creator-all and auth need a user")
                .with_advice("write zookeeper://user:password@host")),
            _ => Ok(config),
        }
    }

    /// Adds the login to a connector.
    pub(crate) fn authenticate(&self, connector: Connector) -> Connector {
        let Some(login) = &self.login else {
            return connector;
        };
        let user = login.user.clone().unwrap_or_default();
        let password = login.password.clone().unwrap_or_default();
        match self.auth {
            Auth::Digest => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
            #[cfg(feature = "sasl")]
            Auth::Sasl => {
                connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(user, password))
            }
            #[cfg(not(feature = "sasl"))]
            Auth::Sasl => connector,
        }
    }

    /// The servers: `host:port,host:port`.
    pub(crate) fn server_list(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(ToString::to_string).collect();
        servers.join(",")
    }

    /// The servers for the driver, each several times.
    ///
    /// The driver tries its whole list, and doubles its pause whenever it starts again at the top; within
    /// the list its pauses are short and grow slowly. With a list of three servers, a client needs as
    /// long again as the outage lasted to reconnect. With 24, no pause is longer than two seconds in the
    /// first half minute, and none longer than eight in the first minute.
    pub(crate) fn endpoints(&self) -> String {
        let times = ENDPOINTS.div_ceil(self.servers.len());
        vec![self.server_list(); times].join(",")
    }

    /// The session length with which the ensemble never ends a hold with this lease, and its lock-delay
    /// after it, too early: see docs/decisions/0012-zookeeper.md.
    pub(crate) fn session_for(&self, lease: Duration, lock_delay: Duration) -> Duration {
        lease + lease / 4 + self.tick + lock_delay
    }

    /// The longest lease that fits into a session of this length.
    pub(crate) fn lease_in(&self, session: Duration) -> Duration {
        session.saturating_sub(self.tick) * 4 / 5
    }
}

fn chroot(path: &str) -> Result<String> {
    let mut chroot = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let part = decode(part)?;
        if part == "." || part == ".." || part.chars().any(|c| c.is_control() || c == '/') {
            return Err(Error::invalid(format!("{part:?} is not a part of a path")));
        }
        chroot.push('/');
        chroot.push_str(&part);
    }
    Ok(chroot)
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
        assert_eq!(config.server_list(), "a:1,b:2181,[::1]:3");
        assert_eq!(config.chroot, "/x/y");
        assert_eq!(config.tick, Duration::from_millis(200));
        assert!(config.login.is_none() && config.access == Access::Open);
        let config = read("zookeeper://me:p%40ss@a/?acl=creator-all").unwrap();
        let login = config.login.as_ref().unwrap();
        assert_eq!(login.user.as_deref(), Some("me"));
        assert_eq!(login.password.as_deref(), Some("p@ss"));
        assert_eq!(config.auth, Auth::Digest);
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
