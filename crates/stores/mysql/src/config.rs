//! The URL of a MySQL or MariaDB store.

use std::path::PathBuf;
use std::time::Duration;

use clinch_core::{Error, Result, StoreUrl, TlsFiles};
use clinch_kit::url::{Host, UrlParts, decode, not_known, take_number};

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
    pub(crate) host: Host,
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
            None => self.host.to_string(),
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
        let parts = UrlParts::of(url, FORM)?;
        let database = decode(parts.path())?;
        if database.is_empty() || database.contains('/') {
            return Err(Error::invalid("the database is missing").with_advice(FORM));
        }
        let host = match parts.authority() {
            place if place.is_empty() || place.starts_with(':') => format!("localhost{place}"),
            place => place.to_owned(),
        };
        let host = Host::parse(&host, PORT)?;
        let (user, password) = parts.login.map_or((None, None), |l| (l.user, l.password));
        let socket = url.take("socket").map(PathBuf::from);
        let tls = tls(url)?;
        if socket.is_some() && tls.is_some() {
            return Err(Error::invalid("a socket file needs no TLS"));
        }
        let config = Self {
            host,
            socket,
            user,
            password,
            database,
            tls,
            pool: take_number(url, "pool")?.unwrap_or(DEFAULT_POOL),
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
