//! Runs a command while a lock is held.

mod family;
mod fork;
mod guard;
mod guardian;
mod signals;
mod stop;
mod supervisor;
mod terminal;
mod wire;

use std::ffi::OsString;
use std::time::Duration;

use clinch::LostReason;

pub(crate) use signals::Signals;
pub(crate) use supervisor::Supervisor;

/// Undoes what a parent may have handed on that would break the life of children. To be called first.
pub(crate) fn prepare() {
    fork::keep_children();
}

/// Variables that a command gets, or must not get.
pub(crate) type Environment = Vec<(&'static str, Option<String>)>;

/// A command, and how it is to be treated when the lock is lost.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) argv: &'a [OsString],
    pub(crate) env: Environment,
    pub(crate) grace: Duration,
    pub(crate) lease: Duration,
    pub(crate) max_hold: Option<Duration>,
    /// What the command leaves in the background may stay when it has ended by itself.
    pub(crate) leave: bool,
    /// Say nothing of what was left in the background.
    pub(crate) quiet: bool,
}

/// How running a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with the lock held to the end: the exit status.
    Done(i32),
    /// The lock was lost, and the command stopped.
    Lost(LostReason),
}
