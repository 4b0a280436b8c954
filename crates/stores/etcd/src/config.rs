//! The URL of an etcd store.

use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, StoreUrl, TlsFiles};
use clinch_kit::url::{Host, Login, UrlParts};

/// Timeout of one request.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long end records and tombstones are kept at least.
const DEFAULT_REMEMBER: Duration = Duration::from_secs(600);
const MAX_REMEMBER: Duration = Duration::from_secs(30 * 86_400);
const PORT: u16 = 2379;
const KNOWN: [&str; 6] = ["ca", "cert", "key", "remember", "timeout", "tls"];

/// Where etcd is and how to connect to it.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Members, as `host:port`; each is tried in turn.
    pub(crate) members: Vec<String>,
    pub(crate) login: Option<Login>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) timeout: Duration,
    pub(crate) remember: Duration,
}

impl Config {
    /// Reads the URL; an unknown parameter is an error.
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut url = url.clone();
        if url.scheme() != "etcd" {
            let text = format!("{:?} is not a scheme of etcd", url.scheme());
            return Err(Error::invalid(text));
        }
        Self::parse(&mut url).map_err(|error| error.or_store("etcd"))
    }

    fn parse(url: &mut StoreUrl) -> Result<Self> {
        let parts = UrlParts::of(url, "write etcd://host:port, or etcd://h1,h2,h3")?;
        let no_password = |login: &Login| login.password.is_none();
        if parts.login.as_ref().is_some_and(no_password) {
            return Err(Error::invalid("a user of etcd needs a password")
                .with_advice("write etcd://user:password@host"));
        }
        if !parts.path().is_empty() {
            let text = format!("/{} has no meaning for etcd", parts.path());
            return Err(Error::invalid(text).with_advice("the namespace separates locks"));
        }
        let hosts = parts.hosts(PORT)?;
        // The name becomes a part of a URI.
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:%".contains(&b);
        if let Some(host) = hosts.iter().find(|host| !host.name.bytes().all(plain)) {
            return Err(Error::invalid(format!("{:?} is not a host", host.name))
                .with_advice("write host or host:port"));
        }
        let encrypted = url.take_switch("tls")?;
        let tls = url.take_tls_files(encrypted, "add tls=on")?;
        if encrypted && !cfg!(feature = "tls") {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "this build has no encrypted connections to etcd",
            )
            .with_advice("build with the feature etcd-tls"));
        }
        let config = Self {
            members: hosts.iter().map(Host::to_string).collect(),
            login: parts.login,
            tls: encrypted.then_some(tls),
            timeout: url.take_duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
            remember: url.take_duration("remember")?.unwrap_or(DEFAULT_REMEMBER),
        };
        url.finish(&KNOWN)?;
        let sensible = Duration::from_secs(5)..=MAX_REMEMBER;
        if config.timeout.is_zero() || !sensible.contains(&config.remember) {
            return Err(Error::invalid(
                "timeout must be above 0, and remember from 5s to 30d",
            ));
        }
        Ok(config)
    }

    /// Whether all members are on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let local = ["127.", "localhost:", "[::1]:"];
        let is_local = |member: &String| local.iter().any(|start| member.starts_with(start));
        self.members.iter().all(is_local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(&url.parse()?)
    }

    #[test]
    fn members_have_ports() {
        let config = config("etcd://a,b:23,[::1]/?timeout=3s").unwrap();
        assert_eq!(config.members, ["a:2379", "b:23", "[::1]:2379"]);
        assert_eq!(config.timeout, Duration::from_secs(3));
        assert!(config.login.is_none() && config.tls.is_none());
    }

    #[test]
    fn a_password_is_hidden() {
        let config = config("etcd://me:s%40cret@a").unwrap();
        assert_eq!(
            config.login.as_ref().unwrap().password.as_deref(),
            Some("s@cret")
        );
        assert!(!format!("{config:?}").contains("cret"));
    }

    #[test]
    fn errors_name_the_cause() {
        for (url, cause) in [
            ("etcd:a", "//"),
            ("etcd://a,a", "twice"),
            ("etcd://a/db", "namespace"),
            ("etcd://a?tsl=on", "tsl"),
            ("etcd://a?tls=maybe", "tls=maybe"),
            ("etcd://a?ca=x", "encrypted"),
            ("etcd://a?tls=on&cert=x", "together"),
            ("etcd://me@a", "password"),
            ("etcd://a:99999", "host"),
            ("etcd://a%2Fb", "host"),
            ("etcd://a?timeout=0s", "above 0"),
        ] {
            let error = config(url).unwrap_err().to_string();
            assert!(error.contains(cause), "{url}: {error}");
        }
    }
}
