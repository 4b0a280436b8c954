//! What the store is and promises. docs/stores/mysql.md names the test behind each promise.

use std::time::Duration;

use clinch_core::MAX_NAME;
use clinch_core::store::{Capabilities, Guarantees, Limits, StoreInfo};

/// Describes the store, without opening it.
pub(crate) fn info() -> StoreInfo {
    StoreInfo {
        scheme: "mysql",
        summary: "a table in MySQL or MariaDB, shared by many machines",
        capabilities: Capabilities::ALL,
        guarantees: Guarantees {
            scope: "processes that reach the primary server",
            exclusion: "while the server keeps what it has committed and its clock is not set \
                        forward; across a failover only if the new primary has every committed \
                        transaction",
            token_order: "across clients, crashes, restarts, clock steps and reaped rows; after a \
                          loss of data, as long as the server's clock has not gone back",
            liveness: "a dead holder's lock is free after its lease and lock-delay",
            clock: "the server's wall clock, in UTC",
        },
        limits: Limits {
            min_lease: Duration::from_millis(100),
            max_lease: Duration::from_secs(7 * 86_400),
            lease_step: Duration::from_millis(1),
            max_name: MAX_NAME,
        },
    }
}
