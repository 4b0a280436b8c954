//! Lock patterns in your own tables, each for what it is good at.
//!
//! The store of this crate keeps locks in a table of its own. What is here works on *your* tables,
//! over *your* connection of the driver (`mysql_async`), which needs its runtime.
//!
//! | pattern | held by | ends with | good for |
//! |---|---|---|---|
//! | [`RowLock`] | a row lock inside your transaction | commit, rollback, the end of the connection | work that is one transaction |
//! | [`LockColumns`] | columns beside your data | release, or the end of its lease | work longer than a transaction, on one row |
//! | [`VersionColumn`] | no client: the second one starts over | – | short changes that seldom collide |
//! | [`Guarded`] | no client: the condition is part of the update | – | counters and stock |
//! | [`Fence`] | – | – | your data reject late writes of a lock's former holder |
//!
//! Names of tables and columns are checked and quoted, values are bound. None of the patterns creates
//! or changes a table.
//!
//! If a future of these calls is dropped, its statement may still be applied, and its reply is still to
//! come on that connection. The patterns refuse such a connection. The driver does not: it would take that
//! reply for the one to your next statement. Drop the connection as well.
//!
//! An error of the server inside your transaction (a deadlock above all) may have rolled all of it
//! back: roll back, and begin again.

mod fence;
mod guarded;
mod ident;
mod lock_columns;
mod refusal;
mod row_hold;
mod row_lock;
mod row_seen;
mod session;
mod statement;
mod version;

pub use fence::Fence;
pub use guarded::{Guarded, Taken};
pub use lock_columns::{Claimed, ColumnNames, LockColumns};
pub use row_hold::RowHold;
pub use row_lock::{Locked, RowLock, Wait};
pub use session::Session;
pub use version::{Swapped, VersionColumn};
