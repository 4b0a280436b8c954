//! clinch's side of a running job: what becomes of it, of the lock, and of signals and keys.

use std::ffi::OsString;
use std::io;

use clinch::{Clock, Guard, LostReason, Status as Hold};
use rustix::process::{Pid, Signal};

use super::family::Sent;
use super::guardian::Guardian;
use super::signals::{self, Signals};
use super::stop::{Plan, tell};
use super::terminal::Terminal;
use super::wire::{Report, Status};
use super::{Ended, Task};
use crate::failure::{Failure, exit};
use crate::output::complain;

/// What a command that runs children needs; made before the process has any other thread.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(super) guardian: Guardian,
    pub(crate) signals: Signals,
    terminal: Option<Terminal>,
    /// The job's group, while it runs.
    pub(super) group: Option<Pid>,
    /// Somebody asked clinch to stop (Ctrl-Z): it does once the job has.
    stop_asked: bool,
}

impl Supervisor {
    /// Forks the guardian of this command, then begins to listen for signals.
    pub(crate) fn start(argv: &[OsString]) -> Result<Self, Failure> {
        let cannot = |error: io::Error| {
            let message = format!("cannot start the guardian: {error}");
            Failure::new(exit::INTERNAL, "internal", message)
                .with_advice("check the limits on processes and open files")
        };
        let mut guardian = Guardian::start(argv).map_err(cannot)?;
        guardian.listen().map_err(cannot)?;
        let signals = Signals::listen()?;
        Ok(Self {
            guardian,
            signals,
            terminal: Terminal::find(),
            group: None,
            stop_asked: false,
        })
    }

    /// There will be no other job: the guardian may go while the lock is given up.
    pub(crate) fn last_job_done(&mut self) {
        self.guardian.let_go();
    }

    /// Waits until the guardian has gone.
    pub(crate) fn dismiss(self) {
        self.guardian.dismiss();
    }

    /// Runs the command to its end, or until the lock is lost.
    pub(crate) async fn run(
        &mut self,
        guard: &Guard,
        clock: &Clock,
        task: &Task<'_>,
    ) -> Result<Ended, Failure> {
        let mut plan = Plan::new(task, clock, guard);
        self.group = None;
        if !guard.is_valid() {
            return Ok(Ended::Lost(lost_reason(guard, task)));
        }
        self.guardian.until(plan.kill_at());
        let lend = self.terminal.as_ref().is_some_and(Terminal::lend_at_once);
        self.guardian.launch(&task.env, lend);
        let reason = loop {
            tokio::select! {
                biased;
                report = self.guardian.report() => match report {
                    Some(Report::Started(pid)) => self.started(pid, lend),
                    Some(Report::NotStarted(error)) => return Err(self.not_started(task, lend, error)),
                    Some(Report::TooLate) => {
                        if !guard.is_valid() || plan.must_stop(guard, clock.now()) {
                            break lost_reason(guard, task);
                        }
                        // It was the guardian that was late; the lock has been renewed since.
                        self.guardian.until(plan.kill_at());
                        self.guardian.launch(&task.env, lend);
                    }
                    Some(Report::Stopped(by)) => self.on_stopped(by),
                    // Before the start it is about a job before this one.
                    Some(Report::Ended { status, alone, overdue }) if self.group.is_some() => {
                        // It may have ended too late, or have been ended just in time.
                        if !guard.is_valid() || overdue {
                            break lost_reason(guard, task);
                        }
                        self.return_terminal(status);
                        if status == Status::Unknown {
                            complain("clinch: the command has ended; its status is not known");
                        }
                        match self.leftovers(guard, clock, task, &mut plan, alone).await {
                            None => return Ok(Ended::Done(status.code())),
                            Some(reason) => break reason,
                        }
                    }
                    Some(Report::Ended { .. } | Report::Gone { .. }) => {}
                    None => return Ok(self.orphaned(guard, clock, task)),
                },
                signal = self.signals.next() => self.on_signal(guard, signal),
                reason = guard.lost() => break reason,
                () = clock.sleep_until(plan.look_again()) => {
                    if plan.must_stop(guard, clock.now()) {
                        break lost_reason(guard, task);
                    }
                    self.guardian.until(plan.kill_at());
                }
            }
        };
        self.stop(clock, &plan).await;
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(true);
        }
        Ok(Ended::Lost(reason))
    }

    fn started(&mut self, pid: i32, lent: bool) {
        self.group = Pid::from_raw(pid);
        if let (true, Some(terminal)) = (lent, &mut self.terminal) {
            terminal.set_lent();
        }
    }

    fn not_started(&mut self, task: &Task<'_>, lent: bool, error: i32) -> Failure {
        if let (true, Some(terminal)) = (lent, &mut self.terminal) {
            terminal.set_lent();
            terminal.take_back(false);
        }
        let program = task.argv.first().map(|program| program.to_string_lossy());
        why_not_started(
            &program.unwrap_or_default(),
            &io::Error::from_raw_os_error(error),
        )
    }

    /// The guardian was killed, and the command with it.
    fn orphaned(&mut self, guard: &Guard, clock: &Clock, task: &Task<'_>) -> Ended {
        let left = self.guardian.inherit(clock);
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(true);
        }
        match left {
            Sent {
                reached: 0,
                denied: 0,
            } => complain("clinch: the guardian process was killed, and the command with it"),
            left => {
                complain("clinch: the guardian process was killed");
                tell(left);
            }
        }
        match guard.is_valid() {
            true => Ended::Done(Status::Signal(libc::SIGKILL).code()),
            false => Ended::Lost(lost_reason(guard, task)),
        }
    }

    /// The command has ended by itself: takes the terminal back.
    fn return_terminal(&mut self, status: Status) {
        if let Some(terminal) = &mut self.terminal {
            let lent = terminal.is_lent();
            terminal.take_back(matches!(status, Status::Signal(_)));
            match status {
                Status::Signal(libc::SIGINT) if lent => terminal.pass_up(Signal::INT),
                Status::Signal(libc::SIGQUIT) if lent => terminal.pass_up(Signal::QUIT),
                _ => {}
            }
        }
    }

    /// Passes a signal on, or acts on it.
    pub(super) fn on_signal(&mut self, guard: &Guard, signal: i32) {
        match signal {
            libc::SIGCHLD => self.guardian.reap(),
            libc::SIGCONT => self.resume(guard),
            other => {
                self.stop_asked |= other == libc::SIGTSTP;
                self.guardian.pass_on(other);
            }
        }
    }

    /// The job was stopped. By a key, or for want of the terminal: then clinch follows it, so that
    /// the shell sees a stopped job. (A stopped clinch renews nothing: the lock outlives that for a
    /// lease at most, and `resume` looks before it lets the job go on.)
    fn on_stopped(&mut self, by: i32) {
        let asked = std::mem::take(&mut self.stop_asked);
        let wants_terminal = matches!(by, libc::SIGTTIN | libc::SIGTTOU);
        let (Some(terminal), Some(group)) = (&mut self.terminal, self.group) else {
            if asked {
                signals::stop_this_process();
            }
            return;
        };
        let by_key = by == libc::SIGTSTP && terminal.is_lent();
        if wants_terminal && terminal.in_foreground() {
            terminal.lend(group);
            self.guardian.signal(Signal::CONT);
        } else if by_key && !terminal.can_stop() {
            // Nobody would continue us.
            self.guardian.signal(Signal::CONT);
        } else if asked || by_key || wants_terminal {
            terminal.take_back(true);
            terminal.pass_up(Signal::STOP);
        }
    }

    /// Somebody continued clinch: so goes the job, if the lock is still held.
    fn resume(&mut self, guard: &Guard) {
        if !guard.is_valid() {
            return;
        }
        if let (Some(terminal), Some(group)) = (&mut self.terminal, self.group)
            && !terminal.is_lent()
            && terminal.lend_at_once()
        {
            terminal.lend(group);
        }
        self.guardian.signal(Signal::CONT);
    }
}

/// Why the hold is not, or will soon not be, held any more.
pub(super) fn lost_reason(guard: &Guard, task: &Task<'_>) -> LostReason {
    match guard.status() {
        Hold::Lost(reason) => reason,
        Hold::Held if task.max_hold.is_some() => LostReason::MaxHold,
        _ => LostReason::Unrenewed,
    }
}

/// Says why a command was not started, with the statuses that shells use.
fn why_not_started(program: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            exit::NOT_FOUND,
            "command-not-found",
            format!("{program}: command not found"),
        ),
        io::ErrorKind::InvalidInput => Failure::usage(format!("{program:?}: {error}")),
        _ => Failure::new(
            exit::NOT_EXECUTABLE,
            "not-executable",
            format!("{program}: cannot be executed: {error}"),
        ),
    }
}
