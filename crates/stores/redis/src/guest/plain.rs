//! String locks: `SET key value NX PX lease`, as redis-py, redsync and node-redlock keep them.

use std::sync::LazyLock;

use clinch_core::store::PartyView;
use clinch_core::{ClientInfo, RequestId};

use crate::scripts::Script;

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("common.lua"),
        include_str!("plain.lua")
    ))
});

/// Separates the id of a claim from its process.
const MARK: &str = ":clinch:";

/// The value of a claim: 32 unique digits, then the process, for people.
pub(super) fn owner(request: RequestId, me: &ClientInfo) -> String {
    format!("{request}{MARK}{}:{}", me.pid, me.host)
}

/// Describes the process of a value, if it is one of ours.
pub(super) fn describe(owner: &str, party: &mut PartyView) {
    let Some((request, process)) = owner.split_once(MARK) else {
        return;
    };
    let (Ok(request), Some((pid, host))) = (request.parse::<RequestId>(), process.split_once(':'))
    else {
        return;
    };
    party.client = request.client();
    party.pid = pid.parse().unwrap_or(0);
    party.host = host.to_owned();
}
