//! What each topology promises. docs/stores/redis.md names the test behind each.

use clinch_core::store::Guarantees;

/// What the store of a scheme is, in a line.
pub(crate) fn summary(scheme: &str) -> &'static str {
    match scheme {
        "redis+sentinel" => "a Redis master with replicas, followed through failovers by sentinels",
        _ => "one Redis server, shared by many machines",
    }
}

/// What it promises.
pub(crate) fn guarantees(scheme: &str) -> Guarantees {
    match scheme {
        "redis+sentinel" => Guarantees {
            scope: "processes that reach the sentinels and the master",
            exclusion: "while the master keeps its data and its clock is not set forward; across a \
                        failover if the new master is one of the wait=N replicas that had \
                        acknowledged the hold, for certain when N is all of them; with \
                        durability=strict also otherwise, once the old master has no replicas left",
            token_order: "across clients, crashes, failovers and FLUSHALL; where the new master \
                          missed grants, as long as its clock is not behind",
            liveness: "a dead holder's lock is free after its lease and lock-delay; during a \
                       failover nothing is granted",
            clock: "the master's wall clock, and the new master's after a failover",
        },
        _ => Guarantees {
            scope: "processes that reach the server",
            exclusion: "while the server keeps its data and its clock is not set forward; with \
                        durability=strict also after a loss of data",
            token_order: "across clients, crashes, restarts, FLUSHALL and clock steps; after a \
                          loss of data, as long as the server's clock has not gone back",
            liveness: "a dead holder's lock is free after its lease and lock-delay",
            clock: "the server's wall clock",
        },
    }
}
