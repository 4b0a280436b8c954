//! The URL of an embedded store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clinch_core::{Error, ErrorKind, Result, StoreUrl};

use crate::file::home;

/// Default of the longest wait for the transactions of other processes.
const DEFAULT_BUSY: Duration = Duration::from_secs(5);
/// The parameters of the URL.
const KNOWN: [&str; 3] = ["busy", "fs", "owner"];

/// The parsed URL.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The database file.
    pub(crate) path: PathBuf,
    /// Whether the path is the default: then its folder is created if it is missing.
    pub(crate) is_default: bool,
    /// Longest wait of an operation for the transactions of other processes.
    pub(crate) busy: Duration,
    /// Whether a place is accepted where locks may not exclude.
    pub(crate) any_place: bool,
    /// Whether a file is accepted that another user may have prepared.
    pub(crate) any_owner: bool,
}

impl Config {
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut url = url.clone();
        let busy = url.take_duration("busy")?.unwrap_or(DEFAULT_BUSY);
        let any_place = accepts(&mut url, "fs")?;
        let any_owner = accepts(&mut url, "owner")?;
        url.finish(&KNOWN)?;
        let text = url.path()?;
        if text.contains('\0') {
            return Err(Error::invalid("the path contains a NUL byte"));
        }
        if text.starts_with(":memory:") {
            return Err(
                Error::invalid("a store in memory is not shared with any process")
                    .with_advice("for tests inside one process use memory:, else give a path"),
            );
        }
        let is_default = text.is_empty();
        let path = match is_default {
            true => default_path()?,
            false => PathBuf::from(text),
        };
        Ok(Self {
            path,
            is_default,
            busy,
            any_place,
            any_owner,
        })
    }
}

/// Whether a check is turned off, by its only value `accept`.
fn accepts(url: &mut StoreUrl, check: &str) -> Result<bool> {
    match url.take(check).as_deref() {
        None => Ok(false),
        Some("accept") => Ok(true),
        Some(other) => Err(Error::invalid(format!("{check}={other} is not known"))
            .with_advice(format!("the only value is {check}=accept"))),
    }
}

/// The file that `sqlite:` without a path means: `/var/lib/clinch/locks.db` for root, and
/// `.local/state/clinch/locks.db` in the home of any other user.
///
/// The home is that of the user database. The environment is not used: it differs between a service, a
/// cron job and a shell of one user, which would then not exclude each other.
///
/// ```
/// match clinch_sqlite::default_path() {
///     Ok(path) => assert!(path.is_absolute() && path.ends_with("clinch/locks.db")),
///     Err(error) => assert!(error.to_string().contains("has no home")),
/// }
/// ```
pub fn default_path() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    choose(uid, home::of).map_err(|error| error.or_store("sqlite"))
}

/// The absolute path of the file that a URL of this store means, without opening it.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// let path = clinch_sqlite::file_of(&"sqlite:locks.db".parse()?)?;
/// assert!(path.is_absolute() && path.ends_with("locks.db"));
/// # Ok(()) }
/// ```
pub fn file_of(url: &StoreUrl) -> Result<PathBuf> {
    locate(url).map_err(|error| error.or_store("sqlite"))
}

fn locate(url: &StoreUrl) -> Result<PathBuf> {
    let path = Config::from_url(url)?.path;
    let name = path.file_name().unwrap_or_default().to_owned();
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // As in opening, as far as the folder exists.
    match folder.canonicalize() {
        Ok(folder) => Ok(folder.join(name)),
        Err(_) => std::path::absolute(&path)
            .map_err(|error| crate::error::io(error, &path, "has no absolute path")),
    }
}

fn choose(uid: u32, home: impl FnOnce(u32) -> Option<PathBuf>) -> Result<PathBuf> {
    let base = match uid {
        0 => PathBuf::from("/var/lib"),
        _ => {
            let home = home(uid).ok_or_else(|| {
                Error::new(
                    ErrorKind::Invalid,
                    format!("no folder is known for the default file: user {uid} has no home"),
                )
                .with_advice("give a path: --store sqlite:/path/to/locks.db")
            })?;
            home.join(".local/state")
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
    fn the_default_is_one_file_for_each_user_whatever_the_environment_says() {
        let root = choose(0, |_| Some("/root".into())).unwrap();
        assert_eq!(root, Path::new("/var/lib/clinch/locks.db"));
        let user = choose(1000, |uid| Some(format!("/home/u{uid}").into())).unwrap();
        assert_eq!(user, Path::new("/home/u1000/.local/state/clinch/locks.db"));
        let e = choose(1000, |_| None).unwrap_err().to_string();
        assert!(e.contains("1000") && e.contains("--store"), "{e}");
    }

    #[test]
    fn a_store_in_memory_is_refused_with_advice() {
        let e = config("sqlite::memory:").unwrap_err().to_string();
        assert!(e.contains("not shared") && e.contains("memory:"), "{e}");
    }

    #[test]
    fn a_place_and_an_owner_are_accepted_in_one_way_only() {
        assert!(config("sqlite:/a?owner=accept").unwrap().any_owner);
        assert!(!config("sqlite:/a?fs=accept").unwrap().any_owner);
        assert!(config("sqlite:/a?owner=root").is_err());
        assert!(config("sqlite:/a?fs=accept").unwrap().any_place);
        assert!(!config("sqlite:/a").unwrap().any_place);
        assert!(config("sqlite:/a?fs=yes").is_err());
    }
}
