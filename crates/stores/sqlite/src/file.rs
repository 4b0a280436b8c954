//! The database file: whose it is, where it lies, who may read it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clinch_core::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags};

use crate::config::Config;
use crate::error::{corrupt, io as io_error};
use crate::schema::{APPLICATION_ID, VERSION, too_new};

/// Which file this is, whatever its path: to see that it was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
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

/// The file that a connection works on, to notice that it is not at its path any more.
#[derive(Debug)]
pub(crate) struct Anchor {
    /// Opened with `O_PATH`: closing any other descriptor of the file would drop the locks that
    /// SQLite holds on it.
    handle: OwnedFd,
    id: FileId,
}

impl Anchor {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&handle)?;
        let id = FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        Ok(Self { handle, id })
    }

    /// Whether it was deleted, or replaced by another one: a look that costs next to nothing.
    pub(crate) fn is_deleted(&self) -> bool {
        rustix::fs::fstat(&self.handle).map_or(true, |stat| stat.st_nlink == 0)
    }

    /// Whether the path leads to it: it may also have been moved away.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        FileId::of(path).is_ok_and(|id| id == self.id)
    }
}

/// Checks the place, makes an empty file with mode 0600 if there is none, and refuses every file
/// that is not ours without writing to it. Returns the file's absolute path.
pub(crate) fn prepare(config: &Config) -> Result<PathBuf> {
    let path = absolute(config)?;
    refuse_network(&path)?;
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(is_a_folder(&path));
        }
        Err(error) => return Err(io_error(error, &path, "cannot be opened for writing")),
    };
    check_header(&mut file, &path)?;
    Ok(path)
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
                .with_store("sqlite")
                .with_advice("make it first, or give another path")
        }
        _ => io_error(error, parent, "cannot be reached"),
    })?;
    let path = parent.join(name);
    if path.is_dir() {
        return Err(is_a_folder(&path));
    }
    Ok(path)
}

fn is_a_folder(path: &Path) -> Error {
    Error::invalid(format!("{} is a folder", path.display()))
        .with_store("sqlite")
        .with_advice("give the path of a file in it, for example locks.db")
}

/// Looks at the bytes before SQLite does: SQLite might write to a file that it opens.
fn check_header(file: &mut File, path: &Path) -> Result<()> {
    let read_failed = |error| io_error(error, path, "cannot be read");
    let meta = file.metadata().map_err(read_failed)?;
    if !meta.is_file() {
        return Err(
            Error::invalid(format!("{} is not a regular file", path.display()))
                .with_store("sqlite")
                .with_advice("give the path of a file"),
        );
    }
    let mut header = Vec::with_capacity(100);
    file.take(100)
        .read_to_end(&mut header)
        .map_err(read_failed)?;
    if header.is_empty() {
        return Ok(());
    }
    if !header.starts_with(b"SQLite format 3\0") || header.len() < 100 {
        return Err(corrupt(path, "it is not a database"));
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4)?.try_into().ok()?;
        Some(i32::from_be_bytes(bytes))
    };
    match (number(68), number(60)) {
        (Some(APPLICATION_ID), Some(version)) if version > VERSION => Err(too_new(path, version)),
        (Some(APPLICATION_ID), _) => Ok(()),
        _ => Err(corrupt(path, "it is a database of another application")),
    }
}

/// The kinds of file systems that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Local,
    /// In user space or shared with a virtual machine's host: the kernel cannot tell.
    Unknown(&'static str),
    Network(&'static str),
}

/// The kind of the file system that holds `path`.
pub(crate) fn file_system(path: &Path) -> io::Result<FileSystem> {
    let stat = rustix::fs::statfs(path)?;
    // The field's type differs between architectures; all magic numbers have 32 bits.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "32 bits"
    )]
    let magic = stat.f_type as u32;
    Ok(kind(magic))
}

fn kind(magic: u32) -> FileSystem {
    match magic {
        0x6969 => FileSystem::Network("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => FileSystem::Network("SMB"),
        0x5346_414f | 0x6b41_4653 => FileSystem::Network("AFS"),
        0x00c3_6400 => FileSystem::Network("Ceph"),
        0x0bd0_0bd0 => FileSystem::Network("Lustre"),
        0x7375_7245 => FileSystem::Network("Coda"),
        0x0116_1970 => FileSystem::Network("GFS2"),
        0x7461_636f => FileSystem::Network("OCFS2"),
        0x6573_5546 => FileSystem::Unknown("FUSE"),
        0x0102_1997 => FileSystem::Unknown("9p"),
        _ => FileSystem::Local,
    }
}

fn refuse_network(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    match file_system(folder) {
        Ok(FileSystem::Network(kind)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} is on {kind}, where locks would not exclude", path.display()),
        )
        .with_store("sqlite")
        .with_advice(
            "give a path on a local disk; for several machines use redis:, mysql:, zookeeper: or etcd:",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        assert_eq!(kind(0x6969), FileSystem::Network("NFS"));
        assert_eq!(kind(0xff53_4d42), FileSystem::Network("SMB"));
        assert_eq!(kind(0xef53), FileSystem::Local);
        assert_eq!(kind(0x0102_1994), FileSystem::Local);
        assert_eq!(kind(0x6573_5546), FileSystem::Unknown("FUSE"));
    }
}
