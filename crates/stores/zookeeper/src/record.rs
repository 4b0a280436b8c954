//! What is written into nodes, as JSON: people read it with ZooKeeper's own tools.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Claim, Ending, Predecessor};
use clinch_core::{ClientId, OwnerId, RequestId};
use serde::{Deserialize, Serialize};

/// Who a claim's node belongs to.
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
    /// The token, where it is not the zxid of the node's creation: the node was moved to a longer
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

    /// What a node says; `None` for those of other libraries.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        // It cannot fail: there are strings and numbers only.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn lock_delay(&self) -> Duration {
        Duration::from_millis(self.delay)
    }

    pub(crate) fn client_id(&self) -> Option<ClientId> {
        self.client.parse().ok()
    }
}

/// The last word about a lock: the data of its folder. Who holds it alone says so; if it is gone and
/// said nothing else, it has expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    /// The claim that holds or has ended.
    pub(crate) request: String,
    /// Its place in the order.
    pub(crate) number: i64,
    /// Its token; 0 where it is the zxid of the word itself.
    pub(crate) seq: u64,
    pub(crate) owner: String,
    pub(crate) ending: How,
    /// Whether a lock-delay follows.
    #[serde(default)]
    pub(crate) delayed: bool,
    /// What its node said, for listeners who come too late to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<Record>,
    /// The word before, for whoever comes to ask about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Box<Word>>,
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// It has not ended yet.
    Holding,
    Released,
    Expired,
    Evicted,
}

impl Word {
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn is_about(&self, request: RequestId) -> bool {
        self.request.parse() == Ok(request)
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.ending {
            How::Released => Ending::Released,
            How::Expired | How::Holding => Ending::Expired,
            How::Evicted => Ending::Evicted,
        }
    }

    /// The word about a request, this one or the one before.
    pub(crate) fn about(&self, request: RequestId) -> Option<&Self> {
        match self.is_about(request) {
            true => Some(self),
            false => self.before.as_deref().filter(|word| word.is_about(request)),
        }
    }

    /// As little as is worth keeping once something else is said.
    pub(crate) fn past(&self) -> Box<Self> {
        Box::new(Self {
            record: None,
            before: None,
            ..self.clone()
        })
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.ending == How::Holding
    }

    /// What the next holder is told; `written` is the zxid of the word.
    pub(crate) fn predecessor(&self, written: i64) -> Predecessor {
        let seq = match self.seq {
            0 => u64::try_from(written).unwrap_or_default(),
            seq => seq,
        };
        Predecessor::new(self.ending(), seq, OwnerId::new(self.owner.as_str()))
    }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_and_strangers_are_known() {
        let word = Word {
            request: "00112233445566778899aabbccddeeff".into(),
            number: 7,
            seq: 99,
            owner: "\"me\" 100%".into(),
            ending: How::Evicted,
            delayed: true,
            record: None,
            before: None,
        };
        assert_eq!(Word::read(&word.write()), Some(word.clone()));
        assert_eq!(word.predecessor(0).ending, Ending::Evicted);
        assert_eq!(Record::read(b"10.0.0.1"), None);
        assert_eq!(Word::read(b""), None);
    }
}
