//! The login of a URL.

use std::fmt;

use clinch_core::Result;

use super::decode;

/// User and password of a URL, percent-decoded. Its `Debug` hides the password.
///
/// ```
/// use clinch_kit::url::Login;
/// let login = Login::parse("me:s%40cret").unwrap();
/// assert_eq!(login.password.as_deref(), Some("s@cret"));
/// assert!(!format!("{login:?}").contains("cret"));
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// The user; `None` if the text before the `:` is empty.
    pub user: Option<String>,
    /// The password; `None` without a `:`, and empty if nothing follows it.
    pub password: Option<String>,
}

impl Login {
    /// Reads `user:password`, `user` or `:password`.
    pub fn parse(text: &str) -> Result<Self> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(decode(password)?)),
            None => (text, None),
        };
        Ok(Self {
            user: Some(decode(user)?).filter(|user| !user.is_empty()),
            password,
        })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        write!(f, "Login({:?}, {password:?})", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_may_be_absent() {
        let parsed = |text| {
            let Login { user, password } = Login::parse(text).unwrap();
            (user.unwrap_or("-".into()), password.unwrap_or("-".into()))
        };
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(parsed("u"), pair("u", "-"));
        assert_eq!(parsed("u:"), pair("u", ""));
        assert_eq!(parsed(":p"), pair("-", "p"));
        assert_eq!(parsed("%75:a:b%3A"), pair("u", "a:b:"));
        assert!(Login::parse("u:%zz").is_err());
    }
}
