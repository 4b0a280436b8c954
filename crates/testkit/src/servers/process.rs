//! One server process.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clinch_core::{Error, ErrorKind, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{Host, failed, spawner, until};

/// What every server passes on to its process.
macro_rules! signals {
    ($server:ident) => {
        impl $server {
            /// The process, for signals.
            pub fn process(&self) -> &$crate::servers::ServerProcess {
                &self.process
            }

            /// Kills it, as a machine that loses its power does.
            pub fn kill(&self) -> clinch_core::Result<()> {
                self.process.kill()
            }

            /// Stops it with SIGSTOP: connections stay open, nothing is answered.
            pub fn pause(&self) -> clinch_core::Result<()> {
                self.process.pause()
            }

            /// Lets it go on.
            pub fn resume(&self) -> clinch_core::Result<()> {
                self.process.resume()
            }

            /// Whether it runs; a paused one does.
            pub fn is_running(&self) -> bool {
                self.process.is_running()
            }
        }
    };
}

pub(super) use signals;

/// Ends at once if the parent died before the kernel was told to kill us with it.
const GUARDED: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// What to run: a program, its arguments and environment, and the folder it runs in.
///
/// ```
/// use clinch_testkit::servers::{Folder, Recipe, ServerProcess};
/// let folder = Folder::new("demo")?;
/// let recipe = Recipe::new("sleep", folder.path()).arg("1000").env("LANG", "C");
/// assert!(ServerProcess::start(recipe)?.is_running());
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recipe {
    program: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    folder: PathBuf,
    host: Option<Host>,
}

impl Recipe {
    /// A program that is found on the path; it runs in `folder`, and its output is the file `log`
    /// there.
    pub fn new(program: &str, folder: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            folder: folder.to_owned(),
            host: None,
        }
    }

    /// Runs it on a host of a private network, or on this one.
    #[must_use]
    pub fn on(mut self, host: Option<&Host>) -> Self {
        self.host = host.cloned();
        self
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// The command, under a parent-death signal.
    ///
    /// That signal outlives `exec`, but not a change of the user id: a server that is started as
    /// root must not be told to become somebody else.
    fn command(&self) -> std::io::Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", GUARDED, "sh"])
            .arg(std::process::id().to_string());
        if let Some(host) = &self.host {
            // It becomes the program, which keeps the parent-death signal.
            let namespace = host.namespace();
            command.args(["nsenter", &format!("--net={}", namespace.display()), "--"]);
        }
        command
            .arg(&self.program)
            .args(&self.args)
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

/// A server process. It dies with this value, and with the test process, even if that is killed.
///
/// All calls block, none for longer than [`PATIENCE`](crate::wait::PATIENCE), and every error ends
/// with the last lines of the server's log.
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
    /// Starts it; it need not be ready yet.
    pub fn start(recipe: Recipe) -> Result<Self> {
        let process = Self {
            recipe,
            child: Mutex::new(None),
        };
        process.restart()?;
        Ok(process)
    }

    /// Waits until it is ready, as `ready` sees it; fails when it ends before that.
    pub fn wait_ready(&self, mut ready: impl FnMut() -> bool) -> Result<()> {
        let mut alive = true;
        let came = until(|| {
            alive = self.is_running();
            !alive || ready()
        });
        match (alive, came) {
            (false, _) => Err(self.failure("it ended instead of getting ready")),
            (true, false) => Err(self.failure("it did not get ready")),
            (true, true) => Ok(()),
        }
    }

    /// Kills it, and waits until it is gone. Killing what does not run is no error.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.child().take() else {
            return Ok(());
        };
        let ended = child.kill().and_then(|()| child.wait());
        match ended {
            Ok(_) => Ok(()),
            Err(e) => Err(failed(self.story("it cannot be killed"), e)),
        }
    }

    /// Asks it to end, and waits until it has; a paused one is resumed for that.
    pub fn terminate(&self) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)?;
        match until(|| !self.is_running()) {
            true => Ok(()),
            false => Err(self.failure("it does not end")),
        }
    }

    /// Stops it with SIGSTOP, and waits until it stands.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        match until(|| self.state() == Some('T')) {
            true => Ok(()),
            false => Err(self.failure("it does not stand")),
        }
    }

    /// Lets it go on.
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
                let error = failed(self.story("it cannot be started"), e);
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

    /// Cuts the log, which otherwise goes on over restarts.
    pub fn clear_log(&self) -> Result<()> {
        match File::create(self.recipe.log()) {
            Ok(_) => Ok(()),
            Err(e) => Err(failed(self.story("its log cannot be cleared"), e)),
        }
    }

    /// An error about this server, with the end of its log.
    pub fn failure(&self, what: &str) -> Error {
        Error::new(ErrorKind::Unreachable, self.story(what))
    }

    fn story(&self, what: &str) -> String {
        format!("{}: {what}\n{}", self.recipe.program, self.log_tail())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child();
        let Some(child) = child.as_ref() else {
            drop(child);
            return Err(self.failure("it does not run"));
        };
        let sent = kill_process(Pid::from_child(child), signal);
        sent.map_err(|e| failed(self.story("it takes no signals"), e.into()))
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
        // It may be gone already; there is nobody to tell.
        let _ = self.kill();
    }
}
