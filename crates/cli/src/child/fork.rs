//! The few calls that the compiler cannot check: fork, what runs between fork and exec, and signal
//! masks. All `unsafe` of the command is here.
#![expect(
    unsafe_code,
    reason = "fork, pre_exec and signal masks have no safe form; each block says why it is sound"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, getpid, getppid, set_parent_process_death_signal};

/// Forks; the child runs `body`, and ends with it.
///
/// Only for a process that has no other thread yet: then the child is a whole process and not the
/// remains of one in which any lock may be taken for ever.
pub(super) fn fork_into(body: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: the caller has started no thread, so the child may do whatever the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            body();
            // SAFETY: ends the process, without the exit handlers that belong to the parent.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child).ok_or_else(|| io::Error::other("fork gave no process id")),
    }
}

/// Closes every descriptor but one: a bystander must not keep a file lock or a pipe open.
pub(super) fn close_all_but(kept: &OwnedFd) {
    let kept = kept.as_raw_fd().unsigned_abs();
    let close = |first: u32, last: u32| {
        // SAFETY: the forked child owns its descriptor table, and uses no other descriptor again.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if done == -1 {
            // A kernel before 5.9: as many as a process has by default.
            for fd in first..=last.min(1024) {
                // SAFETY: as above; a number that is not open is only an error.
                unsafe { libc::close(fd.cast_signed()) };
            }
        }
    };
    if let Some(below) = kept.checked_sub(1) {
        close(0, below);
    }
    close(kept + 1, u32::MAX);
}

/// Lets `before_exec` run in the child of `command` between fork and exec, after the child has been
/// tied to this process: it dies when the thread that forks it dies.
///
/// So the command must be spawned from the main thread.
pub(super) fn tie(
    command: &mut Command,
    before_exec: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let parent = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the line above; then nobody would tell us.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        before_exec()
    };
    // SAFETY: the hook makes system calls only: no allocation, no lock, nothing of another thread.
    unsafe { command.process_group(0).pre_exec(hook) };
}

/// Blocks a signal for this thread, or lets it through again.
pub(super) fn block(signal: i32, blocked: bool) {
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before it is read; the old mask is not asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut());
    }
}

/// Blocks every signal for this thread.
pub(super) fn block_all() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set before it is read; the old mask is not asked for.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Whether a signal is ignored, as `nohup` arranges it.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; on success the action has been filled in, and zeroes are valid anyway.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
