//! The URL of an etcd store.

use std::path::PathBuf;
use std::time::Duration;

use clinch_core::{Error, Result, StoreUrl, TlsFiles, percent_decode};

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
    pub(crate) tls: Option<Tls>,
    pub(crate) timeout: Duration,
    pub(crate) remember: Duration,
}

/// A user of etcd. Its `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// The files of an encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tls {
    /// The authority that signs the servers' certificates; by default the system's list.
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({:?}, ***)", self.user)
    }
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
        let advice = "write etcd://host:port, or etcd://h1,h2,h3";
        let rest = url
            .rest()
            .strip_prefix("//")
            .ok_or_else(|| Error::invalid(format!("{url} has no //")).with_advice(advice))?;
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(Login::parse(login)?), hosts),
            None => (None, rest),
        };
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        if !path.is_empty() {
            return Err(Error::invalid(format!("/{path} has no meaning for etcd"))
                .with_advice("the namespace separates locks"));
        }
        let mut members: Vec<String> = Vec::new();
        for host in hosts.split(',') {
            let member = member(host)?;
            if members.contains(&member) {
                return Err(Error::invalid(format!("{member} is given twice")));
            }
            members.push(member);
        }
        let encrypted = url.take_switch("tls")?;
        let TlsFiles { ca, client } = url.take_tls_files(encrypted, "add tls=on")?;
        let tls = Tls { ca, client };
        if encrypted && !cfg!(feature = "tls") {
            return Err(Error::new(
                clinch_core::ErrorKind::Unsupported,
                "this build has no encrypted connections to etcd",
            )
            .with_advice("build with the feature etcd-tls"));
        }
        let config = Self {
            members,
            login,
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

impl Login {
    fn parse(text: &str) -> Result<Self> {
        let (user, password) = text.split_once(':').ok_or_else(|| {
            Error::invalid("a user of etcd needs a password")
                .with_advice("write etcd://user:password@host")
        })?;
        Ok(Self {
            user: decoded(user)?,
            password: decoded(password)?,
        })
    }
}

fn member(text: &str) -> Result<String> {
    let bad =
        || Error::invalid(format!("{text:?} is not a host")).with_advice("write host or host:port");
    let (host, number) = match text.strip_prefix('[') {
        // An IPv6 address.
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
            (format!("[{host}]"), rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, number)) => (host.to_owned(), Some(number)),
            None => (text.to_owned(), None),
        },
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:%".contains(&b);
    if host.is_empty() || host == "[]" || !host.bytes().all(plain) {
        return Err(bad());
    }
    let port: u16 = number.map_or(Ok(PORT), |number| number.parse().map_err(|_| bad()))?;
    Ok(format!("{host}:{port}"))
}

fn decoded(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| Error::invalid("the login has a broken % escape"))
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
        assert_eq!(config.login.as_ref().unwrap().password, "s@cret");
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
            ("etcd://a?timeout=0s", "above 0"),
        ] {
            let error = config(url).unwrap_err().to_string();
            assert!(error.contains(cause), "{url}: {error}");
        }
    }
}
