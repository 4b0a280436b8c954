//! What this store is, can and guarantees. docs/stores/etcd.md names the test behind each guarantee.

use std::time::Duration;

use clinch_core::MAX_NAME;
use clinch_core::store::{Capabilities, Guarantees, Limits, StoreInfo};

/// The info of a cluster with default settings.
pub(crate) fn describe() -> StoreInfo {
    StoreInfo {
        scheme: "etcd",
        summary: "an etcd cluster: locks outlive the loss of members",
        capabilities: Capabilities::ALL,
        guarantees: GUARANTEES,
        limits: Limits {
            min_lease: Duration::from_secs(2),
            max_lease: Duration::from_secs(7 * 86_400),
            lease_step: Duration::from_secs(1),
            max_name: MAX_NAME,
        },
    }
}

const GUARANTEES: Guarantees = Guarantees {
    scope: "processes that reach a majority of the cluster through one of its members",
    exclusion: "while a majority keeps its data, across the loss of members and elections; by leases \
                that the leader counts, so between holders whose clocks run at the same rate",
    token_order: "across clients, crashes, elections and restarts; a cluster restored from a snapshot \
                  must be given higher revisions (--bump-revision)",
    liveness: "a dead holder's lock is free after its lease, an eighth of it more (1 to 5 s), and its \
               lock-delay; an election restarts the full time of every lease",
    clock: "the leader's monotonic clock",
};
