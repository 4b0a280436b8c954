//! One server process.

use std::fs;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clinch_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{Recipe, failed, spawner, until};

/// A server process. It is killed when this value is dropped, and when the test process ends for
/// any reason.
///
/// All calls block for at most [`PATIENCE`](crate::wait::PATIENCE). Every error ends with the last
/// lines of the server's log.
///
/// ```
/// use clinch_testkit::servers::{Folder, Recipe, ServerProcess};
/// let folder = Folder::new("demo")?;
/// let process = ServerProcess::start(Recipe::new("sleep", folder.path()).arg("1000"))?;
/// let first = process.pid();
/// process.pause()?;
/// process.resume()?;
/// process.terminate()?;
/// assert!(!process.is_running());
/// process.restart()?;
/// assert_ne!(process.pid(), first);
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ServerProcess {
    recipe: Recipe,
    child: Mutex<Option<Child>>,
}

impl ServerProcess {
    /// Starts it without waiting until it is ready.
    pub fn start(recipe: Recipe) -> Result<Self> {
        let process = Self {
            recipe,
            child: Mutex::new(None),
        };
        process.restart()?;
        Ok(process)
    }

    /// Waits until `ready` holds; fails if the process ends before that.
    pub fn wait_ready(&self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut alive = true;
        let came = until(|| {
            alive = self.is_running();
            !alive || ready()
        });
        match (alive, came) {
            (false, _) => Err(self.failure("the process ended before it was ready")),
            (true, false) => Err(self.failure("it did not become ready")),
            (true, true) => Ok(()),
        }
    }

    /// Kills it, and waits until it is gone; no error if it does not run.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.child().take() else {
            return Ok(());
        };
        let ended = child.kill().and_then(|()| child.wait());
        match ended {
            Ok(_) => Ok(()),
            Err(e) => Err(failed(self.message("it cannot be killed"), e)),
        }
    }

    /// Sends SIGTERM, and waits until it has ended; a paused one is resumed for that.
    pub fn terminate(&self) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        match until(|| !self.is_running()) {
            true => Ok(()),
            false => Err(self.failure("it does not end after SIGTERM")),
        }
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        match until(|| self.state() == Some('T')) {
            true => Ok(()),
            false => Err(self.failure("it does not stop after SIGSTOP")),
        }
    }

    /// Continues it with SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Starts it again with the same arguments; kills it first if it runs.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        let child = self.recipe.command().and_then(spawner::spawn);
        match child {
            Ok(child) => *self.child() = Some(child),
            Err(e) => {
                let error = failed(self.message("it cannot be started"), e);
                return Err(
                    error.with_advice("install setpriv (Debian: util-linux) if it is missing")
                );
            }
        }
        Ok(())
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.is_running()
            .then(|| self.child().as_ref().map(Child::id))?
    }

    /// Whether it runs; a paused one does.
    pub fn is_running(&self) -> bool {
        let mut child = self.child();
        let running = child
            .as_mut()
            .is_some_and(|c| matches!(c.try_wait(), Ok(None)));
        if !running {
            *child = None;
        }
        running
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.recipe.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(15)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// An error about this server, with the end of its log.
    pub fn failure(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unreachable, self.message(what))
    }

    fn message(&self, what: &str) -> String {
        format!("{}: {what}\n{}", self.recipe.program, self.log_tail())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child();
        let Some(child) = child.as_ref() else {
            drop(child);
            return Err(self.failure("it does not run"));
        };
        let sent = kill_process(Pid::from_child(child), signal);
        sent.map_err(|e| failed(self.message("it cannot be signalled"), e.into()))
    }

    /// The letter of the kernel's process state.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error cannot be returned from here.
        let _ = self.kill();
    }
}
