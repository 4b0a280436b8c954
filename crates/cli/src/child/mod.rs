//! Runs a command while a lock is held.

mod fork;
mod guardian;
mod job;
mod signals;
mod stop;
mod terminal;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use clinch::{BootTime, Clock, Guard, LostReason, Status as Hold};
use rustix::process::Signal;

use crate::failure::{Failure, exit};
pub(crate) use guardian::Guardian;
use job::{Change, Job, Status};
pub(crate) use signals::Signals;
use stop::Plan;
pub(crate) use terminal::Terminal;

/// What a command that runs children needs; made before the process has any other thread.
#[derive(Debug)]
pub(crate) struct Supervisor {
    guardian: Guardian,
    pub(crate) signals: Signals,
    terminal: Option<Terminal>,
    /// Somebody asked clinch to stop (Ctrl-Z): it does once the job has.
    stop_asked: bool,
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
}

/// How running a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with the lock held to the end: the exit status.
    Done(i32),
    /// The lock was lost, and the command stopped.
    Lost(LostReason),
}

impl Supervisor {
    /// Forks the guardian, then begins to listen for signals.
    pub(crate) fn start() -> Result<Self, Failure> {
        let cannot = |what: &str, error: io::Error| {
            Failure::new(
                exit::INTERNAL,
                "internal",
                format!("cannot {what}: {error}"),
            )
            .with_advice("check the limits on processes and open files")
        };
        let guardian = Guardian::start().map_err(|e| cannot("start the guardian", e))?;
        let signals = Signals::listen()?;
        Ok(Self {
            guardian,
            signals,
            terminal: Terminal::find(),
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

    /// Runs the command to its end, or until the lock is lost. On the main thread only.
    pub(crate) async fn run(
        &mut self,
        guard: &Guard,
        clock: &Clock,
        task: &Task<'_>,
    ) -> Result<Ended, Failure> {
        let mut plan = Plan::new(task, clock, guard);
        self.guardian.until(plan.kill_at());
        let mut job = Job::start(task.argv, &task.env, &self.guardian, self.terminal.as_mut())?;
        let reason = loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if let Some(status) = self.on_signal(&mut job, guard, signal) {
                        let by_guardian = status == Status::Signal(libc::SIGKILL)
                            && clock.now() >= plan.kill_at();
                        if guard.is_valid() && !by_guardian {
                            return Ok(self.finish(job, status));
                        }
                        // It ended too late, or was ended just in time.
                        break lost_reason(guard, task);
                    }
                }
                reason = guard.lost() => break reason,
                () = clock.sleep_until(plan.look_again()) => {
                    if plan.must_stop(guard, clock.now()) {
                        break lost_reason(guard, task);
                    }
                    self.guardian.until(plan.kill_at());
                }
            }
        };
        self.stop(&mut job, clock, &plan).await;
        self.guardian.done();
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back(true);
        }
        Ok(Ended::Lost(reason))
    }

    /// The command ended in time: its background processes may stay.
    fn finish(&mut self, mut job: Job, status: Status) -> Ended {
        self.guardian.done();
        job.reap();
        if let Some(terminal) = &mut self.terminal {
            let lent = terminal.is_lent();
            terminal.take_back(matches!(status, Status::Signal(_)));
            match status {
                Status::Signal(libc::SIGINT) if lent => terminal.pass_up(Signal::INT),
                Status::Signal(libc::SIGQUIT) if lent => terminal.pass_up(Signal::QUIT),
                _ => {}
            }
        }
        Ended::Done(status.code())
    }

    /// Passes a signal on, or acts on what it says of the child; its status once it has ended.
    fn on_signal(&mut self, job: &mut Job, guard: &Guard, signal: i32) -> Option<Status> {
        match signal {
            libc::SIGCHLD => match job.change() {
                Some(Change::Ended(status)) => return Some(status),
                Some(Change::Stopped(by)) => self.on_stopped(job, by),
                None => {}
            },
            libc::SIGCONT => self.resume(job, guard),
            other => {
                self.stop_asked |= other == libc::SIGTSTP;
                job.pass_on(other);
            }
        }
        None
    }

    /// The job was stopped. By a key, or for want of the terminal: then clinch follows it, so that
    /// the shell sees a stopped job. (A stopped clinch renews nothing: the lock outlives that for a
    /// lease at most, and `resume` looks before it lets the job go on.)
    fn on_stopped(&mut self, job: &Job, by: i32) {
        let asked = std::mem::take(&mut self.stop_asked);
        let wants_terminal = matches!(by, libc::SIGTTIN | libc::SIGTTOU);
        let Some(terminal) = &mut self.terminal else {
            if asked {
                signals::stop_this_process();
            }
            return;
        };
        let by_key = by == libc::SIGTSTP && terminal.is_lent();
        if wants_terminal && terminal.in_foreground() {
            terminal.lend(job.group());
            job.signal(Signal::CONT);
        } else if by_key && !terminal.can_stop() {
            // Nobody would continue us.
            job.signal(Signal::CONT);
        } else if asked || by_key || wants_terminal {
            terminal.take_back(true);
            terminal.pass_up(Signal::STOP);
        }
    }

    /// Somebody continued clinch: so goes the job, if the lock is still held.
    fn resume(&mut self, job: &Job, guard: &Guard) {
        if !guard.is_valid() {
            return;
        }
        if let Some(terminal) = &mut self.terminal
            && !terminal.is_lent()
            && terminal.lend_at_once()
        {
            terminal.lend(job.group());
        }
        job.signal(Signal::CONT);
    }
}

/// Why the hold is not, or will soon not be, held any more.
fn lost_reason(guard: &Guard, task: &Task<'_>) -> LostReason {
    match guard.status() {
        Hold::Lost(reason) => reason,
        Hold::Held if task.max_hold.is_some() => LostReason::MaxHold,
        _ => LostReason::Unrenewed,
    }
}

/// A moment `margin` before `span` has passed, counted from `now`.
fn before(now: BootTime, span: Duration, margin: Duration) -> BootTime {
    now + span.saturating_sub(margin)
}
