//! The terminal: lent to the job while it runs, so that keys (Ctrl-C, Ctrl-Z) reach the job and the
//! job can read them, and taken back afterwards.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::fork;

/// The terminal of the session in which clinch runs, wherever standard input comes from: a job may
/// ask for a password on it.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: OwnedFd,
    own: Pid,
    modes: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// Finds it; `None` when the session has none.
    pub(crate) fn find() -> Option<Self> {
        let tty = dev_tty()?;
        tcgetpgrp(&tty).ok()?;
        // Setting the foreground group from the background would stop clinch itself.
        fork::block(libc::SIGTTOU);
        Some(Self {
            own: getpgrp(),
            modes: tcgetattr(&tty).ok(),
            tty,
            lent: false,
        })
    }

    /// Whether a new job should get it at once.
    ///
    /// Not in a pipeline: the other commands of `clinch run … | less` need the terminal as well. Nor
    /// if standard input is something else: then the keys may be for others. A job that uses the
    /// terminal there is stopped by the kernel, and gets it then.
    pub(super) fn lend_at_once(&self) -> bool {
        let piped = fstat(stdout())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        // Only the session's own terminal says which group is in its foreground.
        let reads_it = tcgetpgrp(stdin()).is_ok();
        !piped && reads_it && self.in_foreground()
    }

    /// Whether the keys reach clinch's own group.
    pub(super) fn in_foreground(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own)
    }

    /// Whether a shell would see clinch stop, and could continue it. Not so where clinch's group is
    /// the session's first: `ssh -t HOST clinch run …`.
    pub(super) fn can_stop(&self) -> bool {
        rustix::process::getsid(None).is_ok_and(|session| session != self.own)
    }

    /// Gives it to the job's group.
    pub(super) fn lend(&mut self, group: Pid) {
        self.lent = tcsetpgrp(&self.tty, group).is_ok();
    }

    /// The job has taken it by itself, between fork and exec.
    pub(super) fn set_lent(&mut self) {
        self.lent = true;
    }

    /// Whether the job has it.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Takes it back; `restore` resets its modes after a job that could not do so itself.
    pub(super) fn take_back(&mut self, restore: bool) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        let _ = tcsetpgrp(&self.tty, self.own);
        if let (true, Some(modes)) = (restore, &self.modes) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, modes);
        }
    }

    /// Sends clinch's own group what a key would have sent it, had the job not had the terminal: a
    /// script around clinch must end on Ctrl-C too.
    pub(super) fn pass_up(&self, signal: Signal) {
        let _ = kill_process_group(self.own, signal);
    }
}

fn dev_tty() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(c"/dev/tty", flags, Mode::empty()).ok()
}

/// Makes the calling process's group the foreground one. Every signal must be blocked. Safe between
/// fork and exec.
pub(super) fn claim() {
    if let Some(tty) = dev_tty() {
        let _ = tcsetpgrp(&tty, rustix::process::getpid());
    }
}
