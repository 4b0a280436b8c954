//! How holds ended: end records, grant records, and what a new holder learns about its predecessor.
//!
//! A hold that is released or evicted leaves an end record. A hold whose lease expires cannot write one, so a
//! grant is recorded too: a recorded grant that is gone, without an end record, has expired.

use std::sync::Arc;
use std::time::Duration;

use clinch_core::store::{Ending, Grant, Predecessor};
use clinch_core::{LostReason, Name, OwnerId, RequestId, keeper};
use prost::Message;

use crate::client::Client;
use crate::connection::Session;
use crate::error::CallError;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::ledger::{Ledger, OwnClaim};
use crate::lock_state::LockState;
use crate::txn::{self, TxnReply};
use crate::wire::{KeyValue, Op, TxnRequest, revision};

/// A grant that came after waiting is recorded if the hold lasts longer than this. Shorter holds leave
/// an end record soon enough.
const RECORD_AFTER: Duration = Duration::from_secs(1);

/// The value of `held`, `ended` and `gone` keys: a claim that was granted, or how a claim ended.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EndRecord {
    /// Sequence number of the claim; 0 in `held`: the revision of that key.
    #[prost(uint64, tag = "1")]
    pub(crate) seq: u64,
    #[prost(string, tag = "2")]
    owner: String,
    /// 1 released or withdrawn, 2 expired, 3 evicted.
    #[prost(uint32, tag = "3")]
    ending: u32,
}

impl EndRecord {
    pub(crate) fn new(seq: u64, owner: &OwnerId, ending: Ending) -> Self {
        Self {
            seq,
            owner: owner.as_str().to_owned(),
            ending: match ending {
                Ending::Released => 1,
                Ending::Expired => 2,
                Ending::Evicted => 3,
            },
        }
    }

    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        Self::decode(value).ok()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    pub(crate) fn ending(&self) -> Ending {
        match self.ending {
            1 => Ending::Released,
            3 => Ending::Evicted,
            _ => Ending::Expired,
        }
    }

    pub(crate) fn predecessor(&self) -> Predecessor {
        let owner = OwnerId::new(self.owner.as_str());
        Predecessor::new(self.ending(), self.seq, owner)
    }
}

/// The value of a grant record. `seq` is 0 if the same transaction creates the claim.
pub(crate) fn grant_record(seq: u64, owner: &OwnerId) -> Vec<u8> {
    EndRecord::new(seq, owner, Ending::Expired).bytes()
}

/// The recorded grant, as a predecessor that has expired: any other end leaves an end record.
pub(crate) fn read_grant_record(kv: &KeyValue) -> Option<Predecessor> {
    let mut granted = EndRecord::read(&kv.value)?.predecessor();
    granted.ending = Ending::Expired;
    if granted.seq == 0 {
        granted.seq = revision(kv.mod_revision);
    }
    Some(granted)
}

impl LockState {
    /// How the last hold before this sequence number ended.
    pub(crate) fn predecessor(&self, seq: u64) -> Option<Predecessor> {
        let earlier = |other: &&Predecessor| other.seq < seq;
        let ended = self.last_end.as_ref().filter(earlier);
        let granted = self.last_grant.as_ref().filter(earlier);
        let granted = granted.filter(|granted| !self.queue.contains_key(&granted.seq));
        match (ended, granted) {
            (Some(ended), Some(granted)) if granted.seq > ended.seq => Some(granted.clone()),
            (Some(ended), _) => Some(ended.clone()),
            (None, granted) => granted.cloned(),
        }
    }
}

impl Client {
    /// Operations that read how a claim ended; [`Self::end_reason`] reads their replies.
    pub(crate) fn read_end(&self, name: &Name, request: RequestId) -> [Op; 2] {
        [
            txn::get(&self.keys.gone(name, request)),
            txn::get(&self.keys.ended(name)),
        ]
    }

    /// Why an own claim, whose key does not exist, has ended.
    pub(crate) fn end_reason(
        &self,
        own: &OwnClaim,
        reply: &mut TxnReply,
    ) -> Result<LostReason, CallError> {
        let recorded = self.recorded_reason(own, reply)?;
        Ok(recorded.unwrap_or_else(|| self.reason_without_record(own)))
    }

    /// The reason by the end records; `None` if there is none for this claim.
    pub(crate) fn recorded_reason(
        &self,
        own: &OwnClaim,
        reply: &mut TxnReply,
    ) -> Result<Option<LostReason>, CallError> {
        let read = |kv: Option<KeyValue>| kv.and_then(|kv| EndRecord::read(&kv.value));
        let (gone, ended) = (read(reply.key()?), read(reply.key()?));
        let ended = ended.filter(|end| Some(end.seq) == own.seq);
        Ok(gone.or(ended).map(|end| end.ending().into()))
    }

    /// The reason if there is no end record: an expired lease, or a key that another client deleted.
    pub(crate) fn reason_without_record(&self, own: &OwnClaim) -> LostReason {
        let lease = own.lease.as_ref();
        let now = self.clock.now();
        let alive = lease.is_some_and(|l| !l.is_dead() && l.confirmed().until > now);
        match alive {
            true => LostReason::Forgotten,
            false => LostReason::Expired,
        }
    }
}

/// Records grants that came after waiting. (A claim that is granted at once writes its grant record itself.)
#[derive(Debug, Clone)]
pub(crate) struct GrantRecorder {
    pub(crate) session: Arc<Session>,
    pub(crate) keys: Keys,
    pub(crate) leases: Arc<Leases>,
    pub(crate) ledger: Arc<Ledger>,
}

impl GrantRecorder {
    /// Enters a grant that a watch has found. Returns `false` if it must not be delivered as a grant: the
    /// claim has a lock-delay, and its delay key must be put first.
    pub(crate) fn enter(&self, request: RequestId, grant: &Grant) -> bool {
        let mut complete = false;
        self.ledger.update(request, |own| {
            complete = own.delay_key.is_none();
            if complete {
                own.grant = Some(grant.clone());
            }
        });
        if complete {
            self.record_later(request);
        }
        complete
    }

    /// Records the grant if the hold lasts longer than [`RECORD_AFTER`].
    pub(crate) fn record_later(&self, request: RequestId) {
        self.record_after(request, RECORD_AFTER);
    }

    /// Records the grant of a long hold again, before the last record expires.
    pub(crate) fn refresh(&self, request: RequestId, own: &OwnClaim) {
        let (now, remember) = (self.session.clock.now(), self.session.config.remember);
        if own
            .recorded
            .is_some_and(|recorded| now.since(recorded) >= remember / 2)
        {
            self.record_after(request, Duration::ZERO);
        }
    }

    fn record_after(&self, request: RequestId, delay: Duration) {
        let recorder = self.clone();
        let recording = async move {
            recorder.session.clock.sleep(delay).await;
            if let Err(error) = recorder.record(request).await {
                tracing::debug!(?error, "grant not recorded: the next holder may learn less");
            }
        };
        if let Err(error) = keeper::spawn(recording) {
            tracing::debug!(%error, "grant not recorded: the next holder may learn less");
        }
    }

    async fn record(&self, request: RequestId) -> Result<(), CallError> {
        let Some(own) = self.ledger.get(request) else {
            return Ok(());
        };
        let Some(seq) = own.seq else { return Ok(()) };
        let retention = self.leases.retention().await?;
        let value = grant_record(seq, &own.record.owner());
        let put = txn::put(&self.keys.held(&own.name), value, retention);
        let txn = TxnRequest::when(vec![txn::created(&own.key, seq)], vec![put]);
        let now = self.session.clock.now();
        txn::run(&self.session, txn).await?;
        self.ledger.update(request, |own| own.recorded = Some(now));
        Ok(())
    }
}
