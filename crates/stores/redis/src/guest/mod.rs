//! Guests in the locks of other libraries.
//!
//! `layout=plain` takes part in string locks (redis-py, redsync, node-redlock), `layout=redisson` in
//! Redisson's `RLock`. The key is the lock's name, as the others use it: the namespace is not used.
//! Those layouts have no place for a queue, a token or a lock-delay, so these are refused.
//!
//! Beside the lock there is one list of ours, `clinch:ended:NAME`, with the last claims that ended:
//! without it a late copy of a claim could take a lock after its client has withdrawn.

mod admin;
mod layout;
mod plain;
mod redisson;
mod reply;
mod store;
mod waiters;

pub(crate) use layout::Layout;
pub use store::GuestStore;
pub(crate) use waiters::GuestWaiters;
