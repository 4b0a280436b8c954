//! The thread that starts every server.
//!
//! The kernel sends the parent-death signal when the *thread* that started the child ends: a server
//! started by a test's thread would be killed with that thread. So one thread, which ends with the
//! process, starts all servers.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type Request = (Command, Sender<io::Result<Child>>);

static SPAWNER: LazyLock<io::Result<Sender<Request>>> = LazyLock::new(|| {
    let (requests, inbox) = channel::<Request>();
    std::thread::Builder::new()
        .name("server-spawner".to_owned())
        .spawn(move || {
            for (mut command, reply) in inbox {
                // The caller waits for it, so the channel is open.
                let _ = reply.send(command.spawn());
            }
        })?;
    Ok(requests)
});

/// Starts a process that is a child of the long-lived thread.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts servers is gone");
    let requests = SPAWNER
        .as_ref()
        .map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    let (reply, answer) = channel();
    requests.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
