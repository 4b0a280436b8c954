//! What the store is and promises. docs/stores/mysql.md names the test behind each promise.

use std::time::Duration;

use clinch_core::store::{Guarantees, Limits, StoreInfo};

/// Describes the store, without opening it.
pub(crate) fn info() -> StoreInfo {
    let guarantees = Guarantees::new("processes that reach the primary server")
        .with_exclusion(
            "while the server keeps what it has committed and its clock is not set forward; across a \
             failover only if the new primary has every committed transaction",
        )
        .with_token_order(
            "across clients, crashes, restarts, clock steps and reaped rows; after a loss of data, as \
             long as the server's clock has not gone back",
        )
        .with_liveness("a dead holder's lock is free after its lease and lock-delay")
        .with_clock("the server's wall clock, in UTC");
    let limits = Limits::new(Duration::from_millis(100), Duration::from_secs(7 * 86_400));
    let summary = "a table in MySQL or MariaDB, shared by many machines";
    StoreInfo::new("mysql", summary, guarantees, limits)
}
