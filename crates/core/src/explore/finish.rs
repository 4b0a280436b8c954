//! The end of a run: every call ends, nothing is left behind, and late copies change nothing.

use std::time::Duration;

use super::run::Run;

impl Run {
    /// Runs until all users have ended: none may wait for ever.
    pub(super) fn finish_users(&mut self) {
        let bound = self.server_clock.now() + self.harness.plan.users_within();
        while self.tasks.has_callers() && self.is_ok() {
            let stuck = match self.step(false) {
                false => "nothing will ever wake them",
                true if self.server_clock.now() > bound => "nothing is disturbed any more",
                true => continue,
            };
            let callers = self.tasks.callers().join(", ");
            let left = self.harness.left_behind().join("; ");
            self.harness.violated(format!(
                "these calls wait for ever, though {stuck}: {callers} ({left})"
            ));
        }
    }

    /// Runs until nothing is left to do: no claim may be left at the store or in an engine.
    pub(super) fn run_until_idle(&mut self, when: &str) {
        let bound = self.server_clock.now() + self.harness.plan.idle_within();
        loop {
            let busy = !self.tasks.ready().is_empty() || self.has_messages();
            if !busy && self.harness.left_behind().is_empty() {
                return;
            }
            let ended = !self.step(false) || self.server_clock.now() > bound;
            if !self.is_ok() {
                return;
            }
            if ended {
                break;
            }
        }
        let left = self.harness.left_behind();
        if !left.is_empty() && !self.may_leave_leases() {
            let left = left.join("; ");
            self.harness.violated(format!("left behind {when}: {left}"));
        }
    }

    /// If a client was closed while it could not reach the store, or could not start its background
    /// work, its leases are left to expire.
    fn may_leave_leases(&self) -> bool {
        let plan = &self.harness.plan;
        let net = self.harness.net.state();
        let mut clients = self.harness.clients.iter().zip(&net.clients);
        plan.refusals > 0
            || clients.any(|(client, link)| client.closing.get() && link.trouble.is_some())
    }

    fn has_messages(&self) -> bool {
        self.harness
            .net
            .state()
            .messages
            .iter()
            .any(|message| !message.late)
    }

    /// Delivers the messages that are still under way, one by one, some time later: they must change
    /// nothing.
    pub(super) fn deliver_late_copies(&mut self) {
        while self.is_ok() {
            let late = self.harness.net.state().messages.len();
            if late == 0 {
                return;
            }
            let at = self.below(late);
            let seconds = [0, 1, 20][self.below(3)];
            self.advance(Duration::from_secs(seconds), false);
            self.arrive(at, false);
            self.harness.check();
            if self.is_ok() {
                self.run_until_idle("after a late copy");
            }
        }
    }
}
