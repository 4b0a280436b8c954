//! One side of the comparison: its stores, and its answers in words that both share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use clinch_core::store::{
    Admin, Claim, ClaimReply, Evicted, Grant, Hold, LockView, PartyView, ReleaseReply, Renewal,
};
use clinch_core::{Name, Token};

use super::Time;
use super::ops::{NAMES, Op};

/// What a step answered, in words that both sides share.
///
/// ```
/// use clinch_testkit::model::Said;
/// // A store that also counts waiters who have gone agrees if it counts more.
/// fn agree(real: &Said, model: &Said) -> bool {
///     match (real, model) {
///         (Said::Queued(real), Said::Queued(model)) => real >= model,
///         _ => real == model,
///     }
/// }
/// assert!(agree(&Said::Queued(2), &Said::Queued(1)));
/// ```
#[derive(Debug, PartialEq)]
pub enum Said {
    /// All of the answer.
    Text(String),
    /// Its place among the numbers, and the place of its predecessor, if it is a mutex.
    Granted(u64, Option<Option<u64>>),
    /// How many are ahead.
    Queued(usize),
    /// The answer to a release with a number that is not its own.
    NotReleased(ReleaseReply),
}

impl Said {
    /// Whether it means the same as what the reference said, for a store that knows predecessors for
    /// another time than the reference, and that gives the reason of a refused release only to one with the
    /// right number.
    ///
    /// ```
    /// use clinch_testkit::model::Said;
    /// assert!(Said::Granted(2, Some(None)).agrees_roughly(&Said::Granted(2, Some(Some(1)))));
    /// assert!(!Said::Granted(2, Some(Some(0))).agrees_roughly(&Said::Granted(2, Some(Some(1)))));
    /// assert!(!Said::Granted(3, None).agrees_roughly(&Said::Granted(2, None)));
    /// ```
    pub fn agrees_roughly(&self, model: &Self) -> bool {
        match (self, model) {
            (Self::Granted(real, Some(before)), Self::Granted(model, Some(expected))) => {
                real == model && (before == expected || before.is_none() || expected.is_none())
            }
            (Self::NotReleased(real), Self::NotReleased(model)) => {
                real.was_held() == model.was_held()
            }
            _ => self == model,
        }
    }
}

/// One store for each client, and the numbers by their order of appearance.
pub(super) struct Side {
    pub(super) stores: Vec<Arc<dyn Admin>>,
    time: Time,
    exact: bool,
    order: HashMap<u64, u64>,
    seqs: HashMap<u128, u64>,
    waiting: HashSet<u128>,
}

impl Side {
    pub(super) fn new(stores: Vec<Arc<dyn Admin>>, time: Time, exact: bool) -> Self {
        Self {
            stores,
            time,
            exact,
            order: HashMap::new(),
            seqs: HashMap::new(),
            waiting: HashSet::new(),
        }
    }

    /// Whether it has heard that this was granted.
    pub(super) fn heard(&self, claim: &Claim) -> bool {
        self.seqs.contains_key(&claim.request.as_u128())
    }

    /// Whether the last that it heard was to wait.
    pub(super) fn waits(&self, claim: &Claim) -> bool {
        self.waiting.contains(&claim.request.as_u128())
    }

    pub(super) async fn apply(&mut self, op: &Op, client: usize, claim: Option<&Claim>) -> Said {
        let store = self.stores[client].clone();
        Said::Text(match (op, claim) {
            (Op::Claim(_) | Op::Repeat(_), Some(claim)) => {
                return self.claim(client, claim).await;
            }
            (Op::Renew(_, value), Some(claim)) => {
                let renewal = Renewal {
                    hold: self.hold(claim),
                    lease: self.time.renewal(),
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
                return Said::NotReleased(store.release(&hold).await.unwrap());
            }
            (Op::Withdraw(_), Some(claim)) => {
                store.withdraw(claim).await.unwrap();
                String::new()
            }
            (Op::Evict(_, all), Some(claim)) => {
                let hold = self.hold(claim);
                let seq = (!all).then_some(hold.seq);
                let Evicted { seqs, .. } = store.evict(&hold.name, seq).await.unwrap();
                let mut seqs: Vec<u64> = seqs.into_iter().map(|s| self.place(s)).collect();
                if !self.exact {
                    seqs.sort_unstable();
                }
                format!("{seqs:?}")
            }
            (Op::Check(_), Some(claim)) => {
                let hold = self.hold(claim);
                format!("{:?}", store.check(&hold.name, hold.seq).await.unwrap())
            }
            (Op::Look(at), _) => {
                let name = Name::new(NAMES[*at]).unwrap();
                let view = store.inspect(&name).await.unwrap();
                view.map(|view| self.view(view)).unwrap_or_default()
            }
            (Op::List, _) => {
                let views = store.list("").await.unwrap();
                views.into_iter().map(|view| self.view(view)).collect()
            }
            _ => String::new(),
        })
    }

    async fn claim(&mut self, client: usize, claim: &Claim) -> Said {
        let request = claim.request.as_u128();
        match self.stores[client].claim(claim).await {
            Ok(ClaimReply::Granted(grant)) => {
                self.seqs.insert(request, grant.seq);
                self.waiting.remove(&request);
                self.granted(claim, grant)
            }
            Ok(ClaimReply::Queued(queued)) => {
                self.waiting.insert(request);
                if self.exact {
                    Said::Text(format!("{queued:?}"))
                } else {
                    Said::Queued(queued.ahead)
                }
            }
            Ok(ClaimReply::Busy(_)) if !self.exact => {
                self.refused(client, claim, "busy".into()).await
            }
            Ok(other) => self.refused(client, claim, format!("{other:?}")).await,
            Err(error) => {
                self.refused(client, claim, format!("{:?}", error.kind()))
                    .await
            }
        }
    }

    fn granted(&mut self, claim: &Claim, mut grant: Grant) -> Said {
        if let Some(before) = &mut grant.predecessor {
            before.seq = self.place(before.seq);
        }
        grant.seq = self.place(grant.seq);
        if self.exact {
            return Said::Text(format!("{grant:?}"));
        }
        let before = grant.predecessor.map(|before| before.seq);
        Said::Granted(grant.seq, (claim.limit == 1).then_some(before))
    }

    /// After a refusal the reference looks at its queue at the next step only; let this be one,
    /// unless both do the same.
    async fn refused(&self, client: usize, claim: &Claim, said: String) -> Said {
        if self.exact {
            return Said::Text(said);
        }
        let renewal = Renewal::new(self.hold(claim), claim.lease);
        let nothing = self.stores[client].renew(&[renewal]).await.unwrap();
        Said::Text(format!("{said} {nothing:?}"))
    }

    fn hold(&self, claim: &Claim) -> Hold {
        let seq = self.seqs.get(&claim.request.as_u128());
        Hold::new(claim.name.clone(), claim.request, seq.copied().unwrap_or(1))
    }

    fn place(&mut self, seq: u64) -> u64 {
        let next = self.order.len() as u64;
        *self.order.entry(seq).or_insert(next)
    }

    fn view(&mut self, mut view: LockView) -> String {
        if self.exact {
            for party in view.holders.iter_mut().chain(&mut view.delayed) {
                let place = party.token.map(|token| self.place(token.seq()));
                party.token = place.and_then(|place| Token::new(place, 0));
            }
            return format!("{view:?}");
        }
        let mut holders: Vec<_> = view.holders.iter().map(|p| self.party(p)).collect();
        holders.sort();
        let waiters: Vec<_> = view.waiters.iter().map(|p| self.party(p)).collect();
        let delayed = view.delayed_for().is_some();
        format!(
            "{} {} {holders:?} {waiters:?} {delayed}",
            view.name, view.limit
        )
    }

    fn party(&mut self, party: &PartyView) -> String {
        let place = party.token.map(|token| self.place(token.seq()));
        format!("{place:?} {} {:?}", party.owner, party.value)
    }
}
