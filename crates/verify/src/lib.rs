//! Whether a lock holds, on your engine with your settings: clients in processes of their own,
//! faults, a record of every operation, and checkers for the promises of `docs/guarantees.md`.

mod check;
mod history;

pub use check::Property;
