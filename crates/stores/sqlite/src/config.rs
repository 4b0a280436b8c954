//! The URL of an embedded store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, StoreUrl};

/// How long an operation waits by default for the transactions of other processes.
const DEFAULT_BUSY: Duration = Duration::from_secs(5);
/// The parameters of the URL.
const KNOWN: [&str; 1] = ["busy"];

/// What the URL says.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The database file.
    pub(crate) path: PathBuf,
    /// Whether the path is the default: then its folder is made on demand.
    pub(crate) is_default: bool,
    /// How long an operation waits for the transactions of other processes.
    pub(crate) busy: Duration,
}

impl Config {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut url = url.clone();
        let busy = url.take_duration("busy")?.unwrap_or(DEFAULT_BUSY);
        url.finish(&KNOWN)?;
        let text = url.path()?;
        if text.contains('\0') {
            return Err(Error::invalid("the path contains a NUL byte").with_store("sqlite"));
        }
        Ok(match text.as_str() {
            "" => Self {
                path: default_path()?,
                is_default: true,
                busy,
            },
            text => Self {
                path: PathBuf::from(text),
                is_default: false,
                busy,
            },
        })
    }
}

/// The file that `sqlite:` without a path means: `locks.db` in the user's state folder
/// (`$XDG_STATE_HOME/clinch`, else `~/.local/state/clinch`), or in `/var/lib/clinch` for a root
/// without a home.
///
/// ```
/// match clinch_sqlite::default_path() {
///     Ok(path) => assert!(path.ends_with("clinch/locks.db")),
///     Err(error) => assert!(error.to_string().contains("neither XDG_STATE_HOME nor HOME is set")),
/// }
/// ```
pub fn default_path() -> Result<PathBuf> {
    let folder = |key: &str| {
        std::env::var_os(key)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    choose(
        folder("XDG_STATE_HOME"),
        folder("HOME"),
        rustix::process::geteuid().is_root(),
    )
}

fn choose(state: Option<PathBuf>, home: Option<PathBuf>, root: bool) -> Result<PathBuf> {
    let base = match (state, home) {
        (Some(state), _) => state,
        (None, Some(home)) if home != Path::new("/") || root => home.join(".local/state"),
        _ if root => PathBuf::from("/var/lib"),
        _ => {
            return Err(Error::new(
                ErrorKind::Invalid,
                "no folder is known for the default file: neither XDG_STATE_HOME nor HOME is set",
            )
            .with_store("sqlite")
            .with_advice("set one of them, or give a path: --store sqlite:/path/to/locks.db"));
        }
    };
    Ok(base.join("clinch/locks.db"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(&url.parse().unwrap())
    }

    #[test]
    fn every_form_of_the_url_is_read() {
        for (url, path) in [
            ("sqlite:/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:rel/b.db", "rel/b.db"),
            ("sqlite:/a%20b?busy=1s", "/a b"),
        ] {
            let config = config(url).unwrap();
            assert_eq!(config.path, Path::new(path), "{url}");
            assert!(!config.is_default);
        }
        assert_eq!(
            config("sqlite:/a?busy=250ms").unwrap().busy,
            Duration::from_millis(250)
        );
    }

    #[test]
    fn unknown_parameters_and_bad_values_are_refused() {
        let e = config("sqlite:/a?bussy=1s").unwrap_err().to_string();
        assert!(e.contains("bussy") && e.contains("it takes busy"), "{e}");
        assert!(config("sqlite:/a?busy=5").is_err());
        assert!(config("sqlite:/a%00b").is_err());
    }

    #[test]
    fn the_default_follows_the_users_folders() {
        let at = |path: &str| Some(PathBuf::from(path));
        let ok = |a, b, root| choose(a, b, root).unwrap();
        assert_eq!(
            ok(at("/s"), at("/h"), false),
            Path::new("/s/clinch/locks.db")
        );
        assert_eq!(
            ok(None, at("/h"), false),
            Path::new("/h/.local/state/clinch/locks.db")
        );
        assert_eq!(ok(None, None, true), Path::new("/var/lib/clinch/locks.db"));
        let e = choose(None, None, false).unwrap_err().to_string();
        assert!(e.contains("HOME") && e.contains("--store"), "{e}");
    }
}
