//! Random steps give the same answers on MariaDB as on the reference store, while time passes on both.
//!
//! The clock of the server runs on while a sequence is played, and that of the reference stands. So
//! leases end at half seconds and time passes in whole ones, and a sequence that a busy machine
//! plays too slowly is not judged further.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{
    Claim, ClaimReply, Evicted, Hold, LockView, OpenContext, PartyView, Renewal, Store,
};
use clinch_core::{Clock, Identity, Name, OwnerId};
use clinch_testkit::servers::{MariaDb, Step};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// A name that is a mutex or a semaphore, a semaphore, a read-write lock, and a mutex.
const NAMES: [&str; 4] = ["a", "b/c", "rw", "d"];
const CLIENTS: usize = 2;
/// More ends than a store remembers would be told apart by their order.
const MOST_CLAIMS: usize = 8;
/// Half of what lies between the end of a lease and the next look at it.
const SLOWEST: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
enum Op {
    Claim {
        client: usize,
        name: usize,
        units: u32,
        lease: u64,
        delay: u64,
        queue: bool,
    },
    Repeat(usize),
    Renew(usize, bool),
    Release(usize),
    ReleaseOther(usize),
    Withdraw(usize),
    Evict(usize, bool),
    Check(usize),
    Look(usize),
    List,
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let new = (
        0..CLIENTS,
        0..NAMES.len(),
        1..4_u32,
        1..40_u64,
        0..3_u64,
        any::<bool>(),
    )
        .prop_map(|(client, name, units, lease, delay, queue)| Op::Claim {
            client,
            name,
            units,
            lease,
            delay: delay * 10,
            queue,
        });
    let op = prop_oneof![
        6 => new,
        3 => (0..100_usize).prop_map(Op::Repeat),
        2 => (0..100_usize, any::<bool>()).prop_map(|(n, v)| Op::Renew(n, v)),
        4 => (0..100_usize).prop_map(Op::Release),
        1 => (0..100_usize).prop_map(Op::ReleaseOther),
        2 => (0..100_usize).prop_map(Op::Withdraw),
        1 => (0..100_usize, any::<bool>()).prop_map(|(n, all)| Op::Evict(n, all)),
        2 => (0..100_usize).prop_map(Op::Check),
        1 => (0..NAMES.len()).prop_map(Op::Look),
        1 => Just(Op::List),
        2 => (1..30_u64).prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 1..60)
}

/// A claim of its kind.
fn claim(identity: &Identity, name: usize, units: u32) -> Claim {
    let (units, limit) = match (name, units) {
        (0, 1 | 2) | (3, _) => (1, 1),
        (0 | 1, units) => (units, 3),
        // Readers and writers.
        (_, 1 | 2) => (1, u32::MAX),
        _ => (u32::MAX, u32::MAX),
    };
    Claim {
        name: Name::new(NAMES[name]).unwrap(),
        request: identity.request(),
        owner: OwnerId::new(identity.info().id.to_string()),
        client: identity.info().clone(),
        units,
        limit,
        lease: Duration::ZERO,
        lock_delay: Duration::ZERO,
        label: None,
        value: None,
        queue: true,
    }
}

/// What a step answered, in words that both sides share.
#[derive(Debug, PartialEq)]
enum Said {
    Text(String),
    /// The predecessor of a mutex, by its place among the numbers.
    Granted(u64, Option<Option<u64>>),
    Queued(usize),
}

/// One store for each client, and the numbers by their order of appearance.
struct Side {
    stores: Vec<Arc<dyn Store>>,
    order: HashMap<u64, u64>,
    seqs: HashMap<u128, u64>,
}

impl Side {
    fn new(stores: Vec<Arc<dyn Store>>) -> Self {
        Self {
            stores,
            order: HashMap::new(),
            seqs: HashMap::new(),
        }
    }

    fn place(&mut self, seq: u64) -> u64 {
        let next = self.order.len() as u64;
        *self.order.entry(seq).or_insert(next)
    }

    async fn claim(&mut self, client: usize, claim: &Claim) -> Said {
        match self.stores[client].claim(claim).await {
            Ok(ClaimReply::Granted(grant)) => {
                self.seqs.insert(claim.request.as_u128(), grant.seq);
                let before = grant.predecessor.map(|before| self.place(before.seq));
                let place = self.place(grant.seq);
                Said::Granted(place, (claim.limit == 1).then_some(before))
            }
            Ok(ClaimReply::Queued(queued)) => Said::Queued(queued.ahead),
            Ok(ClaimReply::Busy(_)) => self.refused(client, claim, "busy".into()).await,
            Ok(gone) => self.refused(client, claim, format!("{gone:?}")).await,
            Err(error) => {
                self.refused(client, claim, format!("{:?}", error.kind()))
                    .await
            }
        }
    }

    /// After a refusal the reference looks at its queue at the next step only; let this be one.
    async fn refused(&self, client: usize, claim: &Claim, said: String) -> Said {
        let renewal = Renewal {
            hold: self.hold(claim),
            lease: claim.lease,
            value: None,
        };
        let nothing = self.stores[client].renew(&[renewal]).await.unwrap();
        Said::Text(format!("{said} {nothing:?}"))
    }

    fn hold(&self, claim: &Claim) -> Hold {
        let seq = self.seqs.get(&claim.request.as_u128());
        Hold {
            name: claim.name.clone(),
            request: claim.request,
            seq: seq.copied().unwrap_or(1),
        }
    }

    fn party(&mut self, party: &PartyView) -> String {
        let place = party.token.map(|token| self.place(token.seq()));
        format!("{place:?} {} {:?}", party.owner, party.value)
    }

    fn view(&mut self, view: &LockView) -> String {
        let mut holders: Vec<_> = view.holders.iter().map(|p| self.party(p)).collect();
        holders.sort();
        let waiters: Vec<_> = view.waiters.iter().map(|p| self.party(p)).collect();
        let delayed = view.delayed_for.is_some();
        format!(
            "{} {} {holders:?} {waiters:?} {delayed}",
            view.name, view.limit
        )
    }

    async fn apply(&mut self, op: &Op, client: usize, claim: Option<&Claim>) -> Said {
        let store = self.stores[client].clone();
        Said::Text(match (op, claim) {
            (Op::Claim { .. } | Op::Repeat(_), Some(claim)) => {
                return self.claim(client, claim).await;
            }
            (Op::Renew(_, value), Some(claim)) => {
                let renewal = Renewal {
                    hold: self.hold(claim),
                    lease: Duration::from_millis(20_500),
                    value: value.then(|| "v".into()),
                };
                format!("{:?}", store.renew(&[renewal]).await.unwrap())
            }
            (Op::Release(_), Some(claim)) => {
                format!("{:?}", store.release(&self.hold(claim)).await.unwrap())
            }
            (Op::ReleaseOther(_), Some(claim)) => {
                let mut hold = self.hold(claim);
                hold.seq += 1;
                format!("{:?}", store.release(&hold).await.unwrap())
            }
            (Op::Withdraw(_), Some(claim)) => {
                store.withdraw(claim).await.unwrap();
                String::new()
            }
            (Op::Evict(_, all), Some(claim)) => {
                let hold = self.hold(claim);
                let seq = (!all).then_some(hold.seq);
                let Evicted { seqs } = store.evict(&hold.name, seq).await.unwrap();
                let mut seqs: Vec<u64> = seqs.into_iter().map(|s| self.place(s)).collect();
                seqs.sort_unstable();
                format!("{seqs:?}")
            }
            (Op::Check(_), Some(claim)) => {
                let hold = self.hold(claim);
                format!("{:?}", store.check(&hold.name, hold.seq).await.unwrap())
            }
            (Op::Look(at), _) => {
                let name = Name::new(NAMES[*at]).unwrap();
                let view = store.inspect(&name).await.unwrap();
                view.map(|view| self.view(&view)).unwrap_or_default()
            }
            (Op::List, _) => {
                let views = store.list("").await.unwrap();
                views.iter().map(|view| self.view(view)).collect()
            }
            _ => String::new(),
        })
    }
}

async fn compare(
    server: &MariaDb,
    parameters: &str,
    case: usize,
    ops: Vec<Op>,
) -> Result<bool, TestCaseError> {
    let (clock, hand) = Clock::manual();
    let identities: Vec<Arc<Identity>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let context = |identity: &Arc<Identity>, clock: &Clock| OpenContext {
        namespace: format!("n{case}").into(),
        identity: identity.clone(),
        clock: clock.clone(),
    };
    let first = MemoryStore::new(context(&identities[0], &clock));
    let second = first.sibling(context(&identities[1], &clock));
    let mut model = Side::new(vec![Arc::new(first), Arc::new(second)]);
    let url = format!("{}{parameters}", server.url()).parse().unwrap();
    let mut stores = Vec::new();
    for identity in &identities {
        let context = context(identity, &Clock::boot());
        stores.push(clinch_mysql::open(&url, context).await.unwrap());
    }
    let mut real = Side::new(stores);
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    let (boot, mut judged) = (Clock::boot(), true);
    let began = boot.now();
    for op in ops {
        if let Op::Pass(seconds) = op {
            let span = Duration::from_secs(seconds);
            hand.advance(span);
            server.step_clock(span, Step::Forward).unwrap();
            continue;
        }
        if let Op::Claim {
            client,
            name,
            units,
            lease,
            delay,
            queue,
        } = op
        {
            let so_far = claims
                .iter()
                .filter(|(_, c)| c.name.as_str() == NAMES[name]);
            if so_far.count() >= MOST_CLAIMS {
                continue;
            }
            let mut new = claim(&identities[client], name, units);
            new.queue = queue;
            new.lease = Duration::from_millis(lease * 1000 + 500);
            new.lock_delay = Duration::from_secs(delay);
            claims.push((client, new));
        }
        let chosen = match op {
            Op::Claim { .. } => claims.last(),
            Op::Repeat(n)
            | Op::Renew(n, _)
            | Op::Release(n)
            | Op::ReleaseOther(n)
            | Op::Withdraw(n)
            | Op::Evict(n, _)
            | Op::Check(n) => claims.get(n % claims.len().max(1)),
            _ => None,
        };
        // Nobody renews or releases what it has not heard to be granted.
        let known = |(_, claim): &&(usize, Claim)| real.seqs.contains_key(&claim.request.as_u128());
        if matches!(op, Op::Renew(..) | Op::Release(_) | Op::ReleaseOther(_))
            && !chosen.as_ref().is_some_and(known)
        {
            continue;
        }
        let client = chosen.map_or(0, |(client, _)| *client);
        let claim = chosen.map(|(_, claim)| claim);
        let expected = model.apply(&op, client, claim).await;
        let answered = real.apply(&op, client, claim).await;
        if boot.now().since(began) > SLOWEST {
            judged = false;
            break;
        }
        prop_assert!(
            answered == expected,
            "{op:?}: {answered:?} instead of {expected:?}"
        );
    }
    for store in real.stores {
        store.close().await.unwrap();
    }
    Ok(judged)
}

#[test]
fn answers_are_those_of_the_reference() {
    play("");
}

#[test]
fn answers_are_those_of_the_reference_in_the_dialect_of_mysql() {
    play("?dialect=mysql");
}

fn play(parameters: &str) {
    let server = MariaDb::with().clock_shim().start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let config = ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let (cases, judged) = (Cell::new(0), Cell::new(0));
    let outcome = TestRunner::new(config).run(&ops(), |ops| {
        cases.set(cases.get() + 1);
        if runtime.block_on(compare(&server, parameters, cases.get(), ops))? {
            judged.set(judged.get() + 1);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(judged.get() > 0, "no sequence was played in time");
}
