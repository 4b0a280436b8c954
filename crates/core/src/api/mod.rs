//! The public API: what applications call.

pub mod blocking;
mod client;
mod election;
pub mod fence;
mod guard;
mod lock;
mod multi;
mod observer;
mod options;
mod owner;
mod rwlock;
mod semaphore;

pub use client::{Clinch, ClinchBuilder};
pub use election::{Election, Leader, LeaderView, Leadership};
pub use guard::Guard;
pub use lock::Lock;
pub use multi::{MultiGuard, MultiLock};
pub use observer::Observer;
pub use owner::Owner;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
