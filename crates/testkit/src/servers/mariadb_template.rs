//! The data folder that every MariaDB begins with.
//!
//! To install one takes longer than to start the server. So it is done once, and kept as one
//! archive in the temporary folder: a file is there or not, where a folder may have lost a part to
//! somebody who tidies up.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clinch_core::Result;
use rustix::process::getuid;

use super::mariadb_flavour::Flavour;
use super::{Folder, failed, tool};

/// The database, a user who may do everything, and one who may only touch rows.
const SETUP: &str = "\
FLUSH PRIVILEGES;
CREATE DATABASE clinch CHARACTER SET utf8mb4;
CREATE USER clinch@'%' IDENTIFIED BY 'secret';
GRANT ALL ON *.* TO clinch@'%' WITH GRANT OPTION;
CREATE USER limited@'%' IDENTIFIED BY 'secret';
GRANT SELECT, INSERT, UPDATE, DELETE ON clinch.* TO limited@'%';
";

/// Puts a fresh data folder, called `data`, into the folder.
pub(super) fn unpack(folder: &Path) -> Result<()> {
    let archive = archive()?;
    let (archive, folder) = (archive.to_string_lossy(), folder.to_string_lossy());
    let args = ["-xf", &archive, "-C", &folder];
    tool::run("tar", &args, &[], "unpacking a data folder").map(drop)
}

/// Where the archive is; it is made if it is missing.
fn archive() -> Result<PathBuf> {
    static TURN: Mutex<()> = Mutex::new(());
    let _one_of_us = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let flavour = Flavour::chosen();
    let asked = "asking for its version";
    let version = tool::run(
        flavour.program(),
        &["--no-defaults", "--version"],
        &[],
        asked,
    )?;
    let mut hasher = DefaultHasher::new();
    (version, flavour.sizes(), SETUP).hash(&mut hasher);
    let uid = getuid().as_raw();
    let name = format!("clinch-mariadb-{uid}-{:016x}.tar", hasher.finish());
    let path = std::env::temp_dir().join(name);
    // Somebody else's file at this place is not ours to trust.
    let ours = fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.uid() == uid);
    if !ours {
        install(&flavour, &path)?;
    }
    Ok(path)
}

/// Makes the archive and moves it to its place in one step: another process may do the same.
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

/// Root has to say that it means it.
pub(super) fn as_root() -> Option<&'static str> {
    getuid().is_root().then_some("--user=root")
}
