//! A second process that outlives clinch by a moment, to end the job when clinch cannot.
//!
//! `PR_SET_PDEATHSIG` kills the child when clinch dies, and not what the child has started. So a
//! guardian is forked before there is anything to guard: it holds nothing but the reading end of a
//! pipe, knows the job's process group and the moment by which it must be gone, and kills the group
//! when the pipe closes without a word (clinch was killed) or that moment passes (clinch is stopped
//! or starved). A job that ended in time leaves its background processes alone.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use clinch::{BootTime, Clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, setsid, waitpid};

use super::fork;

/// The group of the job has started: sent by the job itself, before it becomes the command.
const GROUP: u8 = b'g';
/// The job must be gone at this time of the boot clock.
const UNTIL: u8 = b'u';
/// The job has ended; what it left behind may stay.
const DONE: u8 = b'd';

/// An order: a letter and a number. Far below `PIPE_BUF`, so it is written and read whole.
type Order = [u8; 9];

/// clinch's end.
#[derive(Debug)]
pub(crate) struct Guardian {
    /// `None` once it has been let go.
    orders: Option<OwnedFd>,
    pid: Pid,
}

impl Guardian {
    /// Forks the guardian. To be called before the process starts its first thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (read_end, orders) = pipe_with(PipeFlags::CLOEXEC)?;
        let pid = fork::fork_into(|| guard(&read_end))?;
        Ok(Self {
            orders: Some(orders),
            pid,
        })
    }

    /// An end for the job, which sends its group before it becomes the command.
    pub(super) fn job_end(&self) -> io::Result<OwnedFd> {
        match &self.orders {
            Some(orders) => orders.try_clone(),
            None => Err(io::Error::other("the guardian has been let go")),
        }
    }

    /// Moves the moment by which the job must be gone.
    pub(super) fn until(&self, moment: BootTime) {
        self.order(UNTIL, moment.as_nanos());
    }

    /// The job has ended, or never began.
    pub(super) fn done(&self) {
        self.order(DONE, 0);
    }

    /// Lets the guardian end, without waiting for it: there will be no other job.
    pub(super) fn let_go(&mut self) {
        self.orders = None;
    }

    /// Lets the guardian end, and waits until it has.
    pub(crate) fn dismiss(mut self) {
        self.let_go();
        while matches!(
            waitpid(Some(self.pid), WaitOptions::empty()),
            Err(Errno::INTR)
        ) {}
    }

    fn order(&self, letter: u8, number: u64) {
        // Without a guardian (the kernel's out-of-memory killer?) the job is as well off as without
        // this module.
        if let Some(orders) = &self.orders {
            let _ = write(orders, &encode(letter, number));
        }
    }
}

/// Tells the guardian the group of the calling process. Safe between fork and exec.
pub(super) fn announce(orders: &OwnedFd) -> io::Result<()> {
    let group = u64::from(
        rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
    );
    write(orders, &encode(GROUP, group))?;
    Ok(())
}

fn encode(letter: u8, number: u64) -> Order {
    let mut order = [letter; 9];
    if let Some((_, rest)) = order.split_first_mut() {
        rest.copy_from_slice(&number.to_ne_bytes());
    }
    order
}

fn decode(order: &Order) -> (u8, u64) {
    let [letter, number @ ..] = *order;
    (letter, u64::from_ne_bytes(number))
}

/// The guardian's whole life.
fn guard(orders: &OwnedFd) {
    fork::close_all_but(orders);
    fork::block_all();
    // Out of the terminal's and the shell's sight, and not in the way of an unmount.
    let _ = rustix::thread::set_name(c"clinch-guardian");
    let _ = setsid();
    let _ = rustix::process::chdir("/");
    let clock = Clock::boot();
    let mut group = None;
    let mut until = None;
    loop {
        let left = match (group, until) {
            (Some(_), Some(moment)) => Some(BootTime::since(moment, clock.now())),
            _ => None,
        };
        if left == Some(Duration::ZERO) {
            end(group);
            until = None;
            continue;
        }
        match next(orders, left) {
            Ok(Some((GROUP, pid))) => {
                group = i32::try_from(pid).ok().and_then(Pid::from_raw);
            }
            Ok(Some((UNTIL, nanos))) => until = Some(BootTime::from_nanos(nanos)),
            Ok(Some(_)) => (group, until) = (None, None),
            Ok(None) => {}
            Err(_) => return end(group),
        }
    }
}

fn end(group: Option<Pid>) {
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The next order; `None` when the time is up first; an error when nobody can give one any more.
fn next(orders: &OwnedFd, left: Option<Duration>) -> Result<Option<(u8, u64)>, Errno> {
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let mut fds = [PollFd::new(orders, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut order = [0; 9];
    match read(orders, &mut order) {
        Ok(9) => Ok(Some(decode(&order))),
        Err(Errno::INTR) => Ok(None),
        Ok(_) => Err(Errno::PIPE),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_pipe() {
        assert_eq!(decode(&encode(UNTIL, u64::MAX - 7)), (UNTIL, u64::MAX - 7));
    }
}
