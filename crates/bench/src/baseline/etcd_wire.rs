//! The messages of etcd's version 3 API that the baselines need, with the field numbers of the API. Fields that
//! are not used are left out, and skipped when they are received.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Op>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    pub(super) relation: i32,
    /// 1: the create revision, which is 0 for a key that does not exist.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(super) create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Op {
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<Put>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnReply {
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
}

/// The only key of a `DeleteRange` or an `Unlock`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Key {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrant {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseGrantReply {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LeaseRevoke {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Lock {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int64, tag = "2")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct LockReply {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) key: Vec<u8>,
}

/// A reply whose fields are not used.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Done {}
