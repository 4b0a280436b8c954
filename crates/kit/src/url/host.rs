//! Hosts: `name`, `name:port`, `[v6 address]:port`.

use std::fmt;

use clinch_core::{Error, Result};

use super::decode;

/// Where a server listens. It displays as `name:port`, with an IPv6 address in brackets.
///
/// ```
/// use clinch_kit::url::Host;
/// let host = Host::parse("[::1]", 2379).unwrap();
/// assert_eq!((host.name.as_str(), host.port), ("::1", 2379));
/// assert_eq!(host.to_string(), "[::1]:2379");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// The name, or the address without brackets.
    pub name: String,
    /// The port.
    pub port: u16,
}

impl Host {
    /// Reads one host, percent-decoded. The `%` of an IPv6 zone may be written as `%25` or as `%`.
    pub fn parse(text: &str, default_port: u16) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("{text:?} is not a host")).with_advice("write host or host:port")
        };
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or_else(bad)?;
                let port = match rest {
                    "" => None,
                    rest => Some(rest.strip_prefix(':').ok_or_else(bad)?),
                };
                (address.replacen("%25", "%", 1), port)
            }
            None => match text.split_once(':') {
                Some((name, port)) => (decode(name)?, Some(port)),
                None => (decode(text)?, None),
            },
        };
        if name.is_empty() {
            return Err(bad());
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| bad())?,
            None => default_port,
        };
        Ok(Self { name, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// Reads a list of hosts, separated by commas; none may be given twice.
///
/// ```
/// use clinch_kit::url::hosts;
/// assert_eq!(hosts("a,b:7", 6379).unwrap().len(), 2);
/// let error = hosts("a,a:6379", 6379).unwrap_err();
/// assert_eq!(error.message(), "a:6379 is given twice");
/// ```
pub fn hosts(list: &str, default_port: u16) -> Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    for text in list.split(',') {
        let host = Host::parse(text, default_port)?;
        if hosts.contains(&host) {
            return Err(Error::invalid(format!("{host} is given twice")));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, shown) in [
            ("a", "a:9"),
            ("a:1", "a:1"),
            ("a%2Db:1", "a-b:1"),
            ("[::1]", "[::1]:9"),
            ("[::1]:3", "[::1]:3"),
            ("[fe80::1%25eth0]:3", "[fe80::1%eth0]:3"),
            ("[fe80::1%eth0]:3", "[fe80::1%eth0]:3"),
        ] {
            assert_eq!(Host::parse(text, 9).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for text in [
            "", ":1", "[]", "[]:1", "a:", "a:x", "a:99999", "[::1", "[::1]x", "::1", "a:b:1", "a%",
        ] {
            assert!(Host::parse(text, 9).is_err(), "{text}");
        }
        for list in ["", "a,", ",a", "a,b,a", "[::1],[::1]:9"] {
            assert!(hosts(list, 9).is_err(), "{list}");
        }
    }
}
