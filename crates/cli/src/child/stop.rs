//! When a job must stop, and how it is stopped: TERM to its group, then KILL before the lease ends.

use std::time::Duration;

use clinch::{BootTime, Clock, Guard, Status as Hold};
use rustix::process::Signal;

use super::job::Job;
use super::{Supervisor, Task, before};

/// How long to wait for processes that have been killed.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How often to look whether the group is empty: the kernel does not tell.
const LOOK: Duration = Duration::from_millis(5);

/// The moments that follow from the lease as it was last known.
#[derive(Debug)]
pub(super) struct Plan {
    grace: Duration,
    margin: Duration,
    /// How long the deadline may go unread, so that the guardian's is never far behind.
    refresh: Duration,
    limited: bool,
    read_at: BootTime,
    deadline: BootTime,
}

impl Plan {
    /// The plan for a hold that has just begun.
    pub(super) fn new(task: &Task<'_>, clock: &Clock, guard: &Guard) -> Self {
        let lease = task.max_hold.map_or(task.lease, |max| max.min(task.lease));
        let now = clock.now();
        let mut plan = Self {
            // A renewal is due after a third of the lease: a longer grace would begin before it.
            grace: task.grace.min(lease / 3),
            margin: (lease / 20).min(Duration::from_millis(250)),
            refresh: lease / 6,
            limited: task.max_hold.is_some(),
            read_at: now,
            deadline: now,
        };
        plan.read(guard, now);
        plan
    }

    fn read(&mut self, guard: &Guard, now: BootTime) {
        self.read_at = now;
        self.deadline = before(now, guard.remaining(), self.margin);
    }

    /// When the group must be gone.
    pub(super) fn kill_at(&self) -> BootTime {
        self.deadline
    }

    /// When the lease is worth another look.
    pub(super) fn look_again(&self) -> BootTime {
        let soonest = self.read_at + self.margin.min(LOOK * 4);
        let stop = self.deadline - self.grace;
        stop.min(self.read_at + self.refresh).max(soonest)
    }

    /// Reads the lease anew: whether it is time to stop because no renewal has come.
    pub(super) fn must_stop(&mut self, guard: &Guard, now: BootTime) -> bool {
        let known = self.deadline;
        self.read(guard, now);
        let short = now + self.grace >= self.deadline;
        let stop = short && (self.limited || guard.status() != Hold::Held);
        if stop {
            // What was known before the hold was lost still bounds the stop.
            self.deadline = self.deadline.max(known);
        }
        stop
    }
}

impl Supervisor {
    /// Stops the whole group: TERM, and KILL after the grace or before the lease ends.
    pub(super) async fn stop(&mut self, job: &mut Job, clock: &Clock, plan: &Plan) {
        let kill_at = plan.kill_at().min(clock.now() + plan.grace);
        self.guardian.until(kill_at);
        // Too late for a word: nothing of the job, stopped or not, may run any more.
        if clock.now() < kill_at {
            job.signal(Signal::TERM);
            // A stopped process acts on TERM only when it goes on.
            job.signal(Signal::CONT);
            if self.gone_by(job, clock, kill_at).await {
                return;
            }
        }
        job.signal(Signal::KILL);
        self.gone_by(job, clock, clock.now() + AFTER_KILL).await;
    }

    /// Waits until the group is empty; `false` when it is not by `deadline`.
    async fn gone_by(&mut self, job: &mut Job, clock: &Clock, deadline: BootTime) -> bool {
        loop {
            if job.all_gone() {
                return true;
            }
            let now = clock.now();
            if now >= deadline {
                return false;
            }
            tokio::select! {
                biased;
                signal = self.signals.next() => match signal {
                    libc::SIGCHLD | libc::SIGCONT | libc::SIGTSTP => {}
                    other => job.pass_on(other),
                },
                () = clock.sleep_until(deadline.min(now + LOOK)) => {}
            }
        }
    }
}
