//! The data of nodes: JSON, so that people can read it with ZooKeeper's own tools.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Ending, Predecessor};
use clinch_core::{ClientId, OwnerId, RequestId};
use serde::{Deserialize, Serialize};

/// The data of a claim's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) owner: String,
    pub(crate) client: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<Arc<str>>,
    /// Milliseconds.
    pub(crate) lease: u64,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) delay: u64,
    /// The sequence number, if it is not the zxid of the node's creation: the node was moved to a longer
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seq: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Record {
    pub(crate) fn of(claim: &Claim) -> Self {
        Self {
            owner: claim.owner.as_str().to_owned(),
            client: claim.client.id.to_string(),
            host: claim.client.host.clone(),
            pid: claim.client.pid,
            label: claim.label.clone(),
            value: claim.value.clone(),
            lease: millis(claim.lease),
            delay: millis(claim.lock_delay),
            seq: None,
        }
    }

    /// Parses the data of a node; `None` for a node of another library.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        // It cannot fail: it has strings and numbers only.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn lock_delay(&self) -> Duration {
        Duration::from_millis(self.delay)
    }

    pub(crate) fn client_id(&self) -> Option<ClientId> {
        self.client.parse().ok()
    }
}

/// The data of a lock's folder: the claim that holds the lock exclusively, or how the latest hold ended.
/// If the record is `Holding` and its claim has no node, that hold has expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FolderRecord {
    /// The claim that holds or has ended.
    pub(crate) request: String,
    /// Its position in the order of arrival.
    pub(crate) number: i64,
    /// Its sequence number; 0 if that is the zxid of this record.
    pub(crate) seq: u64,
    pub(crate) owner: String,
    pub(crate) ending: HoldState,
    /// Whether a lock-delay follows.
    #[serde(default)]
    pub(crate) delayed: bool,
    /// The data of its node, for listeners that read the node after it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<Record>,
    /// The record before, for the client of that claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Box<FolderRecord>>,
}

/// Whether a hold has ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HoldState {
    /// It has not ended.
    Holding,
    Released,
    Expired,
    Evicted,
}

impl FolderRecord {
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn is_about(&self, request: RequestId) -> bool {
        self.request.parse() == Ok(request)
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.ending == HoldState::Holding
    }

    /// How the hold ended, if its node is gone.
    pub(crate) fn ending(&self) -> Ending {
        match self.ending {
            HoldState::Released => Ending::Released,
            HoldState::Expired | HoldState::Holding => Ending::Expired,
            HoldState::Evicted => Ending::Evicted,
        }
    }

    /// The record of a request: this one or the one before.
    pub(crate) fn of_request(&self, request: RequestId) -> Option<&Self> {
        match self.is_about(request) {
            true => Some(self),
            false => self.before.as_deref().filter(|one| one.is_about(request)),
        }
    }

    /// What is kept of it in the record that follows.
    pub(crate) fn shortened(&self) -> Box<Self> {
        Box::new(Self {
            record: None,
            before: None,
            ..self.clone()
        })
    }

    /// The predecessor of the next hold; `written` is the zxid of this record.
    pub(crate) fn predecessor(&self, written: i64) -> Predecessor {
        let seq = match self.seq {
            0 => u64::try_from(written).unwrap_or_default(),
            seq => seq,
        };
        Predecessor::new(self.ending(), seq, OwnerId::new(self.owner.as_str()))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_and_foreign_data_is_not() {
        let record = FolderRecord {
            request: "00112233445566778899aabbccddeeff".into(),
            number: 7,
            seq: 99,
            owner: "\"me\" 100%".into(),
            ending: HoldState::Evicted,
            delayed: true,
            record: None,
            before: None,
        };
        assert_eq!(FolderRecord::read(&record.write()), Some(record.clone()));
        assert_eq!(record.predecessor(0).ending, Ending::Evicted);
        assert_eq!(Record::read(b"10.0.0.1"), None);
        assert_eq!(FolderRecord::read(b""), None);
    }
}
