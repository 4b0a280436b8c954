//! One run: from a seed to an end, or to a broken promise.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::lab::{Lab, Side};
use super::net::{Cut, Net};
use super::plan::Plan;
use super::rng::Rng;
use super::store::FarStore;
use super::tasks::{Kind, Tasks};
use super::wire::{Flight, What};
use super::{hook, user};
use crate::memory::MemoryStore;
use crate::store::OpenContext;
use crate::{Clinch, Clock, ManualClock};

/// After so many steps the disturbances end.
const STEPS: u64 = 220;
/// A run that takes more goes round in circles.
const MOST_STEPS: u64 = 20_000;

/// What a run came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) wrong: Option<String>,
    pub(super) steps: u64,
    /// A number made of all choices: the same for the same seed.
    pub(super) fingerprint: u64,
}

pub(super) struct Run {
    pub(super) lab: Rc<Lab>,
    pub(super) tasks: Tasks,
    pub(super) server: Arc<ManualClock>,
    pub(super) hands: Vec<Arc<ManualClock>>,
    pub(super) steps: u64,
    fingerprint: u64,
}

/// Runs one seed. What [`hook::leave`] gives afterwards are its steps.
pub(super) fn run(seed: u64, trace: bool) -> Outcome {
    hook::enter(seed, trace);
    let mut run = Run::new(seed);
    run.whole();
    let outcome = Outcome {
        wrong: run.lab.wrong.take(),
        steps: run.steps,
        fingerprint: run.fingerprint,
    };
    drop(run);
    // What was dropped may have spawned once more.
    while !hook::take_spawned().is_empty() {}
    outcome
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed.rotate_left(32));
        let plan = Plan::draw(&mut rng);
        let (clock, server) = Clock::manual();
        let context = |clock: &Clock| OpenContext::new("explore").with_clock(clock.clone());
        let store = MemoryStore::new(context(&clock));
        let (mut contexts, mut servers, mut hands) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.clients {
            let here = context(&clock);
            servers.push(Arc::new(store.sibling(here.clone())));
            let (clock, hand) = Clock::manual();
            contexts.push(here.with_clock(clock));
            hands.push(hand);
        }
        let net = Arc::new(Net::new(servers, clock.clone()));
        let side = |(at, context): (usize, OpenContext)| {
            let clock = context.clock.clone();
            let store = Arc::new(FarStore::new(at, net.clone(), clock.clone()));
            let clinch = Clinch::builder(store.clone(), context)
                .patience(plan.patience)
                .hand_over(plan.hand_over)
                .build();
            Side {
                clinch,
                store,
                clock,
                closing: Cell::new(false),
            }
        };
        let sides = contexts.into_iter().enumerate().map(side).collect();
        let users = plan.users;
        let lab = Rc::new(Lab {
            plan,
            rng: RefCell::new(rng),
            sides,
            net,
            store,
            held: RefCell::default(),
            tokens: RefCell::default(),
            cancel: vec![Cell::new(false); users],
            calling: vec![Cell::new(false); users],
            ending: Cell::new(false),
            wrong: RefCell::default(),
            seqs: RefCell::default(),
        });
        lab.note(|| format!("{:?}", lab.plan));
        let mut tasks = Tasks::default();
        for me in 0..users {
            tasks.add(Kind::User(me), Box::pin(user::user(lab.clone(), me)));
        }
        Self {
            lab,
            tasks,
            server,
            hands,
            steps: 0,
            fingerprint: seed,
        }
    }

    fn whole(&mut self) {
        while self.steps < STEPS && self.tasks.has_callers() && self.goes_on() {
            if !self.disturb() && !self.step(true) {
                break;
            }
        }
        self.heal();
        if self.goes_on() {
            self.let_users_end();
        }
        if self.goes_on() {
            self.let_it_get_quiet("after the last call");
        }
        self.late_copies();
    }

    pub(super) fn goes_on(&self) -> bool {
        self.lab.wrong.borrow().is_none()
    }

    pub(super) fn below(&self, bound: usize) -> usize {
        self.lab.rng.borrow_mut().below(bound)
    }

    pub(super) fn mark(&mut self, choice: u64) {
        self.steps += 1;
        hook::next_step();
        let mixed = (self.fingerprint ^ choice).wrapping_mul(0x0100_0000_01b3);
        self.fingerprint = mixed.rotate_left(23);
        if self.steps > MOST_STEPS {
            self.lab
                .violated("the run does not come to an end".to_owned());
        }
    }

    /// Runs a task, lets a message arrive, or lets time pass. `false` when nothing is left to do.
    pub(super) fn step(&mut self, faults: bool) -> bool {
        let ready = self.tasks.ready();
        let open = self.arrivable(false);
        let weight = ready.len() * self.lab.plan.eager;
        let total = weight + open.len();
        if total == 0 {
            // What is late may come now, or later.
            let late = self.arrivable(true);
            if faults && !late.is_empty() && self.below(2) == 0 {
                let at = late[self.below(late.len())];
                self.arrive(at, false);
            } else if !self.idle() {
                return false;
            }
        } else {
            let choice = self.below(total);
            if choice < weight {
                self.poll(ready[choice / self.lab.plan.eager]);
            } else {
                self.arrive(open[choice - weight], faults);
            }
        }
        self.lab.check();
        true
    }

    fn poll(&mut self, at: usize) {
        let kind = self.tasks.kind(at);
        self.mark(match kind {
            Kind::User(n) => n as u64,
            Kind::Closer(n) => 1_000 + n as u64,
            Kind::Keeper(n) => 2_000 + n as u64,
        });
        self.lab.net.state().running = kind;
        self.lab.note(|| format!("run {kind}"));
        let over = self.tasks.poll(at);
        if over {
            self.lab.note(|| format!("{kind} has ended"));
        }
        self.tasks.adopt();
        if hook::take_refused() {
            self.lab.note(|| "a spawn was refused".to_owned());
            (0..self.hands.len()).for_each(|client| self.trouble(client));
        }
    }

    /// The places of messages that can arrive now.
    fn arrivable(&self, late: bool) -> Vec<usize> {
        let net = self.lab.net.state();
        let can = |(at, flight): (usize, &Flight)| {
            let held = net.clients[flight.client].cut == Cut::Held;
            (flight.late == late && !held).then_some(at)
        };
        net.flights.iter().enumerate().filter_map(can).collect()
    }

    /// Nothing can happen before some time has passed: lets just so much pass. `false` when nothing
    /// will ever happen.
    pub(super) fn idle(&mut self) -> bool {
        let rates = &self.lab.plan.rates;
        let next = self.hands.iter().zip(rates).filter_map(|(hand, rate)| {
            let left = hand.next()?.since(hand.now());
            // Rounded up: the client's clock must have reached it.
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

    /// Lets time pass. Who has something to do or under way meanwhile is delayed by it.
    pub(super) fn advance(&mut self, span: Duration, delays: bool) {
        self.mark(3_000);
        self.lab.note(|| format!("{span:?} pass"));
        self.server.advance(span);
        for (hand, rate) in self.hands.iter().zip(&self.lab.plan.rates) {
            hand.advance(span * *rate / 1000);
        }
        let mut net = self.lab.net.state();
        for at in 0..self.hands.len() {
            let flying = net.flights.iter().any(|flight| flight.client == at);
            if delays || flying || net.clients[at].cut != Cut::No {
                net.clients[at].trouble = Some(self.hands[at].now());
            }
        }
    }

    /// Ends all disturbances; half of what is late stays so.
    fn heal(&mut self) {
        self.lab.note(|| "the disturbances end".to_owned());
        self.lab.ending.set(true);
        hook::refuse(0);
        let mut net = self.lab.net.state();
        for client in &mut net.clients {
            client.cut = Cut::No;
        }
        let mut rng = self.lab.rng.borrow_mut();
        for flight in &mut net.flights {
            let awaited = !matches!(flight.what, What::Request(_, None));
            if flight.late && (awaited || rng.below(2) == 0) {
                flight.late = false;
            }
        }
    }
}
