//! The end of a run: everybody comes to an end, nothing is left, and nothing comes back.

use std::time::Duration;

use super::run::Run;

impl Run {
    /// Lets the users end what they do: none may wait for ever.
    pub(super) fn let_users_end(&mut self) {
        let bound = self.server.now() + self.lab.plan.users_within();
        while self.tasks.has_callers() && self.goes_on() {
            let stuck = match self.step(false) {
                false => "nothing will ever wake them",
                true if self.server.now() > bound => "nothing is disturbed any more",
                true => continue,
            };
            let callers = self.tasks.callers().join(", ");
            let left = self.lab.left_behind().join("; ");
            self.lab.violated(format!(
                "these wait for ever, though {stuck}: {callers} ({left})"
            ));
        }
    }

    /// Lets everything come to rest: nothing may be left at the store nor in an engine.
    pub(super) fn let_it_get_quiet(&mut self, when: &str) {
        let bound = self.server.now() + self.lab.plan.quiet_within();
        loop {
            let busy = !self.tasks.ready().is_empty() || self.has_flights();
            if !busy && self.lab.left_behind().is_empty() {
                return;
            }
            let ended = !self.step(false) || self.server.now() > bound;
            if !self.goes_on() {
                return;
            }
            if ended {
                break;
            }
        }
        let left = self.lab.left_behind();
        if !left.is_empty() && !self.is_excused() {
            let left = left.join("; ");
            self.lab.violated(format!("left behind {when}: {left}"));
        }
    }

    /// A client that was closed while it could not reach the store leaves its leases to run out;
    /// so does one that could not start its background work.
    fn is_excused(&self) -> bool {
        let plan = &self.lab.plan;
        let net = self.lab.net.state();
        let mut sides = self.lab.sides.iter().zip(&net.clients);
        plan.refusals > 0 || sides.any(|(side, at)| side.closing.get() && at.trouble.is_some())
    }

    fn has_flights(&self) -> bool {
        self.lab
            .net
            .state()
            .flights
            .iter()
            .any(|flight| !flight.late)
    }

    /// What is still under way arrives now, one after the other, some time later: it must change
    /// nothing.
    pub(super) fn late_copies(&mut self) {
        while self.goes_on() {
            let late = self.lab.net.state().flights.len();
            if late == 0 {
                return;
            }
            let at = self.below(late);
            let seconds = [0, 1, 20][self.below(3)];
            self.advance(Duration::from_secs(seconds), false);
            self.arrive(at, false);
            self.lab.check();
            if self.goes_on() {
                self.let_it_get_quiet("after a late copy");
            }
        }
    }
}
