//! Hints from the kernel that a process has died.
//!
//! A waiter watches the process ahead of it: its death is a hint to claim again, and the claim then
//! looks at the session files. Where the process id means nothing (another container), the slow
//! repetition of the claim is the net.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use clinch_core::store::Wake;
use clinch_core::{RequestId, keeper};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::wakes::Bells;

/// How many claims for one process are looked through for those that have gone.
const MANY: usize = 64;
/// The most processes that are watched at once.
const MOST: usize = 512;

/// Processes whose death is a hint for claims of this client.
#[derive(Debug)]
pub(crate) struct Deaths {
    bells: Arc<Bells>,
    watched: Mutex<HashMap<u32, Vec<RequestId>>>,
}

impl Deaths {
    pub(crate) fn new(bells: Arc<Bells>) -> Self {
        Self {
            bells,
            watched: Mutex::default(),
        }
    }

    /// Hints to the claim when one of these processes dies.
    pub(crate) fn watch(self: &Arc<Self>, request: RequestId, pids: &[u32]) {
        for pid in pids {
            let mut watched = self.watched();
            if let Some(requests) = watched.get_mut(pid) {
                if !requests.contains(&request) {
                    // Not each time: a claim is watched for before it listens.
                    if requests.len() >= MANY {
                        requests.retain(|waiting| self.bells.awaits(*waiting));
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
                    // Gone already, or of another pid namespace: one look cannot hurt, but only
                    // one, so the same claim does not turn in circles.
                    tracing::trace!(pid, "the process ahead is not to be seen");
                }
                Err(error) => tracing::debug!(pid, %error, "cannot watch a process"),
            }
        }
    }

    fn spawn(self: &Arc<Self>, process: OwnedFd, pid: u32) {
        let (deaths, closing) = (Arc::downgrade(self), self.bells.closing());
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
            report(&deaths, pid);
        });
        if watching.is_err() {
            self.watched().remove(&pid);
        }
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Vec<RequestId>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(deaths: &Weak<Deaths>, pid: u32) {
    let Some(deaths) = deaths.upgrade() else {
        return;
    };
    let requests = deaths.watched().remove(&pid).unwrap_or_default();
    for request in requests {
        deaths.bells.deliver(request, Wake::Hint);
    }
}
