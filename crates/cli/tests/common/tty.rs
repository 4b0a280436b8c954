//! A terminal for tests: a pty, what is pressed on it and what is printed.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a helper of tests fails the test"
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Proc, Sandbox};

/// Our side of a terminal, and what has been printed on it.
pub(crate) struct Tty {
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    path: String,
}

impl Tty {
    pub(crate) fn new() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let keys = File::from(ours);
        let (mut reader, seen) = (keys.try_clone().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let screen = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                screen.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { keys, seen, path }
    }

    pub(crate) fn end(&self) -> Stdio {
        let mut options = std::fs::OpenOptions::new();
        let options = std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc_noctty());
        Stdio::from(options.read(true).write(true).open(&self.path).unwrap())
    }

    /// Starts a command in a session of its own on this terminal.
    pub(crate) fn start(&self, sandbox: &Sandbox, args: &[&str]) -> Proc {
        // What the tests' own parent ignores is not ignored here: keys must have an effect.
        let mut command = Command::new("env");
        sandbox.prepare(&mut command);
        command.args(["--default-signal", "setsid", "--ctty", "--wait"]);
        command.args(args);
        command
            .stdin(self.end())
            .stdout(self.end())
            .stderr(self.end());
        Proc(Some(command.spawn().unwrap()))
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }
}

fn libc_noctty() -> i32 {
    i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap()
}
