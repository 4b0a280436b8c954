//! Views of locks, and the check of a sequencer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use clinch_core::store::{Freshness, LockView, PartyView};
use clinch_core::{ClientId, Name, Result, Token};

use crate::client::Client;
use crate::error::CallError;
use crate::lock_state::{Delay, LockState, Participant, Standing};
use crate::record::Record;
use crate::wire::{
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse, revision,
    revision_and_term,
};

/// Keys in one reply.
const PAGE: i64 = 5000;

impl Client {
    pub(crate) async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let state = self.list(name).await.map_err(CallError::without_effect)?;
        Ok(match state.standing(seq) {
            Some(Standing::Holds) => Freshness::Current,
            _ => Freshness::Stale,
        })
    }

    pub(crate) async fn view(&self, name: &Name) -> Result<Option<LockView>> {
        let state = self.list(name).await.map_err(CallError::without_effect)?;
        let mut left = HashMap::new();
        self.view_of(name, &state, &mut left)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn views(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (names, _) = self
            .list_all(prefix)
            .await
            .map_err(CallError::without_effect)?;
        let (mut views, mut left) = (Vec::new(), HashMap::new());
        for (name, state) in names {
            let view = self.view_of(&name, &state, &mut left).await;
            views.extend(view.map_err(CallError::without_effect)?);
        }
        Ok(views)
    }

    /// All names with this prefix, at one revision.
    pub(crate) async fn list_all(
        &self,
        prefix: &str,
    ) -> Result<(BTreeMap<Name, LockState>, u64), CallError> {
        let range = self.keys.starting(prefix);
        let mut request = RangeRequest {
            key: range.0,
            range_end: range.1,
            limit: PAGE,
            ..RangeRequest::default()
        };
        let mut names: BTreeMap<Name, LockState> = BTreeMap::new();
        loop {
            let reply: RangeResponse = self
                .session
                .call("/etcdserverpb.KV/Range", request.clone())
                .await?;
            if request.revision == 0 {
                request.revision = reply.header.map_or(0, |header| header.revision);
            }
            revision_and_term(reply.header)?;
            let at = revision(request.revision);
            let last = reply.kvs.last().map(|kv| kv.key.clone());
            for kv in reply.kvs {
                if let Some((name, kind)) = self.keys.parse(&kv.key) {
                    let state = names.entry(name).or_insert_with(|| LockState::new(at));
                    state.add(kind, kv);
                }
            }
            match last {
                Some(mut last) if reply.more => {
                    last.push(0);
                    request.key = last;
                }
                _ => return Ok((names, at)),
            }
        }
    }

    async fn view_of(
        &self,
        name: &Name,
        state: &LockState,
        left: &mut HashMap<i64, Duration>,
    ) -> Result<Option<LockView>, CallError> {
        let (mut delayed, mut limit) = (Vec::new(), 1);
        for (_, delay) in state.running_delays() {
            let left = self.left(delay.lease, left).await?;
            if !left.is_zero() {
                limit = delay.record.limit;
                delayed.push(delayed_view(delay, left));
            }
        }
        if state.queue.is_empty() && delayed.is_empty() {
            return Ok(None);
        }
        let holders = state.holders();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (position, (seq, participant)) in state.queue.iter().enumerate() {
            let lease_left = self.left(participant.lease, left).await?;
            limit = participant.record.as_ref().map_or(1, |record| record.limit);
            match position < holders {
                true => held.push(view(participant, Token::new(*seq, 0), lease_left)),
                false => waiting.push(view(participant, None, lease_left)),
            }
        }
        Ok(Some(LockView {
            name: name.clone(),
            limit,
            holders: held,
            waiters: waiting,
            delayed,
        }))
    }

    /// The time left of a lease.
    async fn left(
        &self,
        id: i64,
        known: &mut HashMap<i64, Duration>,
    ) -> Result<Duration, CallError> {
        if id == 0 {
            // No lease: the key never expires.
            return Ok(Duration::MAX);
        }
        if let Some(left) = known.get(&id) {
            return Ok(*left);
        }
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let request = LeaseTimeToLiveRequest { id };
        let reply: Result<LeaseTimeToLiveResponse, _> = self.session.call(path, request).await;
        let ttl = match reply {
            Ok(reply) => u64::try_from(reply.ttl).unwrap_or(0),
            Err(error) if error.is_lease_not_found() => 0,
            Err(error) => return Err(error),
        };
        let left = Duration::from_secs(ttl);
        known.insert(id, left);
        Ok(left)
    }
}

fn view(participant: &Participant, token: Option<Token>, left: Duration) -> PartyView {
    match &participant.record {
        Some(record) => PartyView {
            age: record.age(),
            lease_left: left.min(record.lease()),
            ..record_view(record, token)
        },
        None => PartyView {
            owner: participant.owner(),
            client: ClientId::from_u64(0),
            host: String::new(),
            pid: 0,
            label: None,
            value: None,
            units: 1,
            token,
            age: Duration::default(),
            lease_left: left,
        },
    }
}

/// A view without times.
fn record_view(record: &Record, token: Option<Token>) -> PartyView {
    PartyView {
        owner: record.owner(),
        client: record.client(),
        host: record.host.clone(),
        pid: record.pid,
        label: record.shared_label(),
        value: record.shared_value(),
        units: record.units,
        token,
        age: Duration::MAX,
        lease_left: Duration::MAX,
    }
}

fn delayed_view(delay: &Delay, left: Duration) -> PartyView {
    // etcd does not keep when the hold ended, so the age is unknown.
    PartyView {
        lease_left: left,
        ..record_view(&delay.record, Token::new(delay.seq, 0))
    }
}
