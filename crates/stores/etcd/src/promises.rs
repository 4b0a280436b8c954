//! What etcd promises. docs/stores/etcd.md names the test behind each.

use clinch_core::store::Guarantees;

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    scope: "processes that reach a majority of the cluster through one of its members",
    exclusion: "while a majority keeps its data, across the loss of members and elections; by leases \
                that the leader counts, so between holders whose clocks run at the same rate",
    token_order: "across clients, crashes, elections and restarts; a cluster restored from a snapshot \
                  must be given higher revisions (--bump-revision)",
    liveness: "a dead holder's lock is free after its lease, an eighth of it more (1 to 5 s), and its \
               lock-delay; an election lets every lease run anew",
    clock: "the leader's monotonic clock",
};
