//! What the operations do inside a transaction.

use clinch_core::machine::{Entry, Phase};
use clinch_core::store::{Claim, ClaimReply, LockView, LostReason, RenewReply, Renewal};
use clinch_core::{ClientId, Name, Result};

use crate::error::{Fail, Step};
use crate::events;
use crate::tx::{Scope, Tx};

/// A claim, and the processes whose death is worth another one.
pub(crate) fn run_claim(tx: &mut Tx<'_>, claim: &Claim, pid: u32) -> Step<(ClaimReply, Vec<u32>)> {
    let reply = tx.on_name(&claim.name, |name| -> Result<_> {
        let mut reply = name.step(|state, now, seq, out| state.claim(claim, now, seq, out))?;
        let waits =
            |reply: &ClaimReply| matches!(reply, ClaimReply::Queued(_) | ClaimReply::Busy(_));
        // Again and again: the dead may have been waiting behind the dead.
        while waits(&reply) && name.bury_holders() {
            reply = name.step(|state, now, seq, out| state.claim(claim, now, seq, out))?;
            // The answer says it; no wake is needed.
            name.out
                .granted
                .retain(|woken| woken.request != claim.request);
        }
        let ahead = match reply {
            ClaimReply::Queued(_) => processes_ahead(name, claim, pid),
            _ => Vec::new(),
        };
        Ok((reply, ahead))
    })??;
    match reply.0 {
        ClaimReply::Granted(_) | ClaimReply::Queued(_) => {
            tx.mine.add(claim.request, claim.name.clone());
        }
        ClaimReply::Busy(_) | ClaimReply::Gone(_) => {
            tx.mine.remove(claim.request);
        }
    }
    Ok(reply)
}

/// The next one ahead in the queue, or the holders for the head of it: if each waiter watches only
/// these, a death wakes one and not all.
fn processes_ahead(name: &Scope<'_>, claim: &Claim, pid: u32) -> Vec<u32> {
    let entries = &name.state.entries;
    let Some(own) = entries.iter().find(|e| e.request == claim.request) else {
        return Vec::new();
    };
    let waits_before = |e: &&Entry| e.phase == Phase::Waiting && e.ticket < own.ticket;
    let before = entries.iter().rfind(waits_before);
    let mut pids: Vec<u32> = match before {
        Some(waiter) => vec![waiter.client.pid],
        None => {
            let holders = entries.iter().filter(|e| e.seq().is_some());
            holders.map(|e| e.client.pid).collect()
        }
    };
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|other| *other != pid);
    pids
}

pub(crate) fn run_renewal(tx: &mut Tx<'_>, renewal: &Renewal) -> Step<RenewReply> {
    let renewed = tx.on_name(&renewal.hold.name, |name| {
        name.step(|state, now, seq, out| state.renew(renewal, now, seq, out))
    });
    let reply = match renewed {
        // One damaged record must not cost the other holds their renewal; and what cannot be read
        // can never be renewed.
        Err(Fail::Refused(error)) => {
            tracing::warn!(%error, "a hold cannot be renewed");
            RenewReply::Lost(LostReason::Forgotten)
        }
        other => other?,
    };
    if let RenewReply::Lost(_) = reply {
        tx.mine.remove(renewal.hold.request);
    }
    Ok(reply)
}

/// What an operator sees of a name, without the dead.
pub(crate) fn view(name: &mut Scope<'_>) -> Option<LockView> {
    name.bury_all();
    name.state.view(name.now)
}

/// Ends what this client still has at the store, as its holders would.
pub(crate) fn end_own(tx: &mut Tx<'_>, me: ClientId) -> Step<()> {
    events::unsubscribe(tx, me)?;
    for name in tx.mine.names() {
        let ended = tx.on_name(&name, |name| {
            let own = |e: &&Entry| e.client.id == me && !e.is_delayed();
            let left: Vec<Entry> = name.state.entries.iter().filter(own).cloned().collect();
            for entry in left {
                let claim = claim_of(&name.state.name, &entry);
                name.step(|state, now, seq, out| state.withdraw(&claim, now, seq, out));
            }
        });
        match ended {
            // A damaged record of one name must not keep the others from being released.
            Ok(()) | Err(Fail::Refused(_)) => {}
            Err(Fail::Sql(error)) => return Err(Fail::Sql(error)),
        }
    }
    tx.mine.remove_all();
    Ok(())
}

fn claim_of(name: &Name, entry: &Entry) -> Claim {
    Claim {
        name: name.clone(),
        request: entry.request,
        owner: entry.owner.clone(),
        client: entry.client.clone(),
        units: entry.units,
        limit: entry.limit,
        lease: entry.lease,
        lock_delay: entry.lock_delay,
        label: entry.label.clone(),
        value: entry.value.clone(),
        queue: true,
    }
}
