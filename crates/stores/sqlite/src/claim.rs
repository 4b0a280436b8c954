//! Claims.

use clinch_core::Result;
use clinch_core::machine::{Entry, Phase};
use clinch_core::store::{Claim, ClaimReply};

use crate::error::Step;
use crate::transaction::{Scope, Tx};

/// Claims a name. Returns also the processes whose death is a reason to repeat the claim.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim, pid: u32) -> Step<(ClaimReply, Vec<u32>)> {
    let reply = tx.on_name(&claim.name, |name| -> Result<_> {
        let mut reply = name.step(|state, now, seq, out| state.claim(claim, now, seq, out))?;
        let waits =
            |reply: &ClaimReply| matches!(reply, ClaimReply::Queued(_) | ClaimReply::Busy(_));
        // Repeated: behind a dead holder, the next grant may have gone to a dead waiter.
        while waits(&reply) && name.end_dead_holders() {
            reply = name.step(|state, now, seq, out| state.claim(claim, now, seq, out))?;
            // The reply carries the grant; no wake is needed.
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
            tx.ledger.add(claim.request, claim.name.clone());
        }
        ClaimReply::Busy(_) | ClaimReply::Gone(_) => {
            tx.ledger.remove(claim.request);
        }
    }
    Ok(reply)
}

/// The process of the waiter ahead, or those of the holders for the first waiter: if each waiter
/// watches only these, a death wakes one of them and not all.
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
