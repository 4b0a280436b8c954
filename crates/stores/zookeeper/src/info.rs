//! What this store is, can and guarantees. docs/stores/zookeeper.md names the test behind each guarantee.

use std::time::Duration;

use clinch_core::store::{Guarantees, Limits, StoreInfo};

/// The info of an ensemble with default settings: the longest lease is the one that fits into its
/// longest session, and the shortest is shorter than any ensemble's sessions.
pub(crate) const INFO: StoreInfo = StoreInfo::new(
    "zookeeper",
    "ZooKeeper, one server or an ensemble, sharing locks with Curator",
    GUARANTEES,
    Limits::new(Duration::from_millis(200), Duration::from_millis(30_400)),
);

const GUARANTEES: Guarantees = Guarantees::new("processes that reach the ensemble")
    .with_exclusion(
        "as long as a majority of the ensemble keeps its data: across crashes, partitions and changes \
         of the leader",
    )
    .with_token_order(
        "across clients, crashes, restarts and changes of the leader; not across an ensemble that was \
         restored from an older copy",
    )
    .with_liveness(
        "a dead holder's lock is free after a quarter more than its lease, a tick, and its lock-delay; \
         a change of the leader begins that time anew",
    )
    .with_clock("the leader's monotonic clock");
