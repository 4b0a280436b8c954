//! Doing what the plan says.

use std::time::Duration;

use clinch::BootTime;

use super::kinds::{self, Kind};
use super::plan::{OfEngine, Plan, Planned, What};
use super::{LinkFault, Run, lock};
use crate::history::{Event, Exit, Fault, now};
use crate::lab::Aftermath;
use crate::work::Order;

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

impl Run<'_> {
    /// Faults until the time is over; then everything is healed. Three sequences run side by side,
    /// so that faults of workers, connections and the engine meet.
    pub(super) async fn disturb(&self, until: BootTime) {
        let (workers, links) = match self.wrong() {
            Some(wrong) => wrong.faults(),
            None => (Plan::of_workers(), Plan::of_links()),
        };
        let links = if self.route.has_network() {
            links
        } else {
            Vec::new()
        };
        let mut workers = workers;
        if self.file().is_some() {
            workers.push(What::Peek);
        }
        let known = lock(&self.engine).as_ref().map(|engine| engine.faults());
        let known = known.unwrap_or_default().into_iter().enumerate();
        let engine = known.map(|(number, fault)| {
            // A wrong lock promises nothing: there is nothing to excuse.
            let excuses = self.wrong().is_none() && !fault.excuses.is_empty();
            What::Engine(OfEngine { number, excuses })
        });
        let engine = engine.collect();
        tokio::join!(
            self.lane(1, workers, until),
            self.lane(2, links, until),
            self.lane(3, engine, until),
            self.mend(until),
            self.deliver(until),
        );
    }

    async fn lane(&self, purpose: u64, kinds: Vec<What>, until: BootTime) {
        let mut plan = Plan::new(self.options.seed, purpose, self.lease, kinds);
        let mut budget = super::budget::Budget::new(&self.clock, self.options.span, self.lease);
        while let Some(planned) = plan.next() {
            if !self.rest(planned.gap, until).await {
                return;
            }
            match planned.what {
                What::Kill => self.kill(&planned).await,
                What::PauseShort => {
                    let victim = self.victim(&planned);
                    self.pause(victim, &planned, kinds::PAUSED, until).await;
                }
                What::PauseLong => {
                    let victim = match planned.pick & 1 << 40 {
                        0 => self.about_to_write(until).await,
                        _ => None,
                    };
                    let victim = victim.or_else(|| self.victim(&planned));
                    self.pause(victim, &planned, kinds::PAUSED_LONG, until)
                        .await;
                }
                What::Stall => self.stall(&planned, until).await,
                What::Evict => self.evict(&planned).await,
                What::Close => self.send_order(&planned, Order::Close, kinds::CLOSED),
                What::Fork => self.send_order(&planned, Order::Fork, kinds::FORKED),
                What::Peek => self.peek().await,
                What::Link(LinkFault::Kept) => self.keep(&planned, until).await,
                What::Link(fault) => self.cut(fault, &planned, until).await,
                What::Engine(fault) if fault.excuses && !budget.admits(plan.is_first_round()) => {}
                What::Engine(fault) => {
                    let excused = self.engine(fault.number, &planned, until).await;
                    budget.spend(excused);
                }
            }
        }
        self.rest(FOR_EVER, until).await;
    }

    /// Replaces workers that ended by themselves, which is a problem of its own.
    async fn mend(&self, until: BootTime) {
        while self.rest(Duration::from_millis(500), until).await {
            if let Some((member, _)) = self.dismiss(super::crew::Member::died) {
                self.problem(&format!("worker {} ended by itself", member.process));
                self.retire(&member);
                self.replace().await;
            }
        }
    }

    /// Takes the first worker of this kind off the list.
    fn dismiss(
        &self,
        which: impl Fn(&mut super::crew::Member) -> bool,
    ) -> Option<(super::crew::Member, super::Way)> {
        let mut members = lock(&self.members);
        let at = members.iter_mut().position(|(member, _)| which(member))?;
        Some(members.swap_remove(at))
    }

    async fn replace(&self) {
        if let Err(error) = self.hire().await {
            self.problem(&format!("a worker could not be started: {error}"));
        }
    }

    pub(super) fn log(&self, fault: Fault) {
        self.faults
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.recorder.write(&Event::Fault(fault));
    }

    fn victim(&self, planned: &Planned) -> Option<u32> {
        let members = lock(&self.members);
        let count = u64::try_from(members.len())
            .ok()
            .filter(|count| *count > 0)?;
        let at = usize::try_from(planned.pick % count).ok()?;
        members.get(at).map(|(member, _)| member.process)
    }

    async fn kill(&self, planned: &Planned) {
        let Some(process) = self.victim(planned) else {
            return;
        };
        let victim = self.dismiss(|member| member.process == process);
        let Some((mut member, _way)) = victim else {
            return;
        };
        let at = now();
        member.kill();
        self.recorder.write(&Event::Exit(Exit {
            process,
            at,
            killed: true,
        }));
        self.retire(&member);
        self.log(Fault {
            process: Some(process),
            ..kinds::KILLED.fault(at, at)
        });
        self.replace().await;
    }

    /// Waits, for a lease at most, for a worker that has looked and is about to write where no token
    /// is checked: no lock can keep the write of one that is paused there from coming too late.
    async fn about_to_write(&self, until: BootTime) -> Option<u32> {
        let give_up = self.clock.now() + self.lease;
        while self.clock.now() < give_up.min(until) && !self.stopped() {
            if let Some(process) = self.gap.process() {
                return Some(process);
            }
            self.clock.sleep(Duration::from_millis(3)).await;
        }
        None
    }

    async fn pause(&self, victim: Option<u32>, planned: &Planned, how: Kind, until: BootTime) {
        let Some(process) = victim else { return };
        let at = now();
        self.each(process, |member| member.pause());
        self.rest(planned.span, until).await;
        self.each(process, |member| member.resume());
        self.log(Fault {
            process: Some(process),
            ..how.fault(at, now())
        });
    }

    async fn stall(&self, planned: &Planned, until: BootTime) {
        let Some(process) = self.victim(planned) else {
            return;
        };
        let at = now();
        let millis = u64::try_from(planned.span.as_millis()).unwrap_or(0);
        self.each(process, |member| member.order(Order::Stall(millis)));
        self.rest(planned.span, until).await;
        let asked = at.saturating_add(super::nanos(planned.span));
        self.log(Fault {
            process: Some(process),
            // It goes on when the run is stopped before.
            ..kinds::BLOCKED.fault(at, now().max(asked))
        });
    }

    fn each(&self, process: u32, act: impl Fn(&mut super::crew::Member)) {
        let mut members = lock(&self.members);
        members
            .iter_mut()
            .filter(|(m, _)| m.process == process)
            .for_each(|(m, _)| act(m));
    }

    /// Breaks one of the long holds. Its holder learns of it at its next renewal: until then, the
    /// lock's validity is not exclusive, and this is what an operator asks for.
    async fn evict(&self, planned: &Planned) {
        let Some(clinch) = &self.clinch else { return };
        if !clinch.info().capabilities.evict || !clinch.info().capabilities.list {
            return;
        }
        let prefix = format!("{}long/", self.prefix);
        let Ok(found) = clinch.list(&prefix).await else {
            return;
        };
        let held: Vec<_> = found
            .iter()
            .filter(|view| !view.holders.is_empty())
            .collect();
        let count = u64::try_from(held.len()).unwrap_or(0).max(1);
        let at = usize::try_from(planned.pick % count).unwrap_or(0);
        let Some(view) = held.get(at) else { return };
        let begun = now();
        if clinch.evict(view.name.as_str(), None).await.is_ok() {
            self.log(Fault {
                lock: Some(view.name.as_str().to_owned()),
                ..kinds::BROKEN.fault(begun, now())
            });
        }
    }

    async fn cut(&self, fault: LinkFault, planned: &Planned, until: BootTime) {
        let Some(process) = self.victim(planned) else {
            return;
        };
        let at = now();
        let way = |act: &dyn Fn(&super::Way)| {
            let members = lock(&self.members);
            members
                .iter()
                .filter(|(m, _)| m.process == process)
                .for_each(|(_, way)| act(way));
        };
        way(&|way| way.disturb(fault, planned.span));
        self.rest(planned.span, until).await;
        way(&|way| way.heal(fault));
        self.log(Fault {
            process: Some(process),
            ..kinds::of_link(fault, self.route.scheme()).fault(at, now())
        });
    }

    /// Does what the plan says to the engine; for how long that excuses something.
    async fn engine(&self, number: usize, planned: &Planned, until: BootTime) -> Option<Duration> {
        let known = lock(&self.engine).as_ref().map(|engine| engine.faults());
        let fault = known.unwrap_or_default().get(number).copied()?;
        let at = now();
        let span = planned.span;
        let begun = self
            .on_engine(move |engine| {
                let instead = engine.begin(number, span)?;
                Ok((instead, engine.aside()))
            })
            .await;
        if let Ok((_, aside)) = &begun {
            self.split(aside);
        }
        self.rest(span, until).await;
        let ended = self
            .on_engine(move |engine| {
                let ended = engine.end(number).err();
                Ok((ended, Some(engine.aftermath())))
            })
            .await;
        lock(&self.members).iter().for_each(|(_, way)| way.unseal());
        let mut done = fault;
        let mut after = Aftermath::default();
        let mut failures = Vec::new();
        match begun {
            Ok((instead, _)) => done = instead.unwrap_or(done),
            Err(error) => failures.push(error),
        }
        match ended {
            Ok((ended, aftermath)) => {
                failures.extend(ended);
                after = aftermath.unwrap_or_default();
                done = after.instead.unwrap_or(done);
            }
            Err(error) => failures.push(error),
        }
        for error in failures {
            self.problem(&format!("{}: {error}", fault.name));
        }
        let ended = now();
        self.log(Fault {
            slots: after.slots,
            excused_until: after.excused_until,
            ..Kind::from(done).fault(at, ended)
        });
        let mut excused = after.excused_until.unwrap_or(ended).saturating_sub(at);
        let mut excuses = !done.excuses.is_empty();
        if let Some((beside, slots)) = after.beside {
            self.log(Fault {
                slots: Some(slots),
                ..Kind::from(beside).fault(at, ended)
            });
            excused = ended.saturating_sub(at);
            excuses = true;
        }
        excuses.then_some(Duration::from_nanos(excused))
    }

    /// Some workers are on the side of these servers, the others on the other side.
    fn split(&self, aside: &[std::net::SocketAddr]) {
        if aside.is_empty() {
            return;
        }
        for (member, way) in lock(&self.members).iter() {
            let with_them = member.process.is_multiple_of(2);
            way.seal(|server| aside.contains(server) != with_them);
        }
    }

    /// Has a worker do something to itself; it goes on meanwhile.
    fn send_order(&self, planned: &Planned, order: Order, kind: Kind) {
        let Some(process) = self.victim(planned) else {
            return;
        };
        let at = now();
        self.each(process, |member| member.order(order));
        self.log(Fault {
            process: Some(process),
            ..kind.fault(at, at)
        });
    }

    /// Keeps what a worker sends on its open connections, to be delivered many leases later.
    async fn keep(&self, planned: &Planned, until: BootTime) {
        let Some(process) = self.victim(planned) else {
            return;
        };
        let at = now();
        let links: Vec<_> = {
            let members = lock(&self.members);
            let of = members.iter().filter(|(m, _)| m.process == process);
            of.flat_map(|(_, way)| way.keep()).collect()
        };
        let leases = u32::try_from(planned.pick % 8).unwrap_or(0) + 3;
        lock(&self.kept).push((self.clock.now() + self.lease * leases, process, links));
        // Until its client has given the connections up.
        self.rest(planned.span, until).await;
        self.log(Fault {
            process: Some(process),
            ..kinds::of_link(LinkFault::Kept, self.route.scheme()).fault(at, now())
        });
    }

    /// Delivers what was kept, when it is time.
    async fn deliver(&self, until: BootTime) {
        while self.rest(super::TICK, until).await {
            let at = self.clock.now();
            let due: Vec<_> = lock(&self.kept)
                .extract_if(.., |(due, ..)| *due <= at)
                .collect();
            for (_, process, links) in due {
                links.iter().for_each(clinch_testkit::proxy::Link::deliver);
                let at = now();
                self.log(Fault {
                    process: Some(process),
                    ..kinds::DELIVERED.fault(at, at)
                });
            }
        }
    }

    /// The file of an embedded store of our own.
    fn file(&self) -> Option<std::path::PathBuf> {
        lock(&self.engine).as_ref().and_then(|engine| engine.file())
    }

    /// Has another process look into the file with plain SQLite, as people and backups do.
    async fn peek(&self) {
        let Some(file) = self.file() else { return };
        let at = now();
        let config = crate::work::Config {
            peek: Some(file),
            ..self.config(0, String::new())
        };
        match super::crew::Member::start(&self.options.worker, &config) {
            Ok(mut member) => {
                while !member.is_gone()
                    && self.clock.now().as_nanos() < at + super::nanos(super::START)
                {
                    self.clock.sleep(super::TICK).await;
                }
            }
            Err(error) => self.problem(&format!("nobody could look into the file: {error}")),
        }
        self.log(kinds::READ.fault(at, now()));
    }

    /// Servers are started and killed with calls that block. They have a thread of their own, so that
    /// the other sequences of faults go on meanwhile.
    async fn on_engine<T: Default + Send + 'static>(
        &self,
        act: impl FnOnce(&mut dyn crate::lab::Engine) -> clinch::Result<T> + Send + 'static,
    ) -> clinch::Result<T> {
        let engine = self.engine.clone();
        let acting = tokio::task::spawn_blocking(move || match lock(&engine).as_mut() {
            Some(engine) => act(engine.as_mut()),
            None => Ok(T::default()),
        });
        acting.await.unwrap_or_else(|why| {
            let text = format!("the lab: {why}");
            Err(clinch::Error::new(clinch::ErrorKind::Internal, text))
        })
    }
}
