//! The child: started, signalled, asked for its state, reaped.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};

use super::fork;
use super::guardian::{self, Guardian};
use super::terminal::{self, Terminal};
use crate::failure::{Failure, exit};

/// A running child and its process group.
#[derive(Debug)]
pub(super) struct Job {
    group: Pid,
    ended: Option<Status>,
    reaped: bool,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Status {
    /// As a shell says it.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => exit::SIGNAL + signal,
        }
    }
}

/// What has become of the child since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It has ended. It is not reaped yet, so its group's number is not given away.
    Ended(Status),
    /// It was stopped by this signal.
    Stopped(i32),
}

impl Job {
    /// Starts the command in a group of its own, tied to this process and known to the guardian.
    /// From the main thread only: the child lives no longer than the thread that forks it.
    pub(super) fn start(
        argv: &[OsString],
        env: &[(&str, Option<String>)],
        guardian: &Guardian,
        terminal: Option<&mut Terminal>,
    ) -> Result<Self, Failure> {
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| Failure::usage("there is no command to run"))?;
        let cannot = |error: io::Error| not_started(program, &error);
        let orders = guardian.job_end().map_err(cannot)?;
        let lend = terminal.as_ref().is_some_and(|t| t.lend_at_once());
        let mut command = Command::new(program);
        command.args(arguments);
        for (key, value) in env {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        fork::tie(&mut command, move || {
            guardian::announce(&orders)?;
            if lend {
                terminal::claim();
            }
            Ok(())
        });
        let child = command.spawn().map_err(|error| {
            guardian.done();
            cannot(error)
        });
        if let (true, Some(terminal)) = (lend, terminal) {
            terminal.set_lent();
            if child.is_err() {
                terminal.take_back(false);
            }
        }
        let group = i32::try_from(child?.id()).ok().and_then(Pid::from_raw);
        group.map_or_else(
            || {
                Err(Failure::new(
                    exit::INTERNAL,
                    "internal",
                    "the child has no process id",
                ))
            },
            |group| {
                Ok(Self {
                    group,
                    ended: None,
                    reaped: false,
                })
            },
        )
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Sends the whole group a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    /// Sends the whole group a signal by its number.
    pub(super) fn pass_on(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            self.signal(signal);
        }
    }

    /// What has become of it; `None` when nothing has.
    pub(super) fn change(&mut self) -> Option<Change> {
        if let Some(status) = self.ended {
            return Some(Change::Ended(status));
        }
        let look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(seen)) = waitid(WaitId::Pid(self.group), look | WaitIdOptions::EXITED) {
            let status = match (seen.exit_status(), seen.terminating_signal()) {
                (Some(code), _) => Status::Code(code),
                (None, signal) => Status::Signal(signal.unwrap_or(libc::SIGKILL)),
            };
            self.ended = Some(status);
            return Some(Change::Ended(status));
        }
        let stopped = WaitIdOptions::NOHANG | WaitIdOptions::STOPPED;
        match waitid(WaitId::Pid(self.group), stopped) {
            Ok(Some(seen)) => seen.stopping_signal().map(Change::Stopped),
            _ => None,
        }
    }

    /// Lets the kernel forget the child, once it has ended.
    pub(super) fn reap(&mut self) {
        if self.ended.is_some() && !self.reaped {
            let _ = waitid(WaitId::Pid(self.group), WaitIdOptions::EXITED);
            self.reaped = true;
        }
    }

    /// Whether the child has ended, and everything that it started in its group with it.
    pub(super) fn all_gone(&mut self) -> bool {
        if self
            .change()
            .is_none_or(|change| matches!(change, Change::Stopped(_)))
        {
            return false;
        }
        self.reap();
        test_kill_process_group(self.group).is_err()
    }
}

/// Says why a command was not started, with the statuses that shells use.
fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
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
