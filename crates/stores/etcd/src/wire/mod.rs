//! The messages of etcd's version 3 API that a lock needs.
//!
//! They are written by hand, with prost's derive and the field numbers of the API, so that a build
//! needs neither `protoc` nor a build script. Fields that are left out are skipped when received.

mod kv;
mod lease;
mod maintenance;
mod watch;

use clinch_core::Result;

use crate::error::unexpected_reply;

pub(crate) use kv::*;
pub(crate) use lease::*;
pub(crate) use maintenance::*;
pub(crate) use watch::*;

/// The first field of every reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The store's revision when the request was answered; for a write, the revision of the write.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// The member's Raft term. It changes with each election.
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// Revision and term of a reply.
pub(crate) fn revision_and_term(header: Option<Header>) -> Result<(u64, u64)> {
    let header = header.ok_or_else(unexpected_reply)?;
    Ok((revision(header.revision), header.raft_term))
}

/// A revision as an unsigned number; etcd never sends a negative one.
pub(crate) fn revision(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}
