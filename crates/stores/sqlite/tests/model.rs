//! Random operations give the same answers here as on the reference store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clinch_core::memory::MemoryStore;
use clinch_core::store::{
    Claim, ClaimReply, Evicted, Hold, LockView, OpenContext, ReleaseReply, RenewReply, Renewal,
    Store,
};
use clinch_core::{Clock, Identity};
use common::{Folder, claim, name};
use proptest::prelude::*;

const NAMES: [&str; 2] = ["a", "b/c"];
const CLIENTS: usize = 2;

#[derive(Debug, Clone)]
enum Op {
    Claim {
        client: usize,
        name: usize,
        units: u32,
        limit: u32,
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
        1..4u32,
        1..40u64,
        0..3u64,
        any::<bool>(),
    )
        .prop_map(|(client, name, units, lease, delay, queue)| Op::Claim {
            client,
            name,
            units: if name == 0 { 1 } else { units },
            limit: if name == 0 && units < 3 { 1 } else { 3 },
            lease,
            delay: delay * 10,
            queue,
        });
    let op = prop_oneof![
        6 => new,
        3 => (0..100usize).prop_map(Op::Repeat),
        2 => (0..100usize, any::<bool>()).prop_map(|(n, v)| Op::Renew(n, v)),
        5 => (0..100usize).prop_map(Op::Release),
        1 => (0..100usize).prop_map(Op::ReleaseOther),
        2 => (0..100usize).prop_map(Op::Withdraw),
        1 => (0..100usize, any::<bool>()).prop_map(|(n, all)| Op::Evict(n, all)),
        2 => (0..100usize).prop_map(Op::Check),
        1 => (0..NAMES.len()).prop_map(Op::Look),
        1 => Just(Op::List),
        3 => (1..30u64).prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 1..60)
}

/// Answers with sequence numbers replaced by their order of appearance.
#[derive(Default)]
struct Renamed(HashMap<u64, u64>);

impl Renamed {
    fn seq(&mut self, seq: u64) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(seq).or_insert(next)
    }

    fn claim(&mut self, reply: clinch_core::Result<ClaimReply>) -> String {
        match reply {
            Ok(ClaimReply::Granted(mut grant)) => {
                if let Some(before) = &mut grant.predecessor {
                    before.seq = self.seq(before.seq);
                }
                grant.seq = self.seq(grant.seq);
                format!("{grant:?}")
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("{:?}", error.kind()),
        }
    }

    fn view(&mut self, view: &LockView) -> String {
        let mut view = view.clone();
        for party in view.holders.iter_mut() {
            let seq = party.token.map(|token| self.seq(token.seq()));
            party.token = seq.and_then(|seq| clinch_core::Token::new(seq, 0));
        }
        format!("{view:?}")
    }
}

/// One store of each kind for each client.
struct Side {
    stores: Vec<Box<dyn Store>>,
    renamed: Renamed,
    /// The numbers that each claim got on this side.
    seqs: HashMap<u128, u64>,
}

impl Side {
    async fn claim(&mut self, client: usize, claim: &Claim) -> String {
        let reply = self.stores[client].claim(claim).await;
        if let Ok(ClaimReply::Granted(grant)) = &reply {
            self.seqs.insert(claim.request.as_u128(), grant.seq);
        }
        self.renamed.claim(reply)
    }

    fn hold(&self, claim: &Claim) -> Hold {
        Hold {
            name: claim.name.clone(),
            request: claim.request,
            seq: self
                .seqs
                .get(&claim.request.as_u128())
                .copied()
                .unwrap_or(1),
        }
    }

    async fn apply(&mut self, op: &Op, client: usize, claim: Option<&Claim>) -> String {
        let store = &self.stores[client];
        match (op, claim) {
            (Op::Claim { .. } | Op::Repeat(_), Some(claim)) => self.claim(client, claim).await,
            (Op::Renew(_, value), Some(claim)) => {
                let renewal = Renewal {
                    hold: self.hold(claim),
                    lease: Duration::from_secs(20),
                    value: value.then(|| "v".into()),
                };
                let replies: Vec<RenewReply> = store.renew(&[renewal]).await.unwrap();
                format!("{replies:?}")
            }
            (Op::Release(_), Some(claim)) => {
                let reply: ReleaseReply = store.release(&self.hold(claim)).await.unwrap();
                format!("{reply:?}")
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
                let seqs: Vec<u64> = seqs.into_iter().map(|s| self.renamed.seq(s)).collect();
                format!("{seqs:?}")
            }
            (Op::Check(_), Some(claim)) => {
                let hold = self.hold(claim);
                format!("{:?}", store.check(&hold.name, hold.seq).await.unwrap())
            }
            (Op::Look(at), _) => {
                let view = store.inspect(&name(NAMES[*at])).await.unwrap();
                view.map(|view| self.renamed.view(&view))
                    .unwrap_or_default()
            }
            (Op::List, _) => {
                let views = store.list("").await.unwrap();
                views.iter().map(|view| self.renamed.view(view)).collect()
            }
            _ => String::new(),
        }
    }
}

async fn compare(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let folder = Folder::new();
    let (clock, hand) = Clock::manual();
    let identities: Vec<Arc<Identity>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let context = |identity: &Arc<Identity>| OpenContext {
        namespace: "clinch".into(),
        identity: identity.clone(),
        clock: clock.clone(),
    };
    let first = MemoryStore::new(context(&identities[0]));
    let second = first.sibling(context(&identities[1]));
    let url = format!("sqlite:{}", folder.db().display()).parse().unwrap();
    let open = |identity| {
        let store = clinch_sqlite::SqliteStore::open(&url, context(identity)).unwrap();
        Box::new(store) as Box<dyn Store>
    };
    let side = |stores| Side {
        stores,
        renamed: Renamed::default(),
        seqs: HashMap::new(),
    };
    let mut model = side(vec![Box::new(first), Box::new(second)]);
    let mut real = side(identities.iter().map(open).collect());
    let mut claims: Vec<(usize, Claim)> = Vec::new();
    for op in ops {
        if let Op::Pass(seconds) = op {
            hand.advance(Duration::from_secs(seconds));
            continue;
        }
        if let Op::Claim {
            client,
            name,
            units,
            limit,
            lease,
            delay,
            queue,
        } = op
        {
            let mut new = claim(&identities[client], NAMES[name]);
            (new.units, new.limit, new.queue) = (units.min(limit), limit, queue);
            new.lease = Duration::from_secs(lease);
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
        let client = chosen.map_or(0, |(client, _)| *client);
        let claim = chosen.map(|(_, claim)| claim);
        let expected = model.apply(&op, client, claim).await;
        let answered = real.apply(&op, client, claim).await;
        prop_assert_eq!(answered, expected, "{:?}", op);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_are_those_of_the_reference(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(ops))?;
    }
}
