//! What the store promises. docs/stores/mysql.md names the test behind each.

use clinch_core::store::Guarantees;

/// What it is, in a line.
pub(crate) const SUMMARY: &str = "a table in MySQL or MariaDB, shared by many machines";

/// What it promises.
pub(crate) const GUARANTEES: Guarantees = Guarantees {
    scope: "processes that reach the primary server",
    exclusion: "while the server keeps what it has committed and its clock is not set forward; \
                across a failover only if the new primary has every committed transaction",
    token_order: "across clients, crashes, restarts, clock steps and reaped rows; after a loss of \
                  data, as long as the server's clock has not gone back",
    liveness: "a dead holder's lock is free after its lease and lock-delay",
    clock: "the server's wall clock, in UTC",
};
