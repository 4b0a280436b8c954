//! What this store is, can and guarantees. docs/stores/etcd.md names the test behind each guarantee.

use std::time::Duration;

use clinch_core::store::{Guarantees, Limits, StoreInfo};

/// The info of a cluster with default settings.
pub(crate) const INFO: StoreInfo = StoreInfo::new(
    "etcd",
    "an etcd cluster: locks outlive the loss of members",
    GUARANTEES,
    Limits::new(Duration::from_secs(2), Duration::from_secs(7 * 86_400))
        .with_lease_step(Duration::from_secs(1)),
);

const GUARANTEES: Guarantees = Guarantees::new(
    "processes that reach a majority of the cluster through one of its members",
)
.with_exclusion(
    "while a majority keeps its data, across the loss of members and elections; by leases that the \
     leader counts, so between holders whose clocks run at the same rate",
)
.with_token_order(
    "across clients, crashes, elections and restarts; a cluster restored from a snapshot must be given \
     higher revisions (--bump-revision)",
)
.with_liveness(
    "a dead holder's lock is free after its lease, an eighth of it more (1 to 5 s), and its lock-delay; \
     an election restarts the full time of every lease",
)
.with_clock("the leader's monotonic clock");
