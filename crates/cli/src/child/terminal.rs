//! The terminal: lent to the job while it runs, so that keys (Ctrl-C, Ctrl-Z) reach the job and the
//! job can read them, and taken back afterwards.

use std::io::IsTerminal as _;

use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, Signal, getpgrp, kill_process_group};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::fork;

/// The terminal at standard input, in whose session clinch runs.
#[derive(Debug)]
pub(crate) struct Terminal {
    own: Pid,
    modes: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// Finds it; `None` when standard input is no terminal of this session.
    pub(crate) fn find() -> Option<Self> {
        if !std::io::stdin().is_terminal() || tcgetpgrp(stdin()).is_err() {
            return None;
        }
        // Setting the foreground group from the background would stop clinch itself.
        fork::block(libc::SIGTTOU, true);
        Some(Self {
            own: getpgrp(),
            modes: tcgetattr(stdin()).ok(),
            lent: false,
        })
    }

    /// Whether a new job should get it at once.
    ///
    /// Not in a pipeline: the other commands of `clinch run … | less` need the terminal as well. A
    /// job that reads from it there is stopped by the kernel, and gets it then.
    pub(super) fn lend_at_once(&self) -> bool {
        let piped = fstat(stdout())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        !piped && self.in_foreground()
    }

    /// Whether the keys reach clinch's own group.
    pub(super) fn in_foreground(&self) -> bool {
        tcgetpgrp(stdin()).is_ok_and(|group| group == self.own)
    }

    /// Whether a shell would see clinch stop, and could continue it. Not so where clinch's group is
    /// the session's first: `ssh -t HOST clinch run …`.
    pub(super) fn can_stop(&self) -> bool {
        rustix::process::getsid(None).is_ok_and(|session| session != self.own)
    }

    /// Gives it to the job's group.
    pub(super) fn lend(&mut self, group: Pid) {
        self.lent = tcsetpgrp(stdin(), group).is_ok();
    }

    /// The job has taken it by itself, between fork and exec.
    pub(super) fn set_lent(&mut self) {
        self.lent = true;
    }

    /// Whether the job has it.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Takes it back; `mend` restores its modes after a job that could not do so itself.
    pub(super) fn take_back(&mut self, mend: bool) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        let _ = tcsetpgrp(stdin(), self.own);
        if let (true, Some(modes)) = (mend, &self.modes) {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, modes);
        }
    }

    /// Sends clinch's own group what a key would have sent it, had the job not had the terminal: a
    /// script around clinch must end on Ctrl-C too.
    pub(super) fn pass_up(&self, signal: Signal) {
        let _ = kill_process_group(self.own, signal);
    }
}

/// Makes the calling process's group the foreground one. Safe between fork and exec.
pub(super) fn claim() {
    fork::block(libc::SIGTTOU, true);
    let _ = tcsetpgrp(stdin(), rustix::process::getpid());
    fork::block(libc::SIGTTOU, false);
}
