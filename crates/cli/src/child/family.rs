//! The descendants of a process, found through `/proc`.
//!
//! A process that is a subreaper (`PR_SET_CHILD_SUBREAPER`) stays the ancestor of all that its
//! children started: what loses its parent becomes its own child. No `setsid`, no process group and
//! no double fork leads out of that.

use std::collections::HashMap;
use std::fs;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};

/// How many children a pass of [`chase`] looks at: the living one is among the last.
const NEWEST: usize = 16;
/// How often [`chase`] looks, and after how many looks without a change there is no chain.
const PASSES: usize = 200;
const STILL: u32 = 10;
/// How often in a row nobody must be found: a process may start another and end while we look.
const EMPTY_LOOKS: u32 = 2;

/// One process, as `/proc/PID/stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pid: Pid,
    parent: i32,
    pub(super) group: i32,
    /// Not only its remains.
    alive: bool,
    /// In ticks since boot: with the number it names a process once and for all.
    pub(super) start: u64,
}

/// What became of a signal to several processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// They got it.
    pub(super) reached: usize,
    /// Of another user (`sudo`).
    pub(super) denied: usize,
}

/// Whether `/proc` shows the processes by the numbers that this process knows them by. Elsewhere a
/// number of another namespace could be taken for one of ours.
pub(super) fn visible() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| {
        let mut numbers = numbers.split_whitespace();
        let own = getpid().as_raw_nonzero().get().to_string();
        numbers.next() == Some(&own) && numbers.next().is_none()
    })
}

/// The living descendants of a process.
pub(super) fn descendants(of: Pid) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(process) = number.and_then(Pid::from_raw).and_then(look) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        let own = children.remove(&parent.as_raw_nonzero().get());
        for process in own.into_iter().flatten() {
            parents.push(process.pid);
            if process.alive {
                found.push(process);
            }
        }
    }
    found
}

/// The children of a process as the kernel lists them, the newest last: also those that `/proc`
/// hides (`hidepid`), and those that have ended. Empty on a kernel that keeps no such list.
pub(super) fn children(of: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", of.as_raw_nonzero()));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = lists.flat_map(|list| {
        let numbers = list.split_whitespace().map(str::parse);
        numbers.flatten().collect::<Vec<i32>>()
    });
    numbers.filter_map(Pid::from_raw).collect()
}

/// Those children that `/proc` hides.
pub(super) fn hidden(of: Pid) -> Vec<Pid> {
    let mut children = children(of);
    children.retain(|pid| look(*pid).is_none());
    children
}

/// Kills the newest children, again and again while there are new ones. In a chain each process forks
/// and ends: it has gone on before a search of all processes is done, but all of it comes by here.
pub(super) fn chase(of: Pid, ours: impl Fn(&Process) -> bool, mut reap: impl FnMut()) {
    let (mut before, mut still) = (Vec::new(), 0);
    for _ in 0..PASSES {
        reap();
        let now = children(of);
        still = if now == before { still + 1 } else { 0 };
        if still == STILL || now.is_empty() {
            return;
        }
        let newest = now.iter().rev().take(NEWEST).filter_map(|pid| look(*pid));
        for process in newest.filter(|process| process.alive && ours(process)) {
            let _ = send(&process, Signal::KILL);
        }
        before = now;
    }
}

/// Rounds of KILL, counted until nothing is left but what is out of reach.
#[derive(Debug, Default)]
pub(super) struct Looks {
    children: Vec<Pid>,
    empty: u32,
}

impl Looks {
    /// Takes note of a round; `true` when it was enough. That nobody was found proves nothing while the
    /// children change: a chain of forks goes on.
    pub(super) fn are_enough(&mut self, of: Pid, sent: Sent) -> bool {
        let now = children(of);
        let still = now == self.children;
        self.children = now;
        self.empty = match sent.reached {
            0 if still => self.empty + 1,
            _ => 0,
        };
        self.empty >= EMPTY_LOOKS
    }
}

/// Sends a signal to each.
pub(super) fn signal(processes: &[Process], signal: Signal) -> Sent {
    let mut sent = Sent::default();
    for process in processes {
        match send(process, signal) {
            Ok(()) => sent.reached += 1,
            Err(Errno::PERM) => sent.denied += 1,
            // It has gone meanwhile.
            Err(_) => {}
        }
    }
    sent
}

/// By a descriptor of the process: its number may have been given to another one since we looked.
fn send(process: &Process, signal: Signal) -> Result<(), Errno> {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(fd) => match look(process.pid) {
            Some(now) if now.start == process.start => pidfd_send_signal(fd, signal),
            _ => Err(Errno::SRCH),
        },
        // A kernel before 5.3.
        Err(Errno::NOSYS) => kill_process(process.pid, signal),
        Err(error) => Err(error),
    }
}

/// Reads one process; `None` when there is none.
pub(super) fn look(pid: Pid) -> Option<Process> {
    // The command's name can hold anything, but for the last parenthesis.
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let state = *fields.first()?;
    // A process whose first thread has ended looks like a zombie, and others of it may run.
    let remains = state == "Z" && number(17)? <= 1;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        alive: !remains && state != "X",
        start: number(19)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_and_named_once_and_for_all() {
        assert!(visible());
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let family = descendants(getpid());
        let found = family.iter().find(|p| p.pid.as_raw_nonzero().get() == pid);
        let mut stranger = *found.unwrap();
        // Another process with the same number.
        stranger.start -= 1;
        assert_eq!(signal(&[stranger], Signal::KILL), Sent::default());
        assert!(child.try_wait().unwrap().is_none());
        let sent = signal(&[*found.unwrap()], Signal::KILL);
        assert_eq!((sent.reached, sent.denied), (1, 0));
        child.wait().unwrap();
    }
}
