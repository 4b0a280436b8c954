//! Owner and mode of a file, for decisions that are tested without other users.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Type, owner and mode of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rights {
    pub(crate) is_folder: bool,
    pub(crate) is_link: bool,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) mode: u32,
}

impl Rights {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            is_folder: meta.is_dir(),
            is_link: meta.is_symlink(),
            user: meta.uid(),
            group: meta.gid(),
            mode: meta.mode(),
        }
    }

    /// Whether this group can write it. The mode of a link has no meaning.
    pub(crate) fn is_writable_by(&self, group: u32) -> bool {
        self.group == group && self.mode & 0o020 != 0 && !self.is_link
    }

    #[cfg(test)]
    pub(crate) fn file(user: u32, group: u32, mode: u32) -> Self {
        Self {
            is_folder: false,
            is_link: false,
            user,
            group,
            mode,
        }
    }
}
