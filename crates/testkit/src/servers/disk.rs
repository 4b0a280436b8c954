//! A small disk for a server's data, which can be filled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clinch_core::{Error, ErrorKind, Result};

use super::{Folder, failed, first_line, tool};

/// The file that takes all free space.
const BALLAST: &str = "ballast";

/// A file system of a few megabytes in memory; unmounted on drop.
///
/// It needs the right to mount, which root has: [`check`](Self::check) tries it. It is mounted in a
/// [`Folder`], so the disk of a killed process is removed with its folders.
///
/// ```
/// use clinch_testkit::servers::{Disk, Folder};
/// # if Disk::check().is_err() { return Ok(()) }
/// let folder = Folder::new("demo")?;
/// let disk = Disk::mount(&folder, "small", 1)?;
/// let write = |size: usize| std::fs::write(disk.path().join("a"), vec![0; size]);
/// assert!(write(100_000).is_ok());
/// disk.fill()?;
/// assert!(write(200_000).is_err());
/// disk.free()?;
/// assert!(write(200_000).is_ok());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts an empty disk of this size in a folder.
    pub fn mount(folder: &Folder, name: &str, megabytes: u32) -> Result<Self> {
        let path = folder.empty(name)?;
        let options = format!("size={megabytes}m,mode=700");
        let target = path.to_string_lossy();
        let args = ["-t", "tmpfs", "-o", &options, "clinch-testkit", &target];
        tool::run("mount", &args, &[], "mounting a small disk")?;
        Ok(Self { path })
    }

    /// Whether this process can mount one; it is tried once. The error says why not.
    ///
    /// ```
    /// use clinch_testkit::servers::Disk;
    /// if let Err(why) = Disk::check() {
    ///     println!("not applicable: {why}");
    /// }
    /// ```
    pub fn check() -> Result<()> {
        static TRIED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
        let tried = || {
            let folder = Folder::new("disk")?;
            Self::mount(&folder, "tried", 1).map(drop)
        };
        let tried = TRIED.get_or_init(|| tried().map_err(|why| first_line(&why)));
        tried.clone().map_err(|why| {
            let text = format!("no small disks can be mounted here: {why}");
            Error::new(ErrorKind::Unsupported, text).with_advice("it needs root")
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills all free space.
    pub fn fill(&self) -> Result<()> {
        let filled = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path.join(BALLAST))
            .and_then(fill);
        filled.map_err(|e| failed("the disk cannot be filled", e))
    }

    /// Frees the space again.
    pub fn free(&self) -> Result<()> {
        match fs::remove_file(self.path.join(BALLAST)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(failed("the disk cannot be freed", e))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

/// Writes until the disk is full.
fn fill(mut file: File) -> io::Result<()> {
    let block = vec![b'.'; 1 << 16];
    let mut size = block.len();
    while size > 0 {
        match file.write(block.get(..size).unwrap_or_default()) {
            Ok(_) => {}
            // A smaller block may still fit.
            Err(e) if e.kind() == io::ErrorKind::StorageFull => size /= 2,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Unmounts all disks at a folder or below it, even if a file there is still open.
pub(super) fn unmount(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for target in targets.filter(|target| Path::new(target).starts_with(folder)) {
        // A disk that stays is in memory, below the temporary folder.
        let _ = tool::run("umount", &["--lazy", target], &[], "unmounting a disk");
    }
}
