//! What the store is, can and promises.

use std::time::Duration;

use clinch_core::store::{Guarantees, Limits, StoreInfo};

use crate::SqliteStore;

const DAY: Duration = Duration::from_secs(86_400);

const GUARANTEES: Guarantees = Guarantees::new("processes of one machine that can write the file")
    .with_exclusion(
        "while the file is kept: each grant is a committed transaction; a deleted file loses its \
         holds, which their next renewal reports; where the log alone is removed, nothing is \
         granted until its users have ended",
    )
    .with_token_order(
        "across clients, crashes, reboots, power cuts and clock steps; after the file was \
         deleted, as long as the wall clock has not gone back",
    )
    .with_liveness(
        "a dead process's locks are free at once, after its lock-delay; a stopped one's after its \
         lease and lock-delay, but nothing is granted while a process is stopped in the middle of \
         a transaction (holds stay)",
    )
    .with_clock("CLOCK_BOOTTIME of the machine; a reboot ends every hold");

impl SqliteStore {
    /// What this store is, without opening it.
    ///
    /// ```
    /// let info = clinch_sqlite::SqliteStore::describe();
    /// assert_eq!(info.scheme, "sqlite");
    /// assert!(info.capabilities.queue && info.capabilities.events);
    /// ```
    pub fn describe() -> StoreInfo {
        StoreInfo::new(
            "sqlite",
            "embedded store in one file, for the processes of one machine",
            GUARANTEES,
            Limits::new(Duration::from_millis(50), DAY * 7)
                .with_lease_step(Duration::from_nanos(1)),
        )
    }
}
