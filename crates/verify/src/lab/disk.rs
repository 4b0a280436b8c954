//! A full disk, for engines whose data lies on a small one.

use clinch::Result;
use clinch_testkit::servers::Disk;

use super::{EngineFault, fault};

/// A store may refuse, and its server may end; nothing else.
pub(super) const FULL: EngineFault = fault("disk full", &[]);

/// Sets a server up on a small disk, where one may be mounted.
pub(super) fn on_a_small_one<B>(setup: B, on_disk: impl FnOnce(B) -> B) -> B {
    match Disk::check() {
        Ok(()) => on_disk(setup),
        Err(_) => setup,
    }
}

/// Why there is none.
pub(super) fn missing() -> Vec<String> {
    let why = Disk::check().err();
    let text = |why| format!("{}: {why}", FULL.name);
    why.map(text).into_iter().collect()
}

pub(super) fn fill(disk: Option<&Disk>) -> Result<()> {
    disk.map_or(Ok(()), Disk::fill)
}

pub(super) fn free(disk: Option<&Disk>) -> Result<()> {
    disk.map_or(Ok(()), Disk::free)
}
