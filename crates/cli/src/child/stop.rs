//! When a job must stop, and how it is stopped: TERM to all that it has started, then KILL before the
//! lease ends. What a command leaves in the background when it has ended by itself is stopped, too.

use std::time::Duration;

use clinch::{BootTime, Clock, Guard, LostReason, Status as Hold};

use super::Task;
use super::family::{Looks, Sent};
use super::supervisor::{Supervisor, lost_reason};
use super::wire::Report;
use crate::output::complain;

/// How long to wait for processes that have been killed.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How often to look, and to kill again, when the guardian does not answer.
const LOOK: Duration = Duration::from_millis(5);
/// The same for what has not ended long after KILL.
const LATE_LOOK: Duration = Duration::from_millis(100);
/// What the command leaves in the background gets this long to end by itself, as the reader of a
/// pipe does (`exec > >(tee log)` in a script).
const LINGER: Duration = Duration::from_secs(1);

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
            // A longer grace would begin before the first renewal is due.
            grace: task.grace.min(clinch::renew_after(lease)),
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
    /// Stops everything that the job has started: TERM, and KILL after the grace or before the lease
    /// ends.
    pub(super) async fn stop(&mut self, clock: &Clock, plan: &Plan) {
        let now = clock.now();
        let kill_at = plan.kill_at().min(now + plan.grace);
        self.guardian.until(kill_at);
        self.guardian.end(now, kill_at);
        self.gone(clock, kill_at + plan.margin / 2).await;
    }

    /// Waits until nothing of the job is left. Kills it without the guardian's help after `late`.
    async fn gone(&mut self, clock: &Clock, late: BootTime) {
        let give_up = late + AFTER_KILL;
        let (mut look, mut looks) = (late, Looks::default());
        loop {
            tokio::select! {
                biased;
                report = self.guardian.report() => match report {
                    Some(Report::Gone { denied, .. }) => return out_of_reach(denied),
                    Some(_) => {}
                    None => return tell(self.guardian.inherit(clock)),
                },
                signal = self.signals.next() => match signal {
                    libc::SIGCHLD => self.guardian.reap(),
                    libc::SIGCONT | libc::SIGTSTP => {}
                    other => self.guardian.pass_on(other),
                },
                () = clock.sleep_until(look) => {
                    let now = clock.now();
                    let (left, enough) = self.guardian.kill_for_it(&mut looks);
                    if enough {
                        return tell(left);
                    }
                    if now >= give_up {
                        self.guardian.give_up();
                        return tell(left);
                    }
                    look = now + LOOK;
                }
            }
        }
    }

    /// The command has ended by itself. Ends what it has left in the background, with the lock still
    /// held; the reason if it is lost meanwhile.
    pub(super) async fn leftovers(
        &mut self,
        guard: &Guard,
        clock: &Clock,
        task: &Task<'_>,
        plan: &mut Plan,
        alone: bool,
    ) -> Option<LostReason> {
        if alone {
            return None;
        }
        if task.leave {
            self.guardian.leave();
            return None;
        }
        let term_at = clock.now() + LINGER;
        self.guardian.end(term_at, term_at + plan.grace);
        // From then on, without the guardian's help.
        let mut late = term_at + plan.grace + AFTER_KILL;
        let (mut looks, mut told) = (Looks::default(), false);
        loop {
            let look = plan.look_again();
            tokio::select! {
                biased;
                report = self.guardian.report() => match report {
                    Some(Report::Gone { ended, denied }) => {
                        if !task.quiet {
                            say_ended(ended);
                        }
                        out_of_reach(denied);
                        return None;
                    }
                    Some(_) => {}
                    None => {
                        tell(self.guardian.inherit(clock));
                        return None;
                    }
                },
                signal = self.signals.next() => self.on_signal(guard, signal),
                reason = guard.lost() => return Some(reason),
                () = clock.sleep_until(look.min(late)) => {
                    let now = clock.now();
                    if now >= look {
                        if plan.must_stop(guard, now) {
                            return Some(lost_reason(guard, task));
                        }
                        self.guardian.until(plan.kill_at());
                    }
                    if now >= late {
                        let (left, enough) = self.guardian.kill_for_it(&mut looks);
                        if enough {
                            tell(left);
                            return None;
                        }
                        if left.reached > 0 && !std::mem::replace(&mut told, true) {
                            tell(left);
                        }
                        late = now + LATE_LOOK;
                    }
                }
            }
        }
    }
}

/// Says what is still there.
pub(super) fn tell(left: Sent) {
    if left.reached > 0 {
        let (s, were, have) = match left.reached {
            1 => ("", "was", "has"),
            _ => ("es", "were", "have"),
        };
        complain(&format!(
            "clinch: {} process{s} of the command {were} killed and {have} not ended yet",
            left.reached
        ));
    }
    out_of_reach(left.denied);
}

fn say_ended(count: usize) {
    if count > 0 {
        let s = if count == 1 { "" } else { "es" };
        complain(&format!(
            "clinch: ended {count} process{s} that the command had left in the background"
        ));
    }
}

/// A process that may not be sent a signal goes on. That is worth a line also with --quiet.
fn out_of_reach(count: usize) {
    if count > 0 {
        let s = if count == 1 { "" } else { "es" };
        complain(&format!(
            "clinch: {count} process{s} of the command cannot be ended: another user's; still running"
        ));
    }
}

/// A moment `margin` before `span` has passed, counted from `now`.
fn before(now: BootTime, span: Duration, margin: Duration) -> BootTime {
    now + span.saturating_sub(margin)
}
