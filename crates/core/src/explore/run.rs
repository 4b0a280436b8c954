//! One run: from a seed to its end, or to a violation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::harness::{Harness, TestClient};
use super::messages::{Message, Payload};
use super::net::{Cut, Net};
use super::plan::Plan;
use super::rng::Rng;
use super::store::RemoteStore;
use super::tasks::{TaskKind, Tasks};
use super::{hook, user};
use crate::memory::MemoryStore;
use crate::store::OpenContext;
use crate::{Clinch, Clock, ManualClock};

/// The disturbances end after this many steps.
const STEPS: u64 = 220;
/// A run with more steps is an endless loop.
const MAX_STEPS: u64 = 20_000;

/// Result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) violation: Option<String>,
    pub(super) steps: u64,
    /// Hash of all choices: the same for the same seed.
    pub(super) fingerprint: u64,
}

pub(super) struct Run {
    pub(super) harness: Rc<Harness>,
    pub(super) tasks: Tasks,
    pub(super) server_clock: Arc<ManualClock>,
    pub(super) client_clocks: Vec<Arc<ManualClock>>,
    pub(super) steps: u64,
    fingerprint: u64,
}

/// Runs one seed. [`hook::uninstall`] then returns the trace.
pub(super) fn run(seed: u64, trace: bool) -> Outcome {
    hook::install(seed, trace);
    let mut run = Run::new(seed);
    run.run_all();
    let outcome = Outcome {
        violation: run.harness.violation.take(),
        steps: run.steps,
        fingerprint: run.fingerprint,
    };
    drop(run);
    // Dropping the run may have spawned tasks.
    while !hook::take_spawned().is_empty() {}
    outcome
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed.rotate_left(32));
        let plan = Plan::draw(&mut rng);
        let (clock, server_clock) = Clock::manual();
        let context = |clock: &Clock| OpenContext::new("explore").with_clock(clock.clone());
        let store = MemoryStore::new(context(&clock));
        let (mut contexts, mut servers, mut client_clocks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.clients {
            let here = context(&clock);
            servers.push(Arc::new(store.sibling(here.clone())));
            let (clock, client_clock) = Clock::manual();
            contexts.push(here.with_clock(clock));
            client_clocks.push(client_clock);
        }
        let net = Arc::new(Net::new(servers, clock.clone()));
        let new_client = |(at, context): (usize, OpenContext)| {
            let clock = context.clock.clone();
            let store = Arc::new(RemoteStore::new(at, net.clone(), clock.clone()));
            let clinch = Clinch::builder(store.clone(), context)
                .patience(plan.patience)
                .hand_over(plan.hand_over)
                .build();
            TestClient {
                clinch,
                store,
                clock,
                closing: Cell::new(false),
            }
        };
        let clients = contexts.into_iter().enumerate().map(new_client).collect();
        let users = plan.users;
        let harness = Rc::new(Harness {
            plan,
            rng: RefCell::new(rng),
            clients,
            net,
            store,
            held: RefCell::default(),
            tokens: RefCell::default(),
            cancel: vec![Cell::new(false); users],
            calling: vec![Cell::new(false); users],
            ending: Cell::new(false),
            violation: RefCell::default(),
            seqs: RefCell::default(),
        });
        harness.note(|| format!("{:?}", harness.plan));
        let mut tasks = Tasks::default();
        for id in 0..users {
            tasks.add(
                TaskKind::User(id),
                Box::pin(user::user(harness.clone(), id)),
            );
        }
        Self {
            harness,
            tasks,
            server_clock,
            client_clocks,
            steps: 0,
            fingerprint: seed,
        }
    }

    fn run_all(&mut self) {
        while self.steps < STEPS && self.tasks.has_callers() && self.is_ok() {
            if !self.inject() && !self.step(true) {
                break;
            }
        }
        self.heal();
        if self.is_ok() {
            self.finish_users();
        }
        if self.is_ok() {
            self.run_until_idle("after the last call");
        }
        self.deliver_late_copies();
    }

    pub(super) fn is_ok(&self) -> bool {
        self.harness.violation.borrow().is_none()
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        self.harness.rng.borrow_mut().below(bound)
    }

    pub(super) fn record_choice(&mut self, choice: u64) {
        self.steps += 1;
        hook::next_step();
        let mixed = (self.fingerprint ^ choice).wrapping_mul(0x0100_0000_01b3);
        self.fingerprint = mixed.rotate_left(23);
        if self.steps > MAX_STEPS {
            self.harness
                .violated("the run does not come to an end".to_owned());
        }
    }

    /// Runs a task, delivers a message, or advances time. `false` if nothing is left to do.
    pub(super) fn step(&mut self, faults: bool) -> bool {
        let ready = self.tasks.ready();
        let open = self.arrivable(false);
        let weight = ready.len() * self.harness.plan.task_weight;
        let total = weight + open.len();
        if total == 0 {
            // A late message may arrive now or later.
            let late = self.arrivable(true);
            if faults && !late.is_empty() && self.below(2) == 0 {
                let at = late[self.below(late.len())];
                self.arrive(at, false);
            } else if !self.advance_to_next_timer() {
                return false;
            }
        } else {
            let choice = self.below(total);
            if choice < weight {
                self.poll(ready[choice / self.harness.plan.task_weight]);
            } else {
                self.arrive(open[choice - weight], faults);
            }
        }
        self.harness.check();
        true
    }

    fn poll(&mut self, at: usize) {
        let kind = self.tasks.kind(at);
        self.record_choice(match kind {
            TaskKind::User(n) => n as u64,
            TaskKind::Closer(n) => 1_000 + n as u64,
            TaskKind::Keeper(n) => 2_000 + n as u64,
        });
        self.harness.net.state().running = kind;
        self.harness.note(|| format!("run {kind}"));
        let over = self.tasks.poll(at);
        if over {
            self.harness.note(|| format!("{kind} has ended"));
        }
        self.tasks.adopt();
        if hook::take_refused() {
            self.harness.note(|| "a spawn was refused".to_owned());
            (0..self.client_clocks.len()).for_each(|client| self.trouble(client));
        }
    }

    /// Indices of the messages that can arrive now.
    fn arrivable(&self, late: bool) -> Vec<usize> {
        let net = self.harness.net.state();
        let can = |(at, message): (usize, &Message)| {
            let held = net.clients[message.client].cut == Cut::Held;
            (message.late == late && !held).then_some(at)
        };
        net.messages.iter().enumerate().filter_map(can).collect()
    }

    /// Advances time to the next timer. `false` if there is none.
    pub(super) fn advance_to_next_timer(&mut self) -> bool {
        let rates = &self.harness.plan.rates;
        let next = self
            .client_clocks
            .iter()
            .zip(rates)
            .filter_map(|(client_clock, rate)| {
                let left = client_clock.next_deadline()?.since(client_clock.now());
                // Rounded up: the client's clock must reach it.
                Some(left * 1000 / *rate + Duration::from_nanos(2))
            });
        match next.min() {
            Some(span) => {
                self.advance(span, false);
                true
            }
            None => false,
        }
    }

    /// Advances time. Clients with messages under way are delayed by it; with `delays`, all clients.
    pub(super) fn advance(&mut self, span: Duration, delays: bool) {
        self.record_choice(3_000);
        self.harness.note(|| format!("{span:?} pass"));
        self.server_clock.advance(span);
        for (client_clock, rate) in self.client_clocks.iter().zip(&self.harness.plan.rates) {
            client_clock.advance(span * *rate / 1000);
        }
        let mut net = self.harness.net.state();
        for at in 0..self.client_clocks.len() {
            let in_flight = net.messages.iter().any(|message| message.client == at);
            if delays || in_flight || net.clients[at].cut != Cut::No {
                net.clients[at].trouble = Some(self.client_clocks[at].now());
            }
        }
    }

    /// Ends all disturbances; half of the late copies stay late.
    fn heal(&mut self) {
        self.harness.note(|| "the disturbances end".to_owned());
        self.harness.ending.set(true);
        hook::refuse(0);
        let mut net = self.harness.net.state();
        for client in &mut net.clients {
            client.cut = Cut::No;
        }
        let mut rng = self.harness.rng.borrow_mut();
        for message in &mut net.messages {
            let awaited = !matches!(message.payload, Payload::Request(_, None));
            if message.late && (awaited || rng.below(2) == 0) {
                message.late = false;
            }
        }
    }
}
