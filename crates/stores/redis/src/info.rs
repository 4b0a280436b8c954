//! Capabilities, guarantees and limits of each store. docs/stores/redis.md names the tests behind them.

use std::time::Duration;

use clinch_core::MAX_NAME;
use clinch_core::store::{Capabilities, Guarantees, Limits, StoreInfo};

/// One server, sentinels or a cluster.
pub(crate) fn redis(scheme: &'static str) -> StoreInfo {
    StoreInfo {
        scheme,
        summary: summary(scheme),
        capabilities: Capabilities::ALL,
        guarantees: guarantees(scheme),
        limits: LIMITS,
    }
}

/// Several independent servers; `all` for `need=all`.
pub(crate) fn quorum(all: bool) -> StoreInfo {
    StoreInfo {
        scheme: "redis+quorum",
        summary: "independent Redis servers, of which a majority (or all) must agree",
        capabilities: Capabilities {
            queue: false,
            events: false,
            semaphores: all,
            ..Capabilities::ALL
        },
        guarantees: Guarantees {
            scope: "processes that reach enough of the servers",
            exclusion: "while no server that a hold counts on loses its data or has its clock \
                        set forward; with durability=strict also after a loss of data",
            token_order: "across clients, crashes, restarts and clock steps of fewer servers \
                          than agree; after a loss of data, as long as the clocks of those \
                          servers have not gone back",
            liveness: "a dead holder's lock is free after its lease and lock-delay, as long as \
                       enough servers are up; waiters poll, and come in no order",
            clock: "the wall clock of each server, for its own part",
        },
        limits: LIMITS,
    }
}

/// A guest in the locks of another library; `scheme` ends with its layout.
pub(crate) fn guest(scheme: &'static str) -> StoreInfo {
    StoreInfo {
        scheme,
        summary: match scheme.ends_with("redisson") {
            true => "a guest in the locks (RLock) of Redisson on one Redis server",
            false => "a guest in the string locks of redis-py, redsync and others on one Redis",
        },
        capabilities: Capabilities {
            shared: false,
            semaphores: false,
            queue: false,
            lock_delay: false,
            tokens: false,
            predecessor: false,
            values: false,
            list: false,
            events: false,
            evict: true,
        },
        guarantees: Guarantees {
            scope: "processes that reach the server, with clinch or with the other library",
            exclusion: "while the server keeps its data and its clock is not set forward",
            token_order: "none: the layout has no tokens, so a late writer is not fenced off",
            liveness: "a dead holder's lock is free after its lease; one that the other \
                       library took without a lease stays until it is evicted",
            clock: "the server's wall clock",
        },
        limits: LIMITS,
    }
}

const LIMITS: Limits = Limits {
    min_lease: Duration::from_millis(50),
    max_lease: Duration::from_secs(7 * 86_400),
    lease_step: Duration::from_millis(1),
    max_name: MAX_NAME,
};

fn summary(scheme: &str) -> &'static str {
    match scheme {
        "redis+sentinel" => "a Redis master with replicas, followed through failovers by sentinels",
        "redis+cluster" => "a Redis cluster: names are spread over its masters",
        _ => "one Redis server, shared by many machines",
    }
}

fn guarantees(scheme: &str) -> Guarantees {
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
        "redis+cluster" => Guarantees {
            scope: "processes that reach every server of the cluster",
            exclusion: "while slots move from server to server; across the loss of a master if the \
                        new one is one of the wait=N replicas that had acknowledged the hold, for \
                        certain when N is all of its replicas; while servers keep their data and \
                        their clocks are not set forward",
            token_order: "across clients, crashes, moved slots and the loss of a master; where the \
                          new master missed grants, as long as its clock is not behind",
            liveness: "a dead holder's lock is free after its lease and lock-delay; names of a lost \
                       master wait until another one has its slots, and has N replicas",
            clock: "the wall clock of the name's master, and the new master's after a move",
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
