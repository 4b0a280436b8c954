//! Capabilities, guarantees and limits of each store. docs/stores/redis.md names the tests behind them.

use std::time::Duration;

use clinch_core::store::{Capabilities, Capability, Guarantees, Limits, StoreInfo};

/// One server, sentinels or a cluster.
pub(crate) fn redis(scheme: &'static str) -> StoreInfo {
    StoreInfo::new(scheme, summary(scheme), guarantees(scheme), LIMITS)
}

/// Several independent servers; `all` for `need=all`.
pub(crate) fn quorum(all: bool) -> StoreInfo {
    let guarantees = Guarantees::new("processes that reach enough of the servers")
        .with_exclusion(
            "while no server that a hold counts on loses its data or has its clock \
                        set forward; with durability=strict also after a loss of data",
        )
        .with_token_order(
            "across clients, crashes, restarts and clock steps of fewer servers \
                          than agree; after a loss of data, as long as the clocks of those \
                          servers have not gone back",
        )
        .with_liveness(
            "a dead holder's lock is free after its lease and lock-delay, as long as \
                       enough servers are up; waiters poll, and come in no order",
        )
        .with_clock("the wall clock of each server, for its own part");
    let mut capabilities = Capabilities::ALL
        .without(Capability::Queue)
        .without(Capability::Events);
    capabilities.semaphores = all;
    let summary = "independent Redis servers, of which a majority (or all) must agree";
    StoreInfo::new("redis+quorum", summary, guarantees, LIMITS).with_capabilities(capabilities)
}

/// A guest in the locks of another library; `scheme` ends with its layout.
pub(crate) fn guest(scheme: &'static str) -> StoreInfo {
    let summary = match scheme.ends_with("redisson") {
        true => "a guest in the locks (RLock) of Redisson on one Redis server",
        false => "a guest in the string locks of redis-py, redsync and others on one Redis",
    };
    let guarantees =
        Guarantees::new("processes that reach the server, with clinch or with the other library")
            .with_exclusion("while the server keeps its data and its clock is not set forward")
            .with_token_order("none: the layout has no tokens, so a late writer is not fenced off")
            .with_liveness(
                "a dead holder's lock is free after its lease; one that the other \
                       library took without a lease stays until it is evicted",
            )
            .with_clock("the server's wall clock");
    let absent = [
        Capability::Shared,
        Capability::Semaphores,
        Capability::Queue,
        Capability::LockDelay,
        Capability::Tokens,
        Capability::Predecessor,
        Capability::Values,
        Capability::List,
        Capability::Events,
    ];
    let capabilities = absent
        .into_iter()
        .fold(Capabilities::ALL, Capabilities::without);
    StoreInfo::new(scheme, summary, guarantees, LIMITS).with_capabilities(capabilities)
}

const LIMITS: Limits = Limits::new(Duration::from_millis(50), Duration::from_secs(7 * 86_400));

fn summary(scheme: &str) -> &'static str {
    match scheme {
        "redis+sentinel" => "a Redis master with replicas, followed through failovers by sentinels",
        "redis+cluster" => "a Redis cluster: names are spread over its masters",
        _ => "one Redis server, shared by many machines",
    }
}

fn guarantees(scheme: &str) -> Guarantees {
    match scheme {
        "redis+sentinel" => Guarantees::new("processes that reach the sentinels and the master")
            .with_exclusion(
                "while the master keeps its data and its clock is not set forward; across a \
                        failover if the new master is one of the wait=N replicas that had \
                        acknowledged the hold, for certain when N is all of them; with \
                        durability=strict also otherwise, once the old master has no replicas left",
            )
            .with_token_order(
                "across clients, crashes, failovers and FLUSHALL; where the new master \
                          missed grants, as long as its clock is not behind",
            )
            .with_liveness(
                "a dead holder's lock is free after its lease and lock-delay; during a \
                       failover nothing is granted",
            )
            .with_clock("the master's wall clock, and the new master's after a failover"),
        "redis+cluster" => Guarantees::new("processes that reach every server of the cluster")
            .with_exclusion(
                "while slots move from server to server; across the loss of a master if the \
                        new one is one of the wait=N replicas that had acknowledged the hold, for \
                        certain when N is all of its replicas; while servers keep their data and \
                        their clocks are not set forward",
            )
            .with_token_order(
                "across clients, crashes, moved slots and the loss of a master; where the \
                          new master missed grants, as long as its clock is not behind",
            )
            .with_liveness(
                "a dead holder's lock is free after its lease and lock-delay; names of a lost \
                       master wait until another one has its slots, and has N replicas",
            )
            .with_clock("the wall clock of the name's master, and the new master's after a move"),
        _ => Guarantees::new("processes that reach the server")
            .with_exclusion(
                "while the server keeps its data and its clock is not set forward; with \
                        durability=strict also after a loss of data",
            )
            .with_token_order(
                "across clients, crashes, restarts, FLUSHALL and clock steps; after a \
                          loss of data, as long as the server's clock has not gone back",
            )
            .with_liveness("a dead holder's lock is free after its lease and lock-delay")
            .with_clock("the server's wall clock"),
    }
}
