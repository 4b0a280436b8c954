//! A private folder that goes with its owner.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use clinch_core::Result;

use super::failed;

/// A folder below the system's temporary one, for this user only; removed when it is dropped.
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
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty folder; `name` tells a reader whose it is.
    pub fn new(name: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("clinch-{name}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process that had our id before and was killed.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(failed(format!("cannot make {}", path.display()), e)),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a folder in it, or empties the one that is there.
    pub fn empty(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        let made = match fs::remove_dir_all(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => DirBuilder::new().mode(0o700).create(&path),
        };
        match made {
            Ok(()) => Ok(path),
            Err(e) => Err(failed(format!("cannot empty {}", path.display()), e)),
        }
    }

    /// Writes a file in it and says where it is.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.0.join(name);
        match fs::write(&path, content) {
            Ok(()) => Ok(path),
            Err(e) => Err(failed(format!("cannot write {}", path.display()), e)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing to do about a folder that does not go; it is in the temporary one.
        let _ = fs::remove_dir_all(&self.0);
    }
}
