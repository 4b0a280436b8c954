//! A child that is forked and uses its parent's client: what it has is not its own.
#![expect(
    unsafe_code,
    reason = "fork, alarm and _exit have no safe form; each block says why it is sound"
)]

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clinch::{Clinch, Guard};

/// What a child saw.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Saw {
    pub(super) valid: bool,
    pub(super) granted: bool,
    pub(super) released: bool,
}

/// How many seconds a child lives at most.
const SECONDS: u32 = 2;

/// Forks, and has the child look at a guard, ask for another lock and release the guard, all with what it
/// got from its parent. That must change nothing for the parent, which gets its guard back. Blocks until the
/// child has ended.
pub(super) fn child(clinch: &Clinch, guard: Guard, other: &str) -> (Guard, std::io::Result<Saw>) {
    let (mut reader, mut writer) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(why) => return (guard, Err(why)),
    };
    // SAFETY: the parent has threads, so the child may find any lock taken for ever and hang. It touches
    // nothing that others share but the pipe, and the alarm below ends it in any case.
    let pid = match unsafe { libc::fork() } {
        -1 => return (guard, Err(std::io::Error::last_os_error())),
        0 => {
            // SAFETY: sets a timer of the child, whose signal ends it.
            unsafe { libc::alarm(SECONDS) };
            let _ = writer.write_all(if guard.is_valid() { b"v" } else { b"-" });
            if is_granted(clinch, other) {
                let _ = writer.write_all(b"g");
            }
            let released = soon(guard.release());
            if matches!(&released, Some(Ok(reply)) if reply.was_held()) {
                let _ = writer.write_all(b"r");
            }
            // SAFETY: ends the child without the exit handlers that belong to its parent.
            unsafe { libc::_exit(0) }
        }
        pid => pid,
    };
    drop(writer);
    let mut saw = String::new();
    let read = reader.read_to_string(&mut saw);
    // SAFETY: waits for the child that was forked above, and wants nothing to be written.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    let saw = read.map(|_| Saw {
        valid: saw.contains('v'),
        granted: saw.contains('g'),
        released: saw.contains('r'),
    });
    (guard, saw)
}

fn is_granted(clinch: &Clinch, name: &str) -> bool {
    let lock = clinch.lock(name).lease(Duration::from_secs(1));
    let outcome = soon(lock.try_acquire());
    // A guard that is not valid is no grant. It is forgotten: the child ends here.
    let granted = matches!(&outcome, Some(Ok(Some(guard))) if guard.is_valid());
    std::mem::forget(outcome);
    granted
}

/// Polls a future for a while: there is nobody in the child who would wake it.
fn soon<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut context) {
            return Some(outcome);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
