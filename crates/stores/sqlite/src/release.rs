//! Release, withdrawal and eviction, and the end of all claims of this client.

use clinch_core::machine::Entry;
use clinch_core::store::{Claim, Evicted, Hold, ReleaseReply};
use clinch_core::{ClientId, Name};

use crate::error::{Fail, Step};
use crate::events;
use crate::transaction::Tx;

pub(crate) fn release(tx: &mut Tx<'_>, hold: &Hold) -> Step<ReleaseReply> {
    let reply = tx.on_name(&hold.name, |name| {
        name.step(|state, now, seq, out| state.release(hold, now, seq, out))
    })?;
    tx.ledger.remove(hold.request);
    Ok(reply)
}

pub(crate) fn withdraw(tx: &mut Tx<'_>, claim: &Claim) -> Step<()> {
    tx.on_name(&claim.name, |name| {
        name.step(|state, now, seq, out| state.withdraw(claim, now, seq, out));
    })?;
    tx.ledger.remove(claim.request);
    Ok(())
}

pub(crate) fn evict(tx: &mut Tx<'_>, name: &Name, seq: Option<u64>) -> Step<Evicted> {
    tx.on_name(name, |name| {
        name.step(|state, now, numbers, out| state.evict(seq, now, numbers, out))
    })
}

/// Withdraws all claims that this client still has at the store, and ends its watch.
pub(crate) fn end_all(tx: &mut Tx<'_>, me: ClientId) -> Step<()> {
    events::unsubscribe(tx, me)?;
    for name in tx.ledger.names() {
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
    tx.ledger.remove_all();
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
