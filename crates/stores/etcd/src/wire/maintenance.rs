//! Login, and the state of the cluster for the doctor.

use super::Header;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    /// 0: this member has no leader.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) db_size_in_use: i64,
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
}

/// Requests the active alarms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct AlarmRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<Alarm>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct Alarm {
    #[prost(uint64, tag = "1")]
    pub(crate) member_id: u64,
    /// 1 is "no space", 2 is "corrupt".
    #[prost(int32, tag = "2")]
    pub(crate) alarm: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct MemberListRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Member {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}
