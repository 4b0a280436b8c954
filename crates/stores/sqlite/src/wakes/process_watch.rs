//! Hints from the kernel that a process has died.
//!
//! A waiter watches the process ahead of it. Its death is a hint to repeat the claim, which then
//! checks the session files. Where the process id has no meaning (another container), the claim is
//! repeated all the same, but later.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use clinch_core::store::Wake;
use clinch_core::{RequestId, keeper};
use clinch_kit::lock;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::WakeSocket;

/// From this many claims for one process on, those that do not wait any more are removed.
const MANY: usize = 64;
/// The most processes that are watched at once.
const MOST: usize = 512;

/// Processes whose death is a hint for claims of this client.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    wakes: Arc<WakeSocket>,
    watched: Mutex<HashMap<u32, Vec<RequestId>>>,
}

impl ProcessWatch {
    pub(crate) fn new(wakes: Arc<WakeSocket>) -> Self {
        Self {
            wakes,
            watched: Mutex::default(),
        }
    }

    /// Wakes the claim with a hint when one of these processes dies.
    pub(crate) fn watch(self: &Arc<Self>, request: RequestId, pids: &[u32]) {
        for pid in pids {
            let mut watched = self.watched();
            if let Some(requests) = watched.get_mut(pid) {
                if !requests.contains(&request) {
                    // Not each time: a claim is registered here before it listens.
                    if requests.len() >= MANY {
                        requests.retain(|waiting| self.wakes.awaits(*waiting));
                    }
                    requests.push(request);
                }
                continue;
            }
            if watched.len() >= MOST {
                return;
            }
            let Some(target) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else {
                continue;
            };
            match pidfd_open(target, PidfdFlags::NONBLOCK) {
                Ok(process) => {
                    watched.insert(*pid, vec![request]);
                    drop(watched);
                    self.spawn(process, *pid);
                }
                Err(rustix::io::Errno::SRCH) => {
                    // Dead already, or of another pid namespace. A hint could make the claim repeat
                    // itself without end.
                    tracing::trace!(pid, "the process ahead cannot be seen");
                }
                Err(error) => tracing::debug!(pid, %error, "cannot watch a process"),
            }
        }
    }

    fn spawn(self: &Arc<Self>, process: OwnedFd, pid: u32) {
        let (watch, closing) = (Arc::downgrade(self), self.wakes.closing());
        let watching = keeper::spawn(async move {
            #[allow(
                deprecated,
                reason = "its successor is unsafe for types that may close their descriptor early; OwnedFd does not"
            )]
            let process = AsyncFd::with_interest(process, Interest::READABLE);
            if let Ok(process) = process {
                // Readable means dead.
                let death = async { drop(process.readable().await) };
                closing.or(death).await;
            }
            report(&watch, pid);
        });
        if watching.is_err() {
            self.watched().remove(&pid);
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<u32, Vec<RequestId>>> {
        lock(&self.watched)
    }
}

fn report(watch: &Weak<ProcessWatch>, pid: u32) {
    let Some(watch) = watch.upgrade() else {
        return;
    };
    let requests = watch.watched().remove(&pid).unwrap_or_default();
    for request in requests {
        watch.wakes.deliver(request, Wake::Hint);
    }
}
