//! Whether a lock holds, on your engine with your settings.
//!
//! [`run`] starts clients in processes of their own, injects faults, records every operation, and
//! checks the record against the promises of `docs/guarantees.md`; [`replay`] checks a record again.
//! The command is `clinch verify`.
//!
//! - `history`: the record; `check`: one file for each promise.
//! - `work`: what runs in a worker process; `run`: the process that starts, disturbs and ends them.
//! - `lab`: engines of our own; `wrong`: locks that must be caught; `report`: words and pictures.

mod check;
mod history;
mod lab;
mod options;
mod report;
mod rng;
mod run;
mod work;
mod workload;
mod wrong;

pub use check::Property;
pub use lab::Lab;
pub use options::{Options, Target};
pub use report::Report;
pub use run::{Progress, replay, run};
pub use work::work;
pub use workload::Workload;
pub use wrong::Wrong;
