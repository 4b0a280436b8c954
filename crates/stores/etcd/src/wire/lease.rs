//! Leases.

use super::Header;

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// 0: the lease does not exist.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// Whole seconds left; negative: the lease does not exist.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}
