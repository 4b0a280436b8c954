//! The initial data folder of every MariaDB server.
//!
//! Installing takes longer than starting the server. So it is done once and kept as an archive in
//! the temporary folder: unlike a folder, a file is never cleaned up in part.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clinch_core::Result;
use rustix::process::getuid;

use super::flavour::Flavour;
use crate::servers::{Folder, failed, tool};

/// The database, a user with all rights, and one who may only read and write rows.
const SETUP: &str = "\
FLUSH PRIVILEGES;
CREATE DATABASE clinch CHARACTER SET utf8mb4;
CREATE USER clinch@'%' IDENTIFIED BY 'secret';
GRANT ALL ON *.* TO clinch@'%' WITH GRANT OPTION;
CREATE USER limited@'%' IDENTIFIED BY 'secret';
GRANT SELECT, INSERT, UPDATE, DELETE ON clinch.* TO limited@'%';
";

/// Unpacks the initial data folder as `data` in `folder`.
pub(super) fn unpack(folder: &Path) -> Result<()> {
    let archive = archive()?;
    let (archive, folder) = (archive.to_string_lossy(), folder.to_string_lossy());
    let args = ["-xf", &archive, "-C", &folder];
    tool::run("tar", &args, &[], "unpacking a data folder").map(drop)
}

/// The path of the archive; it is made if it is missing.
fn archive() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let flavour = Flavour::chosen();
    let args = ["--no-defaults", "--version"];
    let version = tool::run(flavour.program(), &args, &[], "reading its version")?;
    let mut hasher = DefaultHasher::new();
    (version, flavour.sizes(), SETUP).hash(&mut hasher);
    let uid = getuid().as_raw();
    let name = format!("clinch-mariadb-{uid}-{:016x}.tar", hasher.finish());
    let path = std::env::temp_dir().join(name);
    // Another user's file at this path cannot be trusted.
    let ours = fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.uid() == uid);
    if !ours {
        install(&flavour, &path)?;
    }
    Ok(path)
}

/// Makes the archive and renames it atomically: another process may do the same.
fn install(flavour: &Flavour, path: &Path) -> Result<()> {
    let folder = Folder::new("mariadb-template")?;
    let place = folder.path().to_string_lossy();
    let setup = folder.write("setup.sql", SETUP)?;
    flavour.install(&place, &setup)?;
    let archive = format!("{place}/archive");
    let args = ["-cf", &archive, "-C", &place, "data"];
    tool::run("tar", &args, &[], "packing a data folder")?;
    fs::rename(&archive, path).map_err(|e| failed(format!("cannot make {}", path.display()), e))
}

/// Root must be named explicitly.
pub(super) fn as_root() -> Option<&'static str> {
    getuid().is_root().then_some("--user=root")
}
