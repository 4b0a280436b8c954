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
        let mut known = HashMap::new();
        self.view_of(name, &state, &mut known)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn views(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (names, _) = self
            .list_all(prefix)
            .await
            .map_err(CallError::without_effect)?;
        let (mut views, mut known) = (Vec::new(), HashMap::new());
        for (name, state) in names {
            let view = self.view_of(&name, &state, &mut known).await;
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

    /// The view of one name; `known` has the time left of leases that were looked up before.
    async fn view_of(
        &self,
        name: &Name,
        state: &LockState,
        known: &mut HashMap<i64, Duration>,
    ) -> Result<Option<LockView>, CallError> {
        let mut view = LockView::new(name.clone(), 1);
        for (_, delay) in state.running_delays() {
            let left = self.time_left(delay.lease, known).await?;
            if !left.is_zero() {
                view.limit = delay.record.limit;
                view.delayed.push(delay_view(delay, left));
            }
        }
        let holders = state.holders();
        for (position, (seq, participant)) in state.queue.iter().enumerate() {
            let left = self.time_left(participant.lease, known).await?;
            view.limit = participant.record.as_ref().map_or(1, |record| record.limit);
            match position < holders {
                true => {
                    let token = Token::new(*seq, 0);
                    view.holders
                        .push(participant_view(participant, token, left));
                }
                false => view.waiters.push(participant_view(participant, None, left)),
            }
        }
        Ok(Some(view).filter(|view| !view.is_empty()))
    }

    /// The time left of a lease.
    async fn time_left(
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

fn participant_view(participant: &Participant, token: Option<Token>, left: Duration) -> PartyView {
    let mut view = match &participant.record {
        Some(record) => {
            let mut view = record_view(record);
            view.age = record.age();
            view.lease_left = left.min(record.lease());
            view
        }
        None => {
            let mut view = PartyView::new(participant.owner(), ClientId::from_u64(0));
            view.age = Duration::ZERO;
            view.lease_left = left;
            view
        }
    };
    view.token = token;
    view
}

/// A view without token and times.
fn record_view(record: &Record) -> PartyView {
    let mut view = PartyView::new(record.owner(), record.client());
    view.host = record.host.clone();
    view.pid = record.pid;
    view.label = record.shared_label();
    view.value = record.shared_value();
    view.units = record.units;
    view
}

fn delay_view(delay: &Delay, left: Duration) -> PartyView {
    // etcd does not keep when the hold ended, so the age is unknown.
    let mut view = record_view(&delay.record);
    view.token = Token::new(delay.seq, 0);
    view.lease_left = left;
    view
}
