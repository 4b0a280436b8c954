//! The owner of the file. In a folder that others can write (`/tmp`, `/run/lock`), another user may
//! have created it, or a link in its place, and could break every lock in it later.
//!
//! The whole path is checked: folders, links and the file itself. The owner of a folder is trusted
//! with its content, because he can replace it at any time.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use clinch_core::{Error, ErrorKind, Result};
use rustix::io::Errno;

use super::beside;
use super::rights::Rights;
use crate::error::io as io_error;

/// The most links on the path: the limit of the kernel.
const LINKS: u32 = 40;
/// What SQLite keeps next to the file.
const NEIGHBOURS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A file, link or folder of a user who is not trusted with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    path: PathBuf,
    user: u32,
}

impl Fault {
    pub(crate) fn message(&self) -> String {
        format!(
            "{} belongs to user {}, who could put it there and break every lock of the file",
            self.path.display(),
            self.user
        )
    }
}

/// The advice for it.
pub(crate) const ADVICE: &str = "give a path in a folder that only you can write; if that user may \
    break your locks, say so with ?owner=accept";

/// Refuses a file that another user may have prepared.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    refuse_fault(path, examine(path))
}

/// The same for what SQLite keeps next to it.
pub(crate) fn refuse_neighbours(path: &Path) -> Result<()> {
    refuse_fault(path, examine_neighbours(path))
}

fn refuse_fault(path: &Path, found: io::Result<Option<Fault>>) -> Result<()> {
    match found {
        Ok(None) => Ok(()),
        Ok(Some(fault)) => Err(Error::new(ErrorKind::Denied, fault.message()).with_advice(ADVICE)),
        Err(error) => Err(io_error(error, path, "cannot be read")),
    }
}

/// Resolves the path as the kernel does, up to the first part that does not exist.
pub(crate) fn examine(path: &Path) -> io::Result<Option<Fault>> {
    let me = rustix::process::geteuid().as_raw();
    let mut left = components(&std::path::absolute(path)?);
    let mut at = PathBuf::from("/");
    let (mut folder, mut links) = (fs::symlink_metadata(&at)?, 0);
    while let Some(name) = left.pop_front() {
        if name == ".." {
            at.pop();
            folder = fs::symlink_metadata(&at)?;
            continue;
        }
        let next = at.join(name);
        let found = match fs::symlink_metadata(&next) {
            Err(error) if is_nothing(&error) => return Ok(None),
            found => found?,
        };
        if is_planted(&Rights::of(&found), &Rights::of(&folder), me) {
            return Ok(Some(Fault {
                path: next,
                user: found.uid(),
            }));
        }
        if !found.is_symlink() {
            (at, folder) = (next, found);
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
            folder = fs::symlink_metadata(&at)?;
        }
        let mut all = components(&target);
        all.append(&mut left);
        left = all;
    }
    Ok(None)
}

fn examine_neighbours(path: &Path) -> io::Result<Option<Fault>> {
    let me = rustix::process::geteuid().as_raw();
    let db = Rights::of(&fs::metadata(path)?);
    for end in NEIGHBOURS {
        let path = beside(path, end);
        let found = match fs::symlink_metadata(&path) {
            Err(error) if is_nothing(&error) => continue,
            found => Rights::of(&found?),
        };
        if is_foreign(&found, &db, me) {
            let user = found.user;
            return Ok(Some(Fault { path, user }));
        }
    }
    Ok(None)
}

/// The components of a path, without `/` and `.`.
fn components(path: &Path) -> VecDeque<OsString> {
    let components = path.components().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    components.collect()
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Whether this may have been created by a user who is not trusted.
fn is_planted(one: &Rights, folder: &Rights, me: u32) -> bool {
    if [0, me, folder.user].contains(&one.user) {
        return false;
    }
    // Sticky or not: the bit prevents others from removing, not from creating.
    let anyone = folder.mode & 0o002 != 0;
    // A file of the same group as its folder can be written by all who could have created it.
    let group = folder.mode & 0o020 != 0 && !one.is_writable_by(folder.group);
    anyone || group
}

/// Whether a file next to the database belongs to a user who cannot write the database.
fn is_foreign(one: &Rights, db: &Rights, me: u32) -> bool {
    let shared = db.mode & 0o002 != 0 || db.is_writable_by(one.group);
    ![0, me, db.user].contains(&one.user) && !shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_stranger_could_put_there_is_planted() {
        let (tmp, private) = (Rights::file(0, 0, 0o1777), Rights::file(8, 8, 0o755));
        let file = Rights::file(8, 8, 0o600);
        assert!(is_planted(&file, &tmp, 7) && is_planted(&file, &tmp, 0));
        assert!(is_planted(&file, &Rights::file(0, 0, 0o777), 7));
        assert!(!is_planted(&file, &tmp, 8), "mine");
        assert!(!is_planted(&Rights::file(0, 0, 0o600), &tmp, 7), "of root");
        assert!(!is_planted(&file, &private, 0), "root uses a user's file");
        assert!(
            !is_planted(&file, &Rights::file(0, 0, 0o755), 7),
            "put there by root"
        );
        // A folder for a group.
        let (folder, shared) = (Rights::file(0, 50, 0o2770), Rights::file(8, 50, 0o660));
        assert!(!is_planted(&shared, &folder, 7));
        assert!(is_planted(&file, &folder, 7));
        let link = Rights {
            is_link: true,
            mode: 0o777,
            ..shared
        };
        assert!(is_planted(&link, &folder, 7));
    }

    #[test]
    fn the_log_belongs_to_those_who_can_write_the_file() {
        let (own, shared) = (Rights::file(7, 7, 0o600), Rights::file(0, 50, 0o660));
        assert!(is_foreign(&Rights::file(8, 8, 0o600), &own, 7));
        assert!(is_foreign(&Rights::file(8, 8, 0o600), &own, 0));
        assert!(!is_foreign(&Rights::file(7, 7, 0o600), &own, 0));
        assert!(!is_foreign(&Rights::file(8, 50, 0o660), &shared, 7));
        assert!(is_foreign(&Rights::file(8, 8, 0o660), &shared, 7));
    }

    #[test]
    fn the_path_is_resolved_as_the_kernel_does() {
        let base = std::env::temp_dir().join(format!("clinch-way-{}", std::process::id()));
        fs::create_dir_all(base.join("a/b")).unwrap();
        std::os::unix::fs::symlink("../a/b/../none.db", base.join("a/link.db")).unwrap();
        std::os::unix::fs::symlink("loop", base.join("loop")).unwrap();
        let found = examine(&base.join("a/link.db"));
        let around = examine(&base.join("loop"));
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(found.unwrap(), None);
        assert_eq!(
            around.unwrap_err().raw_os_error(),
            Some(Errno::LOOP.raw_os_error())
        );
    }
}
