//! Steps on holds: renew, release, withdraw, check, evict.

use std::collections::HashMap;
use std::sync::Arc;

use clinch_core::store::{Claim, Evicted, Hold, LostReason, RenewReply, Renewal};
use clinch_core::{Effect, Name, Result};

use super::nodes::{Step, too_few};
use super::round::Quorum;
use super::tally::Tally;
use crate::record::{Reply, step};
use crate::renew::{self, Limits};

/// Extends holds at all servers; each is held if `need` servers reply so. A hold that is undecided when the
/// time of the batch is over is unknown, and does not affect the others.
pub(crate) async fn renew(quorum: &Quorum, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
    let nodes = &quorum.nodes;
    let limits = Limits::of(renewals);
    let send = |renewal: &Renewal| {
        let step = Step::Renew(renewal.clone(), limits.reply);
        nodes.send_all(&renewal.hold.name, &step)
    };
    let sent: Vec<_> = renewals.iter().map(send).collect();
    let mut deadline = limits.start();
    let mut outcomes = Vec::with_capacity(sent.len());
    for mut answers in sent {
        let mut tally = Tally::default();
        deadline.within(tally.collect(nodes, &mut answers)).await;
        let verdict = tally.or_unknown(nodes);
        outcomes.push(verdict.map(|verdict| match verdict {
            Ok(()) => RenewReply::Held,
            Err(reason) => RenewReply::Lost(reason),
        }));
    }
    renew::each_or_error(outcomes)
}

/// Releases a hold at all servers; it was held if `need` of them had it.
pub(crate) async fn release(quorum: &Arc<Quorum>, hold: &Hold) -> Result<Result<(), LostReason>> {
    let nodes = &quorum.nodes;
    // The ledger's entry of the hold, if it is this client's own.
    let visit = quorum.ledger.known(hold.request);
    let visit = visit.filter(|visit| visit.state().token == Some(hold.seq));
    let ours = visit.is_some();
    let mut tally = Tally {
        yes: visit
            .as_ref()
            .map_or(Vec::new(), |visit| visit.state().released.clone()),
        ..Tally::default()
    };
    let mut answers = nodes.send_to(&hold.name, |at| {
        (!tally.yes.contains(&at)).then(|| Step::Release(hold.clone()))
    });
    // Cancelled here, nothing is lost: the steps are sent, and the engine releases again.
    tally.collect(nodes, &mut answers).await;
    if let Some(visit) = &visit {
        visit.state().released.clone_from(&tally.yes);
    }
    let verdict = tally.or_unknown(nodes)?;
    if let Some(visit) = &visit {
        let mut state = visit.state();
        (state.token, state.done) = (None, true);
    }
    // If it is ours, nothing of the request may stay, not even a prepared claim with another number.
    let rest = match ours {
        true => Step::Withdraw(hold.request),
        false => Step::Release(hold.clone()),
    };
    for (at, _) in tally.no.iter().filter(|_| ours) {
        quorum
            .background
            .insist(nodes, *at, &hold.name, rest.clone());
    }
    for (at, _) in &tally.failed {
        quorum
            .background
            .insist(nodes, *at, &hold.name, rest.clone());
    }
    let (later, name) = (quorum.clone(), hold.name.clone());
    quorum.background.handle(answers, move |at, answer| {
        if match answer {
            Ok(Reply::Yes) => false,
            Ok(_) => ours,
            Err(_) => true,
        } {
            later
                .background
                .insist(&later.nodes, at, &name, rest.clone());
        }
    });
    Ok(verdict)
}

/// Ends a request at all servers; done when `need` of them have replied.
pub(crate) async fn withdraw(quorum: &Arc<Quorum>, claim: &Claim) -> Result<()> {
    let nodes = &quorum.nodes;
    if let Some(visit) = quorum.ledger.known(claim.request) {
        let mut state = visit.state();
        // A round in progress finds that it is over.
        state.round += 1;
        (state.token, state.done) = (None, true);
    }
    let step = Step::Withdraw(claim.request);
    let mut answers = nodes.send_all(&claim.name, &step);
    let tally = Tally::of(nodes, &mut answers).await;
    for (at, _) in &tally.failed {
        quorum
            .background
            .insist(nodes, *at, &claim.name, step.clone());
    }
    let (later, name) = (quorum.clone(), claim.name.clone());
    quorum.background.handle(answers, move |at, answer| {
        if answer.is_err() {
            later
                .background
                .insist(&later.nodes, at, &name, step.clone());
        }
    });
    tally.or_unknown(nodes).map(|_| ())
}

/// Whether `need` servers have this hold.
pub(crate) async fn check(quorum: &Quorum, name: &Name, seq: u64) -> Result<bool> {
    let nodes = &quorum.nodes;
    let mut answers = nodes.send_all(name, &Step::Other(step::check(seq)));
    let tally = Tally::of(nodes, &mut answers).await;
    Ok(tally.or_unknown(nodes)?.is_ok())
}

/// Breaks holds and ends delays at all servers; returns those that cannot have `need` servers any more.
pub(crate) async fn evict(quorum: &Quorum, name: &Name, seq: Option<u64>) -> Result<Evicted> {
    let nodes = &quorum.nodes;
    let mut answers = nodes.send_all(name, &Step::Other(step::evict(seq)));
    let (mut broken, mut delays) = (HashMap::new(), HashMap::new());
    let (mut answered, mut failed) = (0, None);
    while let Some((_, answer)) = answers.next().await {
        match answer {
            Ok(Reply::Evicted(evicted)) => {
                answered += 1;
                for seq in evicted.seqs {
                    *broken.entry(seq).or_insert(0) += 1;
                }
                for seq in evicted.delays {
                    *delays.entry(seq).or_insert(0) += 1;
                }
            }
            Ok(_) => {}
            Err(error) => failed = Some(error),
        }
    }
    if answered < nodes.need {
        return Err(too_few(answered, nodes, failed).with_effect(Effect::Possible));
    }
    let enough = nodes.all.len() - nodes.need + 1;
    let ended = |counts: HashMap<u64, usize>| {
        let certain = counts.into_iter().filter(|(_, servers)| *servers >= enough);
        let mut seqs: Vec<u64> = certain.map(|(seq, _)| seq).collect();
        seqs.sort_unstable();
        seqs
    };
    Ok(Evicted::new(ended(broken), ended(delays)))
}
