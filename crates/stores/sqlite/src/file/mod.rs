//! The database file: checks of its path, owner and header before it is opened.

pub(crate) mod blocker;
pub(crate) mod home;
pub(crate) mod log;
pub(crate) mod owner;
pub(crate) mod place;
pub(crate) mod rights;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use clinch_core::{Error, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::config::Config;
use crate::error::{corrupt, io as io_error, sql};
use crate::schema::{APPLICATION_ID, OPEN_WAIT, VERSION, too_new};

/// The identity of a file, independent of its path: shows that it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileId {
    /// The file that the path leads to now.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|meta| Self::from(&meta))
    }
}

impl From<&fs::Metadata> for FileId {
    fn from(meta: &fs::Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
        }
    }
}

/// The file that a connection uses, to notice that it is not at its path any more.
#[derive(Debug)]
pub(crate) struct PinnedFile {
    /// Opened with `O_PATH`: closing any other descriptor of the file would drop the locks that
    /// SQLite holds on it.
    handle: OwnedFd,
    id: FileId,
}

impl PinnedFile {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        let id = FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        Ok(Self { handle, id })
    }

    /// Whether it was deleted, or replaced by another one. Cheap: one `fstat`.
    pub(crate) fn is_deleted(&self) -> bool {
        rustix::fs::fstat(&self.handle).map_or(true, |stat| stat.st_nlink == 0)
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Whether the path leads to it: it may also have been moved away.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        FileId::of(path).is_ok_and(|id| id == self.id)
    }
}

/// Checks the place, creates an empty file with mode 0600 if there is none, and refuses a file that
/// is not ours without writing to it. Returns the file's absolute path.
///
/// No descriptor of the file is opened here: closing one would drop the locks that SQLite holds on
/// it through another connection of this process, and SQLite would not take them again.
pub(crate) fn prepare(config: &Config) -> Result<PathBuf> {
    let path = absolute(config)?;
    if !config.any_owner {
        owner::refuse(&config.path)?;
    }
    match rustix::fs::mknodat(
        CWD,
        &path,
        FileType::RegularFile,
        Mode::RUSR | Mode::WUSR,
        0,
    ) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(io_error(error.into(), &path, "cannot be made")),
    }
    if !config.any_owner {
        // The resolved path: another user may have created the file since the check above.
        owner::refuse(&path)?;
        owner::refuse_neighbours(&path)?;
    }
    if !config.any_place {
        place::refuse(&path)?;
    }
    let access = Access::READ_OK | Access::WRITE_OK;
    rustix::fs::accessat(CWD, &path, access, AtFlags::EACCESS)
        .map_err(|error| io_error(error.into(), &path, "cannot be opened for writing"))?;
    check_header(&path)?;
    Ok(path)
}

/// The file next to the store with this ending.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    PathBuf::from(path)
}

/// The path with its folder resolved, so that a later change of the working directory is harmless.
fn absolute(config: &Config) -> Result<PathBuf> {
    let path = &config.path;
    let name = path.file_name().ok_or_else(|| is_a_folder(path))?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if config.is_default {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|error| io_error(error, parent, "cannot be made"))?;
    }
    let parent = parent.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::invalid(format!("the folder {} does not exist", parent.display()))
                .with_advice("make it first, or give another path")
        }
        _ => io_error(error, parent, "cannot be reached"),
    })?;
    let path = parent.join(name);
    // A symbolic link is followed, as SQLite does for its own files: the sessions must be next to
    // them, whatever path the file is opened by.
    let path = path.canonicalize().unwrap_or(path);
    if path.is_dir() {
        return Err(is_a_folder(&path));
    }
    Ok(path)
}

fn is_a_folder(path: &Path) -> Error {
    Error::invalid(format!("{} is a folder", path.display()))
        .with_advice("give the path of a file in it, for example locks.db")
}

/// Refuses a file that is not ours.
///
/// The first read takes no lock, ignores the log and writes nothing. If it finds no database, another
/// process may be in its first commit: the second read waits for that process.
fn check_header(path: &Path) -> Result<()> {
    let meta = fs::metadata(path).map_err(|error| io_error(error, path, "cannot be read"))?;
    if !meta.is_file() {
        return Err(
            Error::invalid(format!("{} is not a regular file", path.display()))
                .with_advice("give the path of a file"),
        );
    }
    if meta.len() == 0 {
        return Ok(());
    }
    check_numbers(path, || {
        let numbers = header(path, "immutable=1");
        match numbers.as_ref().is_err_and(is_no_database) {
            true => header(path, "mode=ro"),
            false => numbers,
        }
    })
}

fn check_numbers(
    path: &Path,
    mut read: impl FnMut() -> rusqlite::Result<(i32, i32)>,
) -> Result<()> {
    let is_empty = || fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
    let mut numbers = read();
    if matches!(numbers, Ok((id, _)) if id != APPLICATION_ID) && !is_empty() {
        // Its first commit may have been rolled back before the read, and made again after it.
        numbers = read();
    }
    match numbers {
        Ok((APPLICATION_ID, version)) if version > VERSION => Err(too_new(path, version)),
        Ok((APPLICATION_ID, _)) => Ok(()),
        // Its first commit was rolled back meanwhile.
        Ok(_) if is_empty() => Ok(()),
        Ok(_) => Err(corrupt(path, "it is a database of another application")),
        Err(error) if is_no_database(&error) => Err(corrupt(path, "it is not a database")),
        // A commit that its process did not finish. The next connection rolls it back.
        Err(error) if is_unfinished(&error) => Ok(()),
        Err(error) => Err(sql(error, path)),
    }
}

/// The application id and the version in the header. `how` is a parameter of SQLite's URIs.
fn header(path: &Path, how: &str) -> rusqlite::Result<(i32, i32)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri(path) + "?" + how, flags)?;
    db.busy_timeout(OPEN_WAIT)?;
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    Ok((number("application_id")?, number("user_version")?))
}

fn is_no_database(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

/// Whether a read-only connection found a rollback journal that has to be applied first.
fn is_unfinished(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
}

/// The path as a URI.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_undone_and_made_again_is_not_another_applications() {
        let path = std::env::temp_dir().join(format!("clinch-header-{}", std::process::id()));
        fs::write(&path, b"made again").unwrap();
        let judge = |found: &[(i32, i32)]| {
            let mut found = found.iter();
            check_numbers(&path, || Ok(*found.next().unwrap()))
        };
        // Empty when it was read; not any more when its length was.
        let made_again = judge(&[(0, 0), (APPLICATION_ID, VERSION)]);
        let foreign = judge(&[(0, 0), (0, 0)]);
        fs::remove_file(&path).unwrap();
        assert!(made_again.is_ok(), "{made_again:?}");
        assert!(foreign.is_err());
        assert!(
            judge(&[(0, 0), (0, 0)]).is_err(),
            "neither is one that has gone"
        );
    }
}
