//! Value of a claim's key, and of its delay key.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::Claim;
use clinch_core::store::fifo::Place;
use clinch_core::{ClientId, OwnerId, RequestId};
use prost::Message;

/// The value of a claim's key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Record {
    #[prost(uint32, tag = "1")]
    pub(crate) units: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) limit: u32,
    #[prost(uint64, tag = "3")]
    lease_ms: u64,
    #[prost(uint64, tag = "4")]
    delay_ms: u64,
    #[prost(string, tag = "5")]
    owner: String,
    #[prost(fixed64, tag = "6")]
    client: u64,
    #[prost(string, tag = "7")]
    pub(crate) host: String,
    #[prost(uint32, tag = "8")]
    pub(crate) pid: u32,
    #[prost(string, optional, tag = "9")]
    label: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub(crate) value: Option<String>,
    /// Time of the claim by the claimant's wall clock. Only displayed, never used for a decision.
    #[prost(uint64, tag = "11")]
    pub(crate) since: u64,
    /// The request id, in two halves.
    #[prost(fixed64, tag = "12")]
    request_high: u64,
    #[prost(fixed64, tag = "13")]
    request_low: u64,
    /// Delay keys only: sequence number of the hold; 0 if it is the revision that put the delay key.
    #[prost(uint64, tag = "14")]
    pub(crate) seq: u64,
}

impl Record {
    pub(crate) fn of(claim: &Claim) -> Self {
        Self {
            units: claim.units,
            limit: claim.limit,
            lease_ms: millis(claim.lease),
            delay_ms: millis(claim.lock_delay),
            owner: claim.owner.as_str().to_owned(),
            client: claim.client.id.get(),
            host: claim.client.host.clone(),
            pid: claim.client.pid,
            label: claim.label.as_deref().map(str::to_owned),
            value: claim.value.as_deref().map(str::to_owned),
            since: clinch_core::sequence_micros(),
            request_high: half(claim.request.as_u128() >> 64),
            request_low: half(claim.request.as_u128()),
            seq: 0,
        }
    }

    /// The value of the delay key. `seq` is 0 if the same transaction creates the claim.
    pub(crate) fn delay_bytes(&self, seq: u64) -> Vec<u8> {
        let record = Self {
            seq,
            ..self.clone()
        };
        record.bytes()
    }

    /// Decodes a value; `None` if clinch did not write it.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let record = Self::decode(value).ok()?;
        (record.units > 0 && record.limit > 0).then_some(record)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    pub(crate) fn request(&self) -> RequestId {
        RequestId::from_u128(u128::from(self.request_high) << 64 | u128::from(self.request_low))
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            units: self.units,
            limit: self.limit,
        }
    }

    pub(crate) fn owner(&self) -> OwnerId {
        OwnerId::new(self.owner.as_str())
    }

    pub(crate) fn client(&self) -> ClientId {
        ClientId::from_u64(self.client)
    }

    pub(crate) fn shared_label(&self) -> Option<Arc<str>> {
        self.label.as_deref().map(Arc::from)
    }

    pub(crate) fn shared_value(&self) -> Option<Arc<str>> {
        self.value.as_deref().map(Arc::from)
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease_ms = millis(lease);
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(clinch_core::sequence_micros().saturating_sub(self.since))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn half(id: u128) -> u64 {
    u64::try_from(id & u128::from(u64::MAX)).unwrap_or_default()
}
