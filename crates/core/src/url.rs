//! Store URLs: parsing, parameters, and keeping secrets out of sight.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::{Error, Result};

/// The files of an encrypted connection: what `ca=`, `cert=` and `key=` name; see
/// [`StoreUrl::take_tls_files`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Who signs the servers' certificates.
    pub ca: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// A store's address: `scheme:rest?key=value&…`.
///
/// Each store takes the parameters that it knows and then calls [`finish`](StoreUrl::finish), which
/// refuses the rest: a misspelt parameter is an error, never silence. `Debug` and `Display` hide
/// passwords.
///
/// ```
/// use clinch_core::StoreUrl;
/// let mut url: StoreUrl = "redis://me:secret@db:6379/0?durability=strict".parse().unwrap();
/// assert_eq!(url.scheme(), "redis");
/// assert_eq!(url.take("durability").as_deref(), Some("strict"));
/// assert!(url.finish(&["durability"]).is_ok());
/// assert_eq!(url.to_string(), "redis://me:***@db:6379/0?durability=strict");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    scheme: String,
    rest: String,
    params: BTreeMap<String, String>,
}

impl StoreUrl {
    /// The part before the first `:`, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The part between the scheme's `:` and the `?`, as written (with `//` where it has hosts).
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The path or address with percent escapes resolved and a leading `//` removed.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let url: clinch_core::StoreUrl = "sqlite:///srv/my%20app/locks.db".parse()?;
    /// assert_eq!(url.path()?, "/srv/my app/locks.db");
    /// # Ok(()) }
    /// ```
    pub fn path(&self) -> Result<String> {
        let path = self.rest.strip_prefix("//").unwrap_or(&self.rest);
        percent_decode(path).ok_or_else(|| Error::invalid(format!("{self} has a broken % escape")))
    }

    /// The URL as it was given, with its secrets: for drivers only, never for people.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Takes a parameter out.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.params.remove(key)
    }

    /// Takes a parameter out that is a duration such as `500ms`.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let mut url: clinch_core::StoreUrl = "sqlite:/tmp/a.db?busy=250ms".parse()?;
    /// assert_eq!(url.take_duration("busy")?.unwrap().as_millis(), 250);
    /// assert_eq!(url.take_duration("busy")?, None); // taken
    /// # Ok(()) }
    /// ```
    pub fn take_duration(&mut self, key: &str) -> Result<Option<Duration>> {
        self.take(key)
            .map(|text| crate::time::parse_duration(&text))
            .transpose()
    }

    /// Takes a parameter out that is `on` or `off`; off without one.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let mut url: clinch_core::StoreUrl = "etcd://a?tls=on".parse()?;
    /// assert!(url.take_switch("tls")?);
    /// assert!(!url.take_switch("tls")?); // taken
    /// # Ok(()) }
    /// ```
    pub fn take_switch(&mut self, key: &str) -> Result<bool> {
        self.take_switch_or(key, false)
    }

    /// The same with another value where there is none.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let mut url: clinch_core::StoreUrl = "rediss://a?tls=off".parse()?;
    /// assert!(!url.take_switch_or("tls", true)?);
    /// assert!(url.take_switch_or("tls", true)?); // taken
    /// # Ok(()) }
    /// ```
    pub fn take_switch_or(&mut self, key: &str, without: bool) -> Result<bool> {
        match self.take(key).as_deref() {
            None => Ok(without),
            Some("off" | "no") => Ok(false),
            Some("on" | "yes") => Ok(true),
            Some(other) => {
                Err(Error::invalid(format!("{key}={other} is not known"))
                    .with_advice("use on or off"))
            }
        }
    }

    /// Takes out which files an encrypted connection uses. Where it is not encrypted there must be
    /// none; `advice` says how to encrypt it.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let mut url: clinch_core::StoreUrl = "etcd://a?tls=on&ca=/etc/ca.pem".parse()?;
    /// let encrypted = url.take_switch("tls")?;
    /// let files = url.take_tls_files(encrypted, "add tls=on")?;
    /// assert_eq!(files.ca.unwrap().to_str(), Some("/etc/ca.pem"));
    /// # Ok(()) }
    /// ```
    pub fn take_tls_files(&mut self, encrypted: bool, advice: &'static str) -> Result<TlsFiles> {
        let files = TlsFiles {
            ca: self.take("ca").map(PathBuf::from),
            client: match (self.take("cert"), self.take("key")) {
                (Some(cert), Some(key)) => Some((cert.into(), key.into())),
                (None, None) => None,
                _ => return Err(Error::invalid("cert and key are given together")),
            },
        };
        if !encrypted && files != TlsFiles::default() {
            let text = "ca, cert and key need an encrypted connection";
            return Err(Error::invalid(text).with_advice(advice));
        }
        Ok(files)
    }

    /// Refuses the parameters that nobody took.
    ///
    /// ```
    /// # fn main() -> clinch_core::Result<()> {
    /// let url: clinch_core::StoreUrl = "sqlite:/tmp/a.db?bussy=1s".parse()?;
    /// let error = url.finish(&["busy"]).unwrap_err().to_string();
    /// assert!(error.contains("bussy") && error.contains("it takes busy"));
    /// # Ok(()) }
    /// ```
    pub fn finish(&self, known: &[&str]) -> Result<()> {
        let Some(unknown) = self.params.keys().next() else {
            return Ok(());
        };
        let error = Error::invalid(format!("{}: has no parameter {unknown:?}", self.scheme));
        Err(match known {
            [] => error.with_advice("this store takes none"),
            _ => error.with_advice(format!("it takes {}", known.join(", "))),
        })
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(
                Error::invalid(format!("{:?} is not a store URL", redact(text))).with_advice(
                    "it starts with a scheme, for example `sqlite:/var/lib/app/locks.db`",
                ),
            );
        };
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, query),
            None => (rest, ""),
        };
        // `//user:pa?ss@host`: what follows the `?` is a part of the password, not a parameter.
        if rest.starts_with("//") && !rest.contains('@') && query.contains('@') {
            return Err(
                Error::invalid(format!("{} has a `?` before its `@`", redact(text)))
                    .with_advice("write a `?` in a user name or password as %3F, an `@` as %40"),
            );
        }
        let mut params = BTreeMap::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (percent_decode(key), percent_decode(value)) else {
                return Err(Error::invalid(format!(
                    "{} has a broken % escape",
                    redact(text)
                )));
            };
            if params.insert(key.clone(), value).is_some() {
                return Err(Error::invalid(format!("parameter {key:?} is given twice")));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            rest: rest.to_owned(),
            params,
        })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.text))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({:?})", redact(&self.text))
    }
}

/// The text of a URL with the password of its authority and any secret parameter replaced by `***`.
///
/// ```
/// use clinch::redact;
/// assert_eq!(redact("mysql://u:p%40ss@h/db?password=x&pool=2"), "mysql://u:***@h/db?password=***&pool=2");
/// assert_eq!(redact("sqlite:/tmp/a.db"), "sqlite:/tmp/a.db");
/// ```
pub fn redact(url: &str) -> String {
    // Credentials first, up to the last `@` that can end them: a password that was not escaped may
    // contain `?`, `/` or `@` itself, and hiding too much is better than showing a part of it.
    let url = redact_authority(url);
    let (base, query) = match url.split_once('?') {
        Some((base, query)) => (base, Some(query)),
        None => (url.as_str(), None),
    };
    let mut out = base.to_owned();
    if let Some(query) = query {
        out.push('?');
        let pairs: Vec<String> = query.split('&').map(redact_pair).collect();
        out.push_str(&pairs.join("&"));
    }
    out
}

fn redact_authority(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let Some((credentials, host)) = rest.rsplit_once('@') else {
        return url.to_owned();
    };
    match credentials.split_once(':') {
        // An `@` in the path or in a parameter, with no credentials before it.
        Some((user, _)) if user.contains('/') => url.to_owned(),
        Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
        None => url.to_owned(),
    }
}

fn redact_pair(pair: &str) -> String {
    let secret = |key: &str| {
        let key = key.to_ascii_lowercase();
        ["pass", "secret", "token", "auth", "key"]
            .iter()
            .any(|s| key.contains(s))
    };
    match pair.split_once('=') {
        Some((key, _)) if secret(key) => format!("{key}=***"),
        _ => pair.to_owned(),
    }
}

/// Undoes `%` escapes; `None` when one is broken or the result is not UTF-8.
///
/// ```
/// use clinch_core::percent_decode;
/// assert_eq!(percent_decode("a%40b").as_deref(), Some("a@b"));
/// assert_eq!(percent_decode("100%"), None);
/// ```
pub fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let hex = [bytes.next()?, bytes.next()?];
            let hex = std::str::from_utf8(&hex).ok()?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_are_named_with_the_known_ones() {
        let mut url: StoreUrl = "sqlite:/x?bussy=1".parse().unwrap();
        assert_eq!(url.take("busy"), None);
        let e = url.finish(&["busy"]).unwrap_err().to_string();
        assert!(e.contains("bussy") && e.contains("it takes busy"), "{e}");
    }

    #[test]
    fn secrets_stay_hidden_everywhere() {
        let url: StoreUrl = "redis://u:s3cr@t@h?auth_token=s3cr&x=1".parse().unwrap();
        for shown in [url.to_string(), format!("{url:?}"), redact(url.expose())] {
            assert!(!shown.contains("s3cr"), "{shown}");
        }
        for text in [
            "mysql://u:s3?cr@h/db",
            "mysql://u:a/s3cr@h/db?x=1",
            "redis://:s3cr@h",
            "mysql://u:s3cr@h:3306,h2:3306/db?label=a@b",
        ] {
            let shown = match text.parse::<StoreUrl>() {
                Ok(url) => format!("{url} {url:?} {:?}", url.finish(&[])),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("cr"), "{shown}");
        }
        let plain = "sqlite:///srv/a@b:c/locks.db";
        assert_eq!(redact(plain), plain);
        let no_scheme = "s3cr".parse::<StoreUrl>().unwrap_err();
        assert_eq!(no_scheme.kind(), crate::ErrorKind::Invalid);
    }
}
