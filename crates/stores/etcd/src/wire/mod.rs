//! What travels: the messages of etcd's version 3 API that a lock needs, and nothing else.
//!
//! They are written by hand, with prost's derive and the field numbers of the API, so that a build
//! needs neither `protoc` nor a build script. What is left out is skipped when it is received.

mod kv;
mod lease;
mod maintenance;
mod watch;

pub(crate) use kv::*;
pub(crate) use lease::*;
pub(crate) use maintenance::*;
pub(crate) use watch::*;

/// What every reply begins with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The store's revision when the request was answered; of a write, its own.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The term of the member's leader. It changes with each election.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}
