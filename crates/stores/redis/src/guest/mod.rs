//! Guests in the locks of other libraries.
//!
//! `layout=plain` takes part in string locks (redis-py, redsync, node-redlock), `layout=redisson` in
//! Redisson's `RLock`. The key is the lock's name, as the others use it: the namespace plays no part.
//! Those layouts have no room for a queue, a token or a lock-delay, so these are refused.
//!
//! Beside the lock there is one list of ours, `clinch:ended:NAME`, with the last claims that ended:
//! without it a copy of a claim that is still under way could take a lock that nobody wants any more.

mod layout;
mod plain;
mod redisson;
mod reply;
mod rooms;
mod store;

pub(crate) use rooms::Rooms;
pub use store::GuestStore;
