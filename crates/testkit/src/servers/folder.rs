//! A private folder that is removed with its owner.

use std::fs::{self, DirBuilder, DirEntry, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use clinch_core::Result;

use super::disk::unmount;
use super::failed;

/// The names of all folders begin with this.
const PREFIX: &str = "clinch-testkit-";

/// A folder below the system's temporary one, for this user only; removed when it is dropped.
///
/// A killed process leaves its folders, but not its locks on them; the next process that makes a
/// folder removes them.
///
/// ```
/// use clinch_testkit::servers::Folder;
/// let folder = Folder::new("demo")?;
/// let path = folder.path().to_owned();
/// std::fs::write(path.join("a"), "b").unwrap();
/// drop(folder);
/// assert!(!path.exists());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Locked while the folder is in use.
    _lock: File,
}

impl Folder {
    /// Makes an empty folder with `name` in its path.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        let base = std::env::temp_dir();
        SWEEP.call_once(Self::sweep);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("{PREFIX}{name}-{}-{number}", std::process::id()));
            let made = DirBuilder::new().mode(0o700).create(&path);
            match made.and_then(|()| lock(&path)) {
                Ok(Some(lock)) => return Ok(Self { path, _lock: lock }),
                // Another process mistook it for a leftover.
                Ok(None) => {}
                // A leftover of a killed process that had our id.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(format!("cannot make {}", path.display()), e)),
            }
        }
    }

    /// Removes the folders of killed processes; the first folder of a process does this too.
    ///
    /// ```
    /// clinch_testkit::servers::Folder::sweep();
    /// ```
    pub fn sweep() {
        for entry in fs::read_dir(std::env::temp_dir())
            .into_iter()
            .flatten()
            .flatten()
        {
            let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if ours && let Ok(Some(_lock)) = lock(&entry.path()) {
                unmount(&entry.path());
                // Another user's folder stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a folder in it, or empties the one that is there.
    pub fn empty(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let made = match fs::read_dir(&path) {
            // The folder itself stays: a disk may be mounted there.
            Ok(entries) => entries.into_iter().try_for_each(|entry| remove(&entry?)),
            Err(_) => DirBuilder::new().mode(0o700).create(&path),
        };
        match made {
            Ok(()) => Ok(path),
            Err(e) => Err(failed(format!("cannot empty {}", path.display()), e)),
        }
    }

    /// Writes a file in it and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path.join(name);
        match fs::write(&path, content) {
            Ok(()) => Ok(path),
            Err(e) => Err(failed(format!("cannot write {}", path.display()), e)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        unmount(&self.path);
        // A folder that cannot be removed stays below the temporary one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks a folder; `None` if another process has the lock or the folder is gone.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let locked = File::open(path).and_then(|file| {
        let free = file.try_lock().is_ok();
        let same = file.metadata()?.ino() == fs::metadata(path)?.ino();
        Ok((free && same).then_some(file))
    });
    match locked {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        other => other,
    }
}

fn remove(entry: &DirEntry) -> io::Result<()> {
    match entry.file_type()?.is_dir() {
        true => fs::remove_dir_all(entry.path()),
        false => fs::remove_file(entry.path()),
    }
}
