//! The few calls that the compiler cannot check: fork, what runs between fork and exec, and signal
//! masks. All `unsafe` of the command is here.
#![expect(
    unsafe_code,
    reason = "fork, pre_exec and signal masks have no safe form; each block says why it is sound"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use rustix::process::{Pid, getpid, getppid, set_parent_process_death_signal};

/// The signals that a thread had blocked.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

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

/// Prepares `command` to run in a group of its own, with these signals blocked, and tied to the
/// calling thread: it is killed when that ends. `before_exec` runs last, between fork and exec.
pub(super) fn tie(
    command: &mut Command,
    mask: Mask,
    before_exec: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    let parent = getpid();
    let hook = move || {
        set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the line above; then no signal comes.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        before_exec()?;
        // SAFETY: the mask was filled in by the kernel; the old one is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: the hook makes system calls only: no allocation, no lock, nothing of another thread.
    unsafe { command.process_group(0).pre_exec(hook) };
}

/// Blocks a signal for this thread.
pub(super) fn block(signal: i32) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before it is read; the old mask is not asked for.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Blocks every signal for this thread, and gives what was blocked before.
pub(super) fn block_all() -> Mask {
    let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: `sigfillset` initialises the set before it is read; zeroes are a valid mask.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        Mask(before.assume_init())
    }
}

/// A descriptor that is readable when a child has changed its state. SIGCHLD must be blocked.
pub(super) fn child_events() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set before it is read; -1 asks for a new descriptor,
    // which belongs to nobody else.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        match libc::signalfd(-1, set.as_ptr(), flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Lets children be waited for. Where SIGCHLD is ignored (programs in Perl and Python like to hand
/// that on), the kernel takes their statuses away, and gives their numbers to others.
pub(super) fn keep_children() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
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
