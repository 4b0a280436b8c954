//! Views of names, and the check of a sequence number.

use clinch_core::Name;
use clinch_core::store::{Freshness, LockView};

use crate::error::Step;
use crate::record::NameRecord;
use crate::transaction::{Scope, Tx};

/// The names in use that start with `prefix`, in byte order.
pub(crate) fn list(tx: &mut Tx<'_>, prefix: &str) -> Step<Vec<LockView>> {
    let records = NameRecord::in_use(tx.db, tx.path, tx.ns, prefix)?.sound();
    let views = records.into_iter().map(|record| tx.on_record(record, view));
    views.filter_map(Step::transpose).collect()
}

pub(crate) fn inspect(tx: &mut Tx<'_>, name: &Name) -> Step<Option<LockView>> {
    tx.on_name(name, view)
}

/// A name as operators see it, without claims of dead processes.
fn view(name: &mut Scope<'_>) -> Option<LockView> {
    name.end_all_dead();
    name.state.view(name.now)
}

pub(crate) fn check(tx: &mut Tx<'_>, name: &Name, seq: u64) -> Step<Freshness> {
    tx.on_name(name, |name| {
        if name.state.check(seq, name.now).is_current() {
            name.end_dead_holders();
        }
        name.state.check(seq, name.now)
    })
}
