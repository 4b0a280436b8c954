//! The command of a server process.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Host;

/// Exits if the parent died before the parent-death signal was set.
const GUARDED: &str = r#"[ "$PPID" = "$1" ] || exit 1; shift; exec "$@""#;

/// A program with its arguments and environment, and the folder it runs in.
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
    pub(super) program: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    folder: PathBuf,
    host: Option<Host>,
}

impl Recipe {
    /// A program on the path; it runs in `folder` and writes its output to the file `log` there.
    pub fn new(program: &str, folder: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            folder: folder.to_owned(),
            host: None,
        }
    }

    /// Runs it on a host of a private network; on this machine if there is none.
    #[must_use]
    pub fn on(mut self, host: Option<&Host>) -> Self {
        self.host = host.cloned();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// The command, under a parent-death signal.
    ///
    /// That signal survives `exec`, but not a change of the user id: a server that is started as
    /// root must not be configured to switch to another user.
    pub(super) fn command(&self) -> std::io::Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--", "sh", "-c", GUARDED, "sh"])
            .arg(std::process::id().to_string());
        if let Some(host) = &self.host {
            // nsenter executes the program in its place, so the parent-death signal stays.
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

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}
