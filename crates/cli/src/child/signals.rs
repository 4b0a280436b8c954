//! Signals to clinch, as a queue that any future can wait for.

use std::io;

use rustix::process::{Signal, WaitOptions, wait};
use tokio::sync::mpsc;

use super::fork;
use crate::failure::{Failure, exit};

/// What is passed on to the job.
const PASSED_ON: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// What has a meaning of its own here.
const OUR_OWN: [i32; 2] = [libc::SIGTSTP, libc::SIGCONT];

/// The signals that this process has been sent since it began to listen.
#[derive(Debug)]
pub(crate) struct Signals(mpsc::UnboundedReceiver<i32>);

impl Signals {
    /// Begins to listen. What was ignored when clinch was started (`nohup`) stays ignored, for
    /// clinch and for the job.
    pub(crate) fn listen() -> Result<Self, Failure> {
        Self::start().map_err(|error| {
            let message = format!("cannot listen for signals: {error}");
            Failure::new(exit::INTERNAL, "internal", message)
        })
    }

    fn start() -> io::Result<Self> {
        let wanted = PASSED_ON.into_iter().chain(OUR_OWN);
        let wanted = wanted.filter(|signal| !fork::is_ignored(*signal));
        let mut caught = signal_hook::iterator::Signals::new(wanted.chain([libc::SIGCHLD]))?;
        let (queue, signals) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("clinch-signals".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                for signal in caught.forever() {
                    if queue.send(signal).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self(signals))
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> i32 {
        match self.0.recv().await {
            Some(signal) => signal,
            // The thread lives as long as the process.
            None => std::future::pending().await,
        }
    }

    /// The next signal that asks this process to end. Cancel safe. A stop from the terminal stops
    /// the process meanwhile, after `tidy` has cleared the line.
    pub(crate) async fn end(&mut self, tidy: impl Fn()) -> i32 {
        loop {
            match self.next().await {
                signal @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => {
                    return signal;
                }
                libc::SIGTSTP => {
                    tidy();
                    stop_this_process();
                }
                libc::SIGCHLD => reap_as_first(),
                _ => {}
            }
        }
    }
}

/// The first process of a container inherits every orphan there, and must reap it.
fn reap_as_first() {
    if rustix::process::getpid().is_init() {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
    }
}

/// Stops this process until somebody continues it.
pub(super) fn stop_this_process() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}
