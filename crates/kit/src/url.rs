//! What store URLs share beyond [`StoreUrl`]: login, hosts, path, and typical parameters.
//!
//! Durations, switches, TLS files and the refusal of unknown parameters are methods of [`StoreUrl`].
//!
//! ```
//! # fn main() -> clinch_core::Result<()> {
//! use clinch_core::StoreUrl;
//! use clinch_kit::url::{UrlParts, take_number};
//! let mut url: StoreUrl = "redis://me:s%40cret@a,[::1]:7000/3?wait=2".parse()?;
//! let parts = UrlParts::of(&url, "write redis://host:port")?;
//! let login = parts.login.as_ref().unwrap();
//! assert_eq!(login.user.as_deref(), Some("me"));
//! assert_eq!(login.password.as_deref(), Some("s@cret"));
//! let hosts: Vec<_> = parts.hosts(6379)?.iter().map(ToString::to_string).collect();
//! assert_eq!(hosts, ["a:6379", "[::1]:7000"]);
//! assert_eq!(parts.path(), "3");
//! assert_eq!(take_number::<u32>(&mut url, "wait")?, Some(2));
//! url.finish(&["wait"])?;
//! # Ok(()) }
//! ```

mod host;
mod login;

use std::str::FromStr;

use clinch_core::{Error, Result, StoreUrl, percent_decode};

pub use host::{Host, hosts};
pub use login::Login;

/// The part of a URL between `//` and `?`: `user:password@host:port,host:port/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlParts {
    /// What is before the last `@`, if there is one.
    pub login: Option<Login>,
    /// What is after it, as written.
    pub rest: String,
}

impl UrlParts {
    /// Splits a URL; if it has no `//`, `form` is the advice.
    pub fn of(url: &StoreUrl, form: &str) -> Result<Self> {
        let rest = url.rest().strip_prefix("//").ok_or_else(|| {
            Error::invalid(format!("{url} has no //")).with_advice(form.to_owned())
        })?;
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(Login::parse(login)?), rest),
            None => (None, rest),
        };
        Ok(Self {
            login,
            rest: rest.to_owned(),
        })
    }

    /// The hosts as written: what is before the first `/`.
    pub fn authority(&self) -> &str {
        self.rest
            .split_once('/')
            .map_or(&self.rest, |(hosts, _)| hosts)
    }

    /// The path as written, without its first `/`; empty if there is none.
    pub fn path(&self) -> &str {
        self.rest.split_once('/').map_or("", |(_, path)| path)
    }

    /// The hosts; see [`hosts`].
    pub fn hosts(&self, default_port: u16) -> Result<Vec<Host>> {
        hosts(self.authority(), default_port)
    }
}

/// Resolves `%` escapes.
///
/// ```
/// assert_eq!(clinch_kit::url::decode("a%2Fb").unwrap(), "a/b");
/// assert!(clinch_kit::url::decode("100%").is_err());
/// ```
pub fn decode(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| Error::invalid("the URL has a broken % escape"))
}

/// Takes a parameter out that is a number.
///
/// ```
/// let mut url: clinch_core::StoreUrl = "mysql://h/d?pool=many".parse().unwrap();
/// let error = clinch_kit::url::take_number::<usize>(&mut url, "pool").unwrap_err();
/// assert!(error.to_string().contains("pool=many is not a number"));
/// ```
pub fn take_number<T: FromStr>(url: &mut StoreUrl, key: &str) -> Result<Option<T>> {
    let not_a_number = |text: &str| Error::invalid(format!("{key}={text} is not a number"));
    url.take(key)
        .map(|text| text.parse().map_err(|_| not_a_number(&text)))
        .transpose()
}

/// The error for a value that a parameter does not take; `known` lists those that it does.
///
/// ```
/// let error = clinch_kit::url::not_known("acl", "all", "open or creator-all");
/// assert_eq!(error.message(), "acl=all is not known");
/// assert_eq!(error.advice(), Some("it is open or creator-all"));
/// ```
pub fn not_known(key: &str, value: &str, known: &str) -> Error {
    Error::invalid(format!("{key}={value} is not known")).with_advice(format!("it is {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Result<UrlParts> {
        UrlParts::of(&url.parse().unwrap(), "write x://host")
    }

    #[test]
    fn urls_are_split_at_the_last_at_and_the_first_slash() {
        let all = parts("x://u:p%40@h:1/a/b?c=d").unwrap();
        assert_eq!((all.authority(), all.path()), ("h:1", "a/b"));
        assert_eq!(all.login.unwrap().password.as_deref(), Some("p@"));
        let bare = parts("x://h").unwrap();
        assert_eq!((bare.authority(), bare.path()), ("h", ""));
        assert_eq!(bare.login, None);
        assert_eq!(parts("x:///tmp/a.sock").unwrap().rest, "/tmp/a.sock");
    }

    #[test]
    fn mistakes_are_named() {
        let error = parts("x:h").unwrap_err();
        assert_eq!(error.message(), "x:h has no //");
        assert_eq!(error.advice(), Some("write x://host"));
        let error = parts("x://u%4@h").unwrap_err();
        assert!(error.message().contains("broken % escape"));
        let mut url = "x://h?n=5&m=-1".parse().unwrap();
        assert_eq!(take_number::<u8>(&mut url, "n").unwrap(), Some(5));
        assert_eq!(take_number::<u8>(&mut url, "n").unwrap(), None);
        assert!(take_number::<u8>(&mut url, "m").is_err());
    }
}
