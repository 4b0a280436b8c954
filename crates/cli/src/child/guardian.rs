//! A second process that outlives clinch by a moment, to end the job when clinch cannot.
//!
//! It is forked before there is anything to guard, and starts the command itself: see [`guard`] for
//! its life. Here is clinch's end. The guardian ends everything that the command has started when
//! clinch says so, when clinch has gone without a word (it was killed), or when the moment by which
//! the job must be gone passes (clinch is stopped or starved).
//!
//! If the guardian is killed, the kernel kills the command, and clinch, a subreaper too, inherits
//! and ends the rest.
//!
//! [`guard`]: super::guard

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clinch::{BootTime, Clock};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait, waitpid,
};
use tokio::sync::mpsc;

use super::family::{self, Looks, Process, Sent};
use super::fork;
use super::guard::guard;
use super::wire::{self, Order, Report};

/// How long to wait for processes that have been killed.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How long to wait between two rounds of KILL.
const ROUND: Duration = Duration::from_millis(2);

/// clinch's end.
#[derive(Debug)]
pub(crate) struct Guardian {
    stream: UnixStream,
    reports: Option<mpsc::UnboundedReceiver<Report>>,
    pid: Pid,
    /// As it was when it started; what clinch had for children before is older.
    seen: Option<Process>,
    /// What clinch had for children before.
    before: Vec<Pid>,
    reaped: bool,
    /// Something cannot be ended for now: the guardian goes on without clinch.
    given_up: bool,
}

impl Guardian {
    /// Forks the guardian of this command. To be called before the process starts its first thread.
    pub(crate) fn start(argv: &[OsString]) -> io::Result<Self> {
        let before = family::children(getpid());
        let (ours, theirs) = UnixStream::pair()?;
        let (mut ours, mut theirs) = (Some(ours), Some(theirs));
        let pid = fork::fork_into(|| {
            // Only clinch itself may hold its end: that it is closed means that clinch has gone.
            ours = None;
            if let Some(theirs) = theirs.take() {
                guard(theirs, argv);
            }
        })?;
        let stream = ours.ok_or(Errno::PIPE)?;
        let _ = set_child_subreaper(Some(getpid()));
        // A guardian that hangs must not stop clinch.
        stream.set_write_timeout(Some(Duration::from_millis(100)))?;
        Ok(Self {
            stream,
            reports: None,
            pid,
            seen: family::look(pid),
            before,
            reaped: false,
            given_up: false,
        })
    }

    /// Begins to listen to it, on a thread of its own.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        let mut stream = self.stream.try_clone()?;
        let (queue, reports) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("clinch-reports".into())
            .stack_size(64 * 1024)
            .spawn(move || {
                let (mut buffer, mut piece) = (Vec::new(), [0; 512]);
                loop {
                    match stream.read(&mut piece) {
                        Ok(0) => break,
                        Ok(n) => buffer.extend_from_slice(piece.get(..n).unwrap_or_default()),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                    while let Some(report) = wire::take(&mut buffer) {
                        let _ = queue.send(report);
                    }
                }
            })?;
        self.reports = Some(reports);
        Ok(())
    }

    /// Its next report; `None` when it has gone. Cancel safe.
    pub(super) async fn report(&mut self) -> Option<Report> {
        match &mut self.reports {
            Some(reports) => reports.recv().await,
            None => None,
        }
    }

    /// Starts the command.
    pub(super) fn launch(&self, env: &[(&str, Option<String>)], lend: bool) {
        let env = env
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        let env = env.collect();
        self.order(&Order::Start { env, lend });
    }

    /// Moves the moment by which the job must be gone.
    pub(super) fn until(&self, moment: BootTime) {
        self.order(&Order::Until(moment.as_nanos()));
    }

    /// Sends the job's group a signal.
    pub(super) fn signal(&self, signal: Signal) {
        self.pass_on(signal.as_raw());
    }

    /// Sends the job's group a signal by its number.
    pub(super) fn pass_on(&self, number: i32) {
        self.order(&Order::Signal(number));
    }

    /// Ends everything that the job has started: TERM, then KILL.
    pub(super) fn end(&self, term_at: BootTime, kill_at: BootTime) {
        self.order(&Order::End {
            term_at: term_at.as_nanos(),
            kill_at: kill_at.as_nanos(),
        });
    }

    /// The job has ended; what it left behind may stay.
    pub(super) fn leave(&self) {
        self.order(&Order::Leave);
    }

    fn order(&self, order: &Order) {
        // That it has gone is seen by its reports.
        let _ = wire::send(&self.stream, order);
    }

    /// Kills everything below the guardian without its help: it may hang. Says what was found, and
    /// whether nothing else is left. Where nothing can be seen, that is one process.
    pub(super) fn kill_for_it(&self, looks: &mut Looks) -> (Sent, bool) {
        if !family::visible() {
            let (reached, denied) = (1, 0);
            return (Sent { reached, denied }, false);
        }
        let mut sent = family::signal(&family::descendants(self.pid), Signal::KILL);
        sent.denied += family::hidden(self.pid).len();
        family::chase(self.pid, |_| true, || {});
        (sent, looks.are_enough(self.pid, sent))
    }

    /// The guardian was killed, and the command with it: ends what they left to clinch, and says what
    /// is still there. What clinch had for children before is not the job's.
    pub(super) fn inherit(&mut self, clock: &Clock) -> Sent {
        let give_up = clock.now() + AFTER_KILL;
        let started = self.seen.map(|guardian| guardian.start);
        let ours = |process: &Process| Some(process.start) >= started;
        let (mut left, mut looks) = (Sent::default(), Looks::default());
        while family::visible() && clock.now() < give_up {
            self.reap();
            let mut family = family::descendants(getpid());
            family.retain(ours);
            left = family::signal(&family, Signal::KILL);
            let hidden = family::hidden(getpid());
            let hidden = hidden.iter().filter(|pid| !self.before.contains(pid));
            left.denied += hidden.count();
            family::chase(getpid(), ours, || self.reap());
            if looks.are_enough(getpid(), left) {
                break;
            }
            std::thread::sleep(ROUND);
        }
        left
    }

    /// Something of the job cannot be ended for now. The guardian goes on trying without clinch.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Reaps every child that has ended. As the first process of a container, and as a subreaper,
    /// clinch inherits children that it has not started.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            self.reaped |= pid == self.pid;
        }
    }

    /// Lets the guardian end, without waiting for it: there will be no other job.
    pub(super) fn let_go(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Lets the guardian end, and waits until it has.
    pub(crate) fn dismiss(mut self) {
        self.let_go();
        if self.reaped {
            return;
        }
        // If somebody has stopped it.
        let _ = kill_process(self.pid, Signal::CONT);
        if self.given_up {
            return;
        }
        while matches!(
            waitpid(Some(self.pid), WaitOptions::empty()),
            Err(Errno::INTR)
        ) {}
    }
}
