//! The URL of a MySQL or MariaDB store.

use std::path::PathBuf;
use std::time::Duration;

use clinch_core::{Error, Result, StoreUrl, TlsFiles, percent_decode};

/// How long a reply is waited for before the connection is given up.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long an idle name keeps its row: longer than any copy of a request is under way.
const DEFAULT_REMEMBER: Duration = Duration::from_secs(86_400);
const SHORTEST_REMEMBER: Duration = Duration::from_secs(1);
/// Connections for claims, renewals and releases, made on demand: commits of many share a flush only
/// if they are under way together. Waiting takes two more. Eight processes that use all of them stay
/// below the 151 connections that a server allows by default; with 32, six of them did not.
const DEFAULT_POOL: usize = 16;
const LARGEST_POOL: usize = 512;
/// The port of both servers.
const PORT: u16 = 3306;
/// The parameters of the URL; `dialect` is for tests.
const KNOWN: [&str; 8] = [
    "ca", "cert", "key", "pool", "remember", "socket", "timeout", "tls",
];

/// What the URL says.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) tls: Option<Tls>,
    pub(crate) pool: usize,
    pub(crate) timeout: Duration,
    pub(crate) remember: Duration,
    /// Use only the statements of MySQL 8, whatever the server is.
    pub(crate) plain_dialect: bool,
}

/// How a connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The certificate of the authority; the public ones without it.
    pub(crate) ca: Option<PathBuf>,
    /// The client's own certificate and key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    pub(crate) check: Check,
}

/// What of the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Its authority and its name.
    Full,
    /// Its authority only.
    Authority,
    /// Nothing: encrypted against listeners only.
    Nothing,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("Config")
            .field("address", &self.address())
            .field("user", &self.user)
            .field("password", &password)
            .field("tls", &self.tls)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The server, for messages.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Some(path) => path.display().to_string(),
            None if self.host.contains(':') => format!("[{}]:{}", self.host, self.port),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut url = url.clone();
        Self::parse(&mut url).map_err(|error| match error.message().starts_with("mysql") {
            true => error,
            false => error.with_store("mysql"),
        })
    }

    fn parse(url: &mut StoreUrl) -> Result<Self> {
        if !matches!(url.scheme(), "mysql" | "mariadb") {
            return Err(Error::invalid(format!(
                "{:?} is not a scheme of MySQL",
                url.scheme()
            )));
        }
        const FORM: &str = "write mysql://user:password@host:port/database";
        let rest = url
            .rest()
            .strip_prefix("//")
            .ok_or_else(|| Error::invalid(format!("{url} has no //")).with_advice(FORM))?;
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (login.to_owned(), rest.to_owned()),
            None => (String::new(), rest.to_owned()),
        };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login.as_str(), None),
        };
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        let (place, database) = rest.split_once('/').unwrap_or((&rest, ""));
        let database = decoded(database)?;
        if database.is_empty() || database.contains('/') {
            return Err(Error::invalid("the database is missing").with_advice(FORM));
        }
        let (host, port) = host_and_port(place)?;
        let socket = url.take("socket").map(PathBuf::from);
        let tls = tls(url)?;
        if socket.is_some() && tls.is_some() {
            return Err(Error::invalid("a socket file needs no TLS"));
        }
        let config = Self {
            host,
            port,
            socket,
            user,
            password,
            database,
            tls,
            pool: number(url, "pool")?.unwrap_or(DEFAULT_POOL),
            timeout: url.take_duration("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
            remember: url.take_duration("remember")?.unwrap_or(DEFAULT_REMEMBER),
            plain_dialect: match url.take("dialect").as_deref() {
                None => false,
                Some("mysql") => true,
                Some(other) => return Err(not_known("dialect", other, "mysql")),
            },
        };
        url.finish(&KNOWN)?;
        if config.timeout.is_zero() || config.remember < SHORTEST_REMEMBER {
            return Err(Error::invalid(
                "timeout must be above 0, and remember at least 1s",
            ));
        }
        // One connection is kept free of callers that do not run: see `connection/mod.rs`.
        if config.pool < 2 || config.pool > LARGEST_POOL {
            return Err(Error::invalid(format!(
                "pool={} is not between 2 and {LARGEST_POOL}",
                config.pool
            )));
        }
        Ok(config)
    }
}

fn tls(url: &mut StoreUrl) -> Result<Option<Tls>> {
    let check = match url.take("tls").as_deref() {
        None | Some("off") => None,
        Some("on" | "verify-full") => Some(Check::Full),
        Some("verify-ca") => Some(Check::Authority),
        Some("unverified") => Some(Check::Nothing),
        Some(other) => {
            let known = "off, on, verify-full (the same as on), verify-ca or unverified";
            return Err(not_known("tls", other, known));
        }
    };
    let TlsFiles { ca, client } = url.take_tls_files(check.is_some(), "add tls=on")?;
    Ok(check.map(|check| Tls { ca, client, check }))
}

fn host_and_port(text: &str) -> Result<(String, u16)> {
    let bad =
        || Error::invalid(format!("{text:?} is not a host")).with_advice("write host or host:port");
    let (host, number) = match text.strip_prefix('[') {
        // An address of version 6.
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, number)) => (host, Some(number)),
            None => (text, None),
        },
    };
    let port = number.map_or(Ok(PORT), |number| number.parse().map_err(|_| bad()))?;
    match host {
        "" => Ok(("localhost".to_owned(), port)),
        host => Ok((decoded(host)?, port)),
    }
}

fn number(url: &mut StoreUrl, key: &str) -> Result<Option<usize>> {
    url.take(key)
        .map(|text| {
            text.parse()
                .map_err(|_| Error::invalid(format!("{key}={text} is not a number")))
        })
        .transpose()
}

fn decoded(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| Error::invalid("the URL has a broken % escape"))
}

fn not_known(key: &str, value: &str, known: &str) -> Error {
    Error::invalid(format!("{key}={value} is not known")).with_advice(format!("it is {known}"))
}
