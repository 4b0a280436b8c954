//! The guardian's own process: it starts the command, and ends all that the command has started.
//!
//! It is a subreaper and the command's parent. So everything that the command starts stays below it,
//! whatever becomes of clinch, and "it has no child left" means that nothing is left.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use clinch::{BootTime, Clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, setpgid, wait,
};

use super::family;
use super::fork::{self, Mask};
use super::terminal;
use super::wire::{self, Order, Report, Status};

/// How long to wait between two rounds of KILL: longer each time, as a process that waits for a disk
/// can take its time to die.
fn pause_after(rounds: u32) -> Duration {
    Duration::from_millis(2) * rounds.clamp(1, 50)
}

/// The guardian's whole life: from the fork until clinch has gone.
pub(super) fn guard(stream: UnixStream, argv: &[OsString]) {
    let mask = fork::block_all();
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
            match self.listen(pause) {
                Ok(true) => {
                    while let Some(order) = wire::take(&mut self.buffer) {
                        self.obey(order);
                    }
                }
                Ok(false) => {}
                // clinch has gone, or needs no guardian any more.
                Err(_) => break,
            }
        }
        self.ending = None;
        while !self.alone && !self.kill() {
            let _ = self.rest(Some(pause_after(self.rounds)), false);
            self.reap();
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
        let sent = self.signal_family(Signal::KILL, false);
        // Without a view of the processes only the group can be ended.
        let blind = !self.visible && self.leader.is_none();
        if blind || (sent.reached == 0 && sent.denied > 0) {
            self.settle(sent.denied);
            self.alone = true;
            return true;
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

    /// Waits for an order or a change of a child; `true` when there are orders to read.
    fn listen(&mut self, pause: Option<Duration>) -> io::Result<bool> {
        if !self.rest(pause, true)? {
            return Ok(false);
        }
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::Error::from(Errno::PIPE)),
            Ok(n) => {
                self.buffer
                    .extend_from_slice(piece.get(..n).unwrap_or_default());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
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
