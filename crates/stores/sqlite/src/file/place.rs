//! Places where locks in a file would not exclude: network file systems, mounted files, hard links.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clinch_core::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxAttributes, StatxFlags, statx};

/// Why the place of a file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Other kernels may reach the file, and do not see the locks of this one.
    FileSystem(&'static str),
    /// The file alone is mounted: its log and its sessions are in another folder than those of the
    /// clients that use the file under its own path.
    MountedFile,
    /// The file has several names, and a log for each.
    HardLinks(u64),
}

impl Fault {
    pub(crate) fn message(self) -> String {
        match self {
            Self::FileSystem(kind) => {
                format!("it is on {kind}, where locks would not exclude")
            }
            Self::MountedFile => "the file alone is mounted there, without the log and the \
                sessions next to it, so locks would not exclude"
                .to_owned(),
            Self::HardLinks(count) => {
                format!(
                    "it has {count} names (hard links), and locks would not exclude across them"
                )
            }
        }
    }

    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::FileSystem(_) => {
                "give a path on a local disk; for several machines use redis:, mysql:, zookeeper: \
                 or etcd:. If only one kernel reaches the file, say so with ?fs=accept"
            }
            Self::MountedFile => "mount the folder of the file instead",
            Self::HardLinks(_) => "remove the other names",
        }
    }
}

/// The fault of this place, if there is one.
pub(crate) fn examine(path: &Path) -> io::Result<Option<Fault>> {
    let folder = path.parent().unwrap_or(path);
    // First, because every kernel reports it.
    let links = fs::metadata(path)?.nlink();
    if links > 1 {
        return Ok(Some(Fault::HardLinks(links)));
    }
    for place in [folder, path] {
        if let Some(kind) = shared(magic(place)?) {
            return Ok(Some(Fault::FileSystem(kind)));
        }
    }
    if is_mounted(folder, path)? {
        return Ok(Some(Fault::MountedFile));
    }
    Ok(None)
}

/// Refuses a place where locks would not exclude. If the kernel does not report it, the place is
/// accepted.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    let Ok(Some(fault)) = examine(path) else {
        return Ok(());
    };
    let text = format!("{}: {}", path.display(), fault.message());
    Err(Error::new(ErrorKind::Unsupported, text).with_advice(fault.advice()))
}

fn is_mounted(folder: &Path, path: &Path) -> io::Result<bool> {
    is_mount(folder, path, |path| {
        Ok(statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?)
    })
}

fn is_mount(
    folder: &Path,
    path: &Path,
    stat: impl Fn(&Path) -> io::Result<Statx>,
) -> io::Result<bool> {
    // The kernel may not have the call, or a sandbox may forbid it.
    if let Ok(file) = stat(path) {
        let marks = file.stx_attributes_mask;
        if marks.contains(StatxAttributes::MOUNT_ROOT) {
            return Ok(file.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        }
        // A kernel that does not mark mount points may still number the mounts.
        if file.stx_mask & StatxFlags::MNT_ID.bits() != 0 {
            return Ok(file.stx_mnt_id != stat(folder)?.stx_mnt_id);
        }
    }
    Ok(mount_of(path)? != mount_of(folder)?)
}

/// The id of the mount that a path is on, for kernels before 5.8.
fn mount_of(path: &Path) -> io::Result<u64> {
    // With `O_PATH`, whose closing drops no lock of SQLite.
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let number = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// The number of the file system's kind.
fn magic(path: &Path) -> io::Result<u32> {
    let stat = rustix::fs::statfs(path)?;
    // The field's type differs between architectures; all magic numbers have 32 bits.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "32 bits"
    )]
    let magic = stat.f_type as u32;
    Ok(magic)
}

/// The name of a file system that more than one kernel may reach; `None` for a local one.
fn shared(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x564c => "NCP",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x00c3_6400 => "CephFS",
        0x0bd0_0bd0 => "Lustre",
        0x7375_7245 => "Coda",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0xaad7_aaea => "PanFS",
        0x2003_0528 => "OrangeFS",
        0xbeef_dead => "StorNext",
        0x6163_6673 => "ACFS",
        0x0131_11a8 => "IBRIX",
        0x786f_4256 => "vboxsf",
        0xbacb_acbc => "vmhgfs",
        0x7c7c_6673 => "prl_fs",
        // The kernel does not report what is behind these: sshfs, GlusterFS, JuiceFS, s3fs, virtiofs,
        // folders of a virtual machine's host.
        0x6573_5546 => "FUSE",
        0x0102_1997 => "9p",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_distinguished_from_local_ones() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB"),
            (0x6573_5546, "FUSE"),
            (0x0102_1997, "9p"),
            (0x4750_4653, "GPFS"),
            (0x786f_4256, "vboxsf"),
        ] {
            assert_eq!(shared(magic), Some(name));
        }
        // ext4, tmpfs, XFS, Btrfs, overlayfs.
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(shared(local), None);
        }
    }

    #[test]
    fn a_mount_is_found_whatever_the_kernel_reports() {
        let real = |path: &Path| Ok(statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?);
        // Before 5.8 there are no mount ids and no marks; before 4.11 there is no such call.
        let old = |path: &Path| {
            let mut stat: Statx = real(path)?;
            stat.stx_mask &= !StatxFlags::MNT_ID.bits();
            stat.stx_attributes_mask = StatxAttributes::empty();
            Ok(stat)
        };
        let oldest = |_: &Path| Err(rustix::io::Errno::NOSYS.into());
        let (root, proc) = (Path::new("/"), Path::new("/proc"));
        let own = Path::new("/proc/self");
        for (folder, path, is) in [(root, proc, true), (proc, own, false)] {
            assert_eq!(is_mount(folder, path, real).unwrap(), is);
            assert_eq!(is_mount(folder, path, old).unwrap(), is);
            assert_eq!(is_mount(folder, path, oldest).unwrap(), is);
        }
    }
}
