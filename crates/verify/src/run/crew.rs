//! The worker processes.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clinch::{Error, ErrorKind, Result};
use clinch_testkit::servers::Folder;
use rustix::process::{Pid, Signal, kill_process};

use crate::work::{Config, Counts, Order, Said};

/// One worker process. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: u32,
    child: Child,
    input: Option<ChildStdin>,
    heard: Arc<Mutex<Heard>>,
}

/// What a worker has said.
#[derive(Debug, Default, Clone)]
pub(super) struct Heard {
    pub(super) ready: bool,
    pub(super) done: bool,
    pub(super) failed: Option<String>,
    pub(super) counts: Counts,
}

impl Member {
    /// Starts a worker. It is to be called from a thread that lives as long as the run: the kernel
    /// kills the worker when that thread ends.
    pub(super) fn start(program: &[OsString], config: &Config) -> Result<Self> {
        let (name, args) = program
            .split_first()
            .ok_or_else(|| Error::invalid("no program is given for the workers"))?;
        let mut child = Command::new(name)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| failed(&why))?;
        let heard = Arc::<Mutex<Heard>>::default();
        let mut input = child.stdin.take();
        if let Some(output) = child.stdout.take() {
            let heard = heard.clone();
            let listen = move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Ok(said) = serde_json::from_str(&line) {
                        lock(&heard).take(said);
                    }
                }
            };
            let thread = std::thread::Builder::new().name("clinch-crew".into());
            thread.spawn(listen).map_err(|why| failed(&why))?;
        }
        if let Some(input) = &mut input {
            let mut line = serde_json::to_vec(config).map_err(|why| failed(&why.into()))?;
            line.push(b'\n');
            input.write_all(&line).map_err(|why| failed(&why))?;
        }
        Ok(Self {
            process: config.process,
            child,
            input,
            heard,
        })
    }

    /// The number that the system gives it.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn heard(&self) -> Heard {
        lock(&self.heard).clone()
    }

    /// Whether the process has ended.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether the process has ended by itself without having said that it is done.
    pub(super) fn died(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_))) && !self.heard().done
    }

    pub(super) fn order(&mut self, order: Order) {
        if let (Some(input), Ok(mut line)) = (&mut self.input, serde_json::to_vec(&order)) {
            line.push(b'\n');
            // A worker that has gone needs no orders.
            let _ = input.write_all(&line);
        }
    }

    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, as a machine does that loses its power.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Where a container has a boot id of its own, it is a file that lies over this one.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The program in a mount namespace of its own, with another boot id, as some containers have one. It keeps
/// the process that was started: it is waited for and killed as any other.
pub(super) fn with_other_boot(program: &[OsString], folder: &Folder) -> Vec<OsString> {
    let script = format!("mount --bind \"$0\" {BOOT_ID} && exec \"$@\"");
    let id = folder.path().join("boot-id");
    let mut all: Vec<OsString> = ["unshare", "-m", "sh", "-c", &script]
        .map(OsString::from)
        .into();
    all.push(id.into_os_string());
    all.extend(program.iter().cloned());
    all
}

/// Whether that can be had here, or why not: it takes root, in most places.
pub(super) fn other_boot(folder: &Folder) -> std::result::Result<(), String> {
    let id = "6b1f2f0e-95d7-4b64-9c4e-1d1f6d9a7c11\n";
    folder.write("boot-id", id).map_err(|why| why.to_string())?;
    let program = with_other_boot(&["cat".into(), BOOT_ID.into()], folder);
    let (name, args) = program.split_first().ok_or("there is no program")?;
    let output = Command::new(name).args(args).output();
    let output = output.map_err(|why| format!("unshare: {why}"))?;
    if output.stdout == id.as_bytes() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("the boot id stays as it is");
    Err(line.to_owned())
}

/// What cannot be done here without it.
pub(super) fn missing(other_boot: &std::result::Result<(), String>) -> Option<String> {
    let why = other_boot.as_ref().err()?;
    Some(format!("{}: {why}", crate::history::OTHER_BOOT))
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Heard {
    fn take(&mut self, said: Said) {
        match said {
            Said::Ready => self.ready = true,
            Said::Failed(why) => self.failed = Some(why),
            Said::Counts(counts) => self.counts = counts,
            Said::Done(counts) => {
                self.counts = counts;
                self.done = true;
            }
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(why: &std::io::Error) -> Error {
    let text = format!("cannot run a worker process: {why}");
    Error::new(ErrorKind::Internal, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_that_cannot_be_had_is_reported() {
        assert_eq!(missing(&Ok(())), None);
        let why = Err("unshare failed: Operation not permitted".to_owned());
        let text = missing(&why).unwrap();
        assert!(
            text.starts_with("process with another boot id: unshare"),
            "{text}"
        );
    }
}
