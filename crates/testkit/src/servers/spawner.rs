//! The thread that starts every server.
//!
//! The kernel ties a parent-death signal to the *thread* that started the child: a server started
//! by the thread of one test would be killed at the end of that test's thread. So one thread, which
//! ends with the process, starts them all.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

static SPAWNER: LazyLock<io::Result<Sender<Order>>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    std::thread::Builder::new()
        .name("server-spawner".to_owned())
        .spawn(move || {
            for (mut command, reply) in inbox {
                // Whoever asked waits for it.
                let _ = reply.send(command.spawn());
            }
        })?;
    Ok(orders)
});

/// Starts a process that is a child of the long-lived thread.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts servers is gone");
    let orders = SPAWNER
        .as_ref()
        .map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
    let (reply, answer) = channel();
    orders.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}
