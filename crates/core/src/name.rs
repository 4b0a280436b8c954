//! Lock names and namespaces.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Result};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

/// A lock's name: 1 to 255 bytes of UTF-8, compared byte by byte on every store.
///
/// Case, trailing spaces, `.`, `//` and Unicode forms are significant: no store folds two names into
/// one. `/` is the usual separator of a hierarchy, and [`list`](crate::Clinch::list) takes prefixes.
///
/// ```
/// use clinch::Name;
/// assert_eq!(Name::new("orders/42").unwrap().as_str(), "orders/42");
/// assert!(Name::new("").is_err());
/// assert!(Name::new("x".repeat(256)).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks a name.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::invalid("a lock's name is empty")
                .with_advice("give it 1 to 255 bytes, for example `orders/42`"));
        }
        if name.len() > MAX_NAME {
            return Err(Error::invalid(format!(
                "a lock's name has {} bytes; the maximum is {MAX_NAME}",
                name.len()
            ))
            .with_advice("shorten it, or use a hash of it"));
        }
        if name.contains('\0') {
            return Err(Error::invalid("a lock's name contains a NUL byte")
                .with_advice("remove it: some stores would end the name there"));
        }
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Checks a namespace: 1 to 64 bytes of letters, digits, `-`, `_` and `.`.
///
/// The set is narrow, so that each store can use it unescaped in keys, paths and tables.
///
/// ```
/// use clinch::store::check_namespace;
/// assert!(check_namespace("billing-eu.v2").is_ok());
/// assert!(check_namespace("billing/eu").is_err());
/// ```
pub fn check_namespace(namespace: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if namespace.is_empty() || namespace.len() > 64 || !namespace.bytes().all(plain) {
        return Err(Error::invalid(format!("{namespace:?} is not a namespace"))
            .with_advice("use 1 to 64 letters, digits, `-`, `_` or `.`"));
    }
    Ok(())
}
