//! What this store promises. docs/stores/zookeeper.md names the test behind each.

use clinch_core::store::Guarantees;

pub(crate) const SUMMARY: &str = "ZooKeeper, one server or an ensemble, sharing locks with Curator";

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    scope: "processes that reach the ensemble",
    exclusion: "as long as a majority of the ensemble keeps its data: across crashes, partitions and \
                changes of the leader",
    token_order: "across clients, crashes, restarts and changes of the leader; not across an \
                  ensemble that was restored from an older copy",
    liveness: "a dead holder's lock is free after a quarter more than its lease, a tick, and its \
               lock-delay; a change of the leader begins that time anew",
    clock: "the leader's monotonic clock",
};
