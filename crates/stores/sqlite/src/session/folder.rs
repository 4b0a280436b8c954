//! The folder of sessions: its owner and its permissions.
//!
//! A user who can write the folder can make a running client look dead. So it must belong to a user
//! who may break locks anyway, and must not be open to more users than the file itself.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use clinch_core::{Error, ErrorKind, Result};

use crate::error::io as io_error;
use crate::file::rights::Rights;

/// The advice for a folder that is refused.
const ADVICE: &str =
    "remove it if it is not in use, or give a path in a folder that only you can write";

/// Creates the folder of sessions of the file at `db` if there is none, and refuses one that others
/// may have prepared.
pub(crate) fn prepare(folder: &Path, db: &Path) -> Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error(error, folder, "cannot be made"));
        }
        _ => {}
    }
    match fault(folder, db) {
        Ok(None) => Ok(()),
        Ok(Some(fault)) => Err(Error::new(
            ErrorKind::Denied,
            format!(
                "{} {fault}: others could make a running process look dead",
                folder.display()
            ),
        )
        .with_advice(ADVICE)),
        Err(error) => Err(io_error(error, folder, "cannot be read")),
    }
}

/// What is wrong with the folder, if anything.
pub(crate) fn fault(folder: &Path, db: &Path) -> io::Result<Option<String>> {
    let (folder, db) = (fs::symlink_metadata(folder)?, fs::metadata(db)?);
    let me = rustix::process::geteuid().as_raw();
    Ok(fault_of(&Rights::of(&folder), &Rights::of(&db), me))
}

fn fault_of(folder: &Rights, db: &Rights, me: u32) -> Option<String> {
    if !folder.is_folder {
        return Some("is not a folder".to_owned());
    }
    if ![0, me, db.user].contains(&folder.user) {
        return Some(format!("belongs to user {}", folder.user));
    }
    let group_may = db.is_writable_by(folder.group);
    if folder.mode & 0o020 != 0 && !group_may {
        return Some(format!("can be written by group {}", folder.group));
    }
    if folder.mode & 0o002 != 0 && db.mode & 0o002 == 0 {
        return Some("can be written by all users".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_as_private_as_its_file() {
        let db = Rights::file;
        let folder = |user, group, mode| Rights {
            is_folder: true,
            ..Rights::file(user, group, mode)
        };
        let ok = |f, d, me| fault_of(&f, &d, me).is_none();
        assert!(ok(folder(7, 7, 0o700), db(7, 7, 0o600), 7));
        assert!(
            ok(folder(7, 7, 0o700), db(7, 7, 0o600), 0),
            "root uses a user's file"
        );
        assert!(
            ok(folder(0, 50, 0o2770), db(0, 50, 0o660), 7),
            "made for a group"
        );
        assert!(!ok(folder(8, 8, 0o700), db(7, 7, 0o600), 7));
        assert!(!ok(folder(8, 8, 0o777), db(0, 0, 0o600), 0));
        assert!(!ok(folder(0, 0, 0o777), db(0, 0, 0o600), 0));
        assert!(
            !ok(folder(0, 50, 0o770), db(0, 51, 0o660), 7),
            "another group"
        );
        assert!(!ok(db(7, 7, 0o700), db(7, 7, 0o600), 7), "a file");
    }
}
