//! The guardian's own process: it starts the command, and ends all that the command has started.
//!
//! It is a subreaper and the command's parent. So everything that the command starts stays below it,
//! whatever becomes of clinch, and "it has no child left" means that nothing is left.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use clinch::{BootTime, Clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper,
    setpgid, wait,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::family;
use super::fork::{self, Mask};
use super::terminal;
use super::wire::{self, Order, Report, Status};

/// What does not end in as many rounds of KILL may be a chain of forks.
const PLAIN_ROUNDS: u32 = 2;
/// A hidden process that has just ended looks like one that cannot be killed, until it is reaped. After
/// as many rounds it is the latter.
const HIDDEN_ROUNDS: u32 = 5;
/// As many rounds that find nobody, though there are children, where the kernel does not list them.
const EMPTY_ROUNDS: u32 = 50;

/// How long to wait between two rounds of KILL: longer each time, as a process that waits for a disk
/// can take its time to die.
fn pause_after(rounds: u32) -> Duration {
    Duration::from_millis(2) * rounds.clamp(1, 50)
}

/// The guardian's whole life: from the fork until clinch has gone.
pub(super) fn guard(stream: UnixStream, argv: &[OsString]) {
    let mask = fork::block_all();
    fork::keep_children();
    let _ = rustix::thread::set_name(c"clinch-guardian");
    // Out of clinch's group: what ends that, ends clinch, and then the job is to be ended.
    let _ = setpgid(None, None);
    let _ = set_child_subreaper(Some(getpid()));
    let Ok(children) = fork::child_events() else {
        // clinch sees that the guardian has gone.
        return;
    };
    Guard {
        stream,
        children,
        argv,
        mask,
        clock: Clock::boot(),
        visible: family::visible(),
        buffer: Vec::new(),
        leader: None,
        until: None,
        ending: None,
        alone: true,
        rounds: 0,
        unseen: Unseen::default(),
    }
    .watch();
}

struct Guard<'a> {
    stream: UnixStream,
    children: OwnedFd,
    argv: &'a [OsString],
    mask: Mask,
    clock: Clock,
    /// Descendants can be found.
    visible: bool,
    buffer: Vec<u8>,
    /// The command itself, until it is reaped: after that its group's number may be another's.
    leader: Option<Pid>,
    until: Option<BootTime>,
    ending: Option<Ending>,
    /// Nothing that was started is left.
    alone: bool,
    /// Of KILL, so far.
    rounds: u32,
    unseen: Unseen,
}

/// Children that `/proc` hides and that may not be sent a signal: another user's.
#[derive(Debug, Default)]
struct Unseen {
    pids: Vec<Pid>,
    /// For how many rounds they have been the same.
    rounds: u32,
    /// For how many rounds nobody was found at all.
    empty: u32,
}

impl Unseen {
    /// Takes note of a round of KILL: how many are out of reach, once nothing else is left.
    fn judge(&mut self, sent: family::Sent, hidden: Vec<Pid>) -> Option<usize> {
        let same = !hidden.is_empty() && hidden == self.pids;
        self.rounds = if same { self.rounds + 1 } else { 0 };
        self.pids = hidden;
        let nobody = sent == family::Sent::default() && self.pids.is_empty();
        self.empty = if nobody { self.empty + 1 } else { 0 };
        match (sent.reached, sent.denied) {
            (0, 0) if self.rounds >= HIDDEN_ROUNDS => Some(self.pids.len()),
            (0, 0) if self.empty >= EMPTY_ROUNDS => Some(1),
            (0, denied @ 1..) => Some(denied + self.pids.len()),
            _ => None,
        }
    }
}

/// An end that was ordered.
struct Ending {
    /// `None` once TERM has been sent.
    term_at: Option<BootTime>,
    kill_at: BootTime,
    ended: usize,
}

impl Guard<'_> {
    fn watch(mut self) {
        loop {
            self.reap();
            let pause = self.act();
            // An error: clinch has gone, or needs no guardian any more.
            let gone = self.listen(pause).is_err();
            self.obey_all(gone);
            if gone {
                break;
            }
        }
        self.ending = None;
        if !self.alone {
            // Who reads what clinch prints does not wait for the guardian.
            release_stdio();
        }
        while !self.alone && !self.kill() {
            let _ = self.rest(Some(pause_after(self.rounds)), false);
            self.reap();
        }
    }

    /// Does what was ordered. A guardian that was stopped or starved finds several orders, and the
    /// latest count: nothing is started whose end is ordered already, or that nobody waits for.
    fn obey_all(&mut self, gone: bool) {
        let mut orders = VecDeque::new();
        while let Some(order) = wire::take(&mut self.buffer) {
            orders.push_back(order);
        }
        let latest = orders.iter().rev().find_map(|order| match order {
            Order::Until(nanos) => Some(BootTime::from_nanos(*nanos)),
            _ => None,
        });
        let until = latest.or(self.until);
        while let Some(order) = orders.pop_front() {
            let mut rest = orders.iter();
            let off = gone || rest.any(|order| matches!(order, Order::End { .. }));
            let late = until.is_some_and(|moment| self.clock.now() >= moment);
            match order {
                Order::Start { .. } if off || late => self.report(Report::TooLate),
                order => self.obey(order),
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start { env, lend } => self.start(&env, lend),
            Order::Until(nanos) => self.until = Some(BootTime::from_nanos(nanos)),
            Order::Signal(number) => self.pass_on(number),
            Order::End { term_at, kill_at } => {
                self.ending = Some(Ending {
                    term_at: Some(BootTime::from_nanos(term_at)),
                    kill_at: BootTime::from_nanos(kill_at),
                    ended: 0,
                });
            }
            Order::Leave => {
                (self.until, self.ending) = (None, None);
                self.alone = true;
            }
        }
    }

    fn report(&self, report: Report) {
        // Without a reader there is nobody to say it to; the end of its orders says the same.
        let _ = wire::send(&self.stream, &report);
    }

    fn start(&mut self, env: &[(String, Option<String>)], lend: bool) {
        let report = match self.spawn(env, lend) {
            Ok(pid) => Report::Started(pid),
            Err(error) => Report::NotStarted(error.raw_os_error().unwrap_or(libc::EINVAL)),
        };
        self.report(report);
    }

    fn spawn(&mut self, env: &[(String, Option<String>)], lend: bool) -> io::Result<i32> {
        let Some((program, arguments)) = self.argv.split_first() else {
            return Err(io::Error::from(Errno::INVAL));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        for (key, value) in env {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        fork::tie(&mut command, self.mask, move || {
            if lend {
                terminal::claim();
            }
            Ok(())
        });
        let pid = i32::try_from(command.spawn()?.id()).unwrap_or_default();
        self.leader = Pid::from_raw(pid);
        (self.alone, self.rounds) = (false, 0);
        // The end of a job before this one is not the end of this one.
        (self.ending, self.unseen) = (None, Unseen::default());
        Ok(pid)
    }

    /// Sends the job's group a signal, as a terminal would.
    fn pass_on(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else {
            return;
        };
        match self.leader {
            Some(group) => {
                let _ = kill_process_group(group, signal);
                // What is stopped acts on these only when it goes on.
                if matches!(
                    signal,
                    Signal::TERM | Signal::HUP | Signal::INT | Signal::QUIT
                ) {
                    let _ = kill_process_group(group, Signal::CONT);
                }
            }
            None if !self.alone => {
                self.signal_family(signal, false);
            }
            None => {}
        }
    }

    /// Does what is due, and says for how long nothing else is.
    fn act(&mut self) -> Option<Duration> {
        if self.alone {
            self.settle(0);
            return None;
        }
        let now = self.clock.now();
        let kill_at = self.ending.as_ref().map(|ending| ending.kill_at);
        let kill_at = kill_at.into_iter().chain(self.until).min();
        if kill_at.is_some_and(|moment| now >= moment) {
            if self.kill() {
                // The rest is out of reach.
                return None;
            }
            return Some(pause_after(self.rounds));
        }
        let mut next = kill_at;
        if let Some(term_at) = self.ending.as_mut().and_then(|ending| ending.term_at) {
            if now >= term_at {
                self.terminate();
            } else {
                next = Some(next.map_or(term_at, |next| next.min(term_at)));
            }
        }
        next.map(|moment| BootTime::since(moment, now))
    }

    /// Asks everything to end, once.
    fn terminate(&mut self) {
        if let Some(group) = self.leader {
            let _ = kill_process_group(group, Signal::TERM);
            let _ = kill_process_group(group, Signal::CONT);
        }
        let sent = self.signal_family(Signal::TERM, true);
        self.signal_family(Signal::CONT, true);
        if let Some(ending) = &mut self.ending {
            ending.term_at = None;
            ending.ended = sent.reached;
        }
    }

    /// One round of KILL; `true` when all that is left is out of reach.
    fn kill(&mut self) -> bool {
        self.rounds += 1;
        if let Some(group) = self.leader {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Without a view of the processes only the group can be ended.
        let blind = !self.visible && self.leader.is_none();
        let mut sent = self.signal_family(Signal::KILL, false);
        let mut left = blind.then_some(0);
        if self.visible {
            let (reached, hidden) = kill_hidden();
            sent.reached += reached;
            left = self.unseen.judge(sent, hidden);
        }
        if let Some(denied) = left {
            self.settle(denied);
            self.alone = true;
            return true;
        }
        if self.visible && self.rounds > PLAIN_ROUNDS {
            family::chase(getpid(), |_| true, || self.reap());
        }
        if let Some(ending) = &mut self.ending {
            ending.ended = ending.ended.max(sent.reached);
        }
        false
    }

    /// Sends every descendant a signal; those of the group got it already if `others` is set.
    fn signal_family(&self, signal: Signal, others: bool) -> family::Sent {
        if !self.visible {
            return family::Sent::default();
        }
        let mut family = family::descendants(getpid());
        if let (true, Some(group)) = (others, self.leader) {
            family.retain(|process| process.group != group.as_raw_nonzero().get());
        }
        family::signal(&family, signal)
    }

    /// An end that was ordered is complete.
    fn settle(&mut self, denied: usize) {
        if let Some(ending) = self.ending.take() {
            let ended = ending.ended;
            self.report(Report::Gone { ended, denied });
        }
    }

    /// Takes note of every child that has ended or stopped. Orphans of the job are reaped.
    fn reap(&mut self) {
        let mut ended = None;
        let look = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        loop {
            match wait(look) {
                Ok(Some((pid, status))) if Some(pid) == self.leader => {
                    if let Some(signal) = status.stopping_signal() {
                        self.report(Report::Stopped(signal));
                        continue;
                    }
                    self.leader = None;
                    ended = Some(match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Status::Code(code),
                        (None, signal) => Status::Signal(signal.unwrap_or(libc::SIGKILL)),
                    });
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => {
                    self.alone = true;
                    // There is no child at all: somebody else has taken its status.
                    if self.leader.take().is_some() {
                        ended = Some(Status::Unknown);
                    }
                    break;
                }
            }
        }
        if let Some(status) = ended {
            self.report(Report::Ended {
                status,
                alone: self.alone,
                overdue: self.rounds > 0,
            });
        }
    }

    /// Waits for orders or a change of a child, and reads all orders that are there.
    fn listen(&mut self, mut pause: Option<Duration>) -> io::Result<()> {
        let mut piece = [0; 4096];
        while self.rest(pause, true)? {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::from(Errno::PIPE)),
                Ok(n) => self
                    .buffer
                    .extend_from_slice(piece.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            pause = Some(Duration::ZERO);
        }
        Ok(())
    }

    /// Waits, and says whether there is something to read from clinch.
    fn rest(&self, pause: Option<Duration>, orders: bool) -> io::Result<bool> {
        let timeout = pause.and_then(|pause| Timespec::try_from(pause).ok());
        let wanted = if orders {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = [
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.stream, wanted),
        ];
        let fds = if orders { &mut fds[..] } else { &mut fds[..1] };
        match poll(fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
        let (changed, told) = (ready(fds.first()), ready(fds.get(1)));
        if changed {
            let mut drain = [0; 1024];
            let _ = rustix::io::read(&self.children, &mut drain);
        }
        Ok(told)
    }
}

/// Kills the guardian's children that `/proc` hides: by number, as nobody but the guardian reaps them.
/// How many got it, and who may not be sent one.
fn kill_hidden() -> (usize, Vec<Pid>) {
    let (mut reached, mut denied) = (0, Vec::new());
    for pid in family::hidden(getpid()) {
        match kill_process(pid, Signal::KILL) {
            Ok(()) => reached += 1,
            Err(Errno::PERM) => denied.push(pid),
            Err(_) => {}
        }
    }
    (reached, denied)
}

fn release_stdio() {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(null) = open(c"/dev/null", flags, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_hidden_is_out_of_reach() {
        let none = family::Sent::default();
        let mut unseen = Unseen::default();
        let pid = |number| vec![Pid::from_raw(number).unwrap()];
        // A chain of forks: always another one.
        for number in 10..100 {
            assert_eq!(unseen.judge(none, pid(number)), None);
        }
        let rounds = (0..).take_while(|_| unseen.judge(none, pid(7)).is_none());
        assert_eq!(rounds.count(), HIDDEN_ROUNDS as usize);
        // As long as somebody can be killed, it is not the end.
        let sent = family::Sent {
            reached: 1,
            denied: 1,
        };
        assert_eq!(unseen.judge(sent, pid(7)), None);
        // Nobody is found, and yet there are children.
        let rounds = (1..).take_while(|_| unseen.judge(none, Vec::new()).is_none());
        assert_eq!(rounds.count(), EMPTY_ROUNDS as usize - 1);
        assert_eq!(unseen.judge(none, Vec::new()), Some(1));
    }
}
