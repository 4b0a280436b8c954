//! What an operator sees.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use clinch_core::store::{Freshness, LockView, PartyView};
use clinch_core::{ClientId, Name, Result, Token};

use crate::core::Core;
use crate::error::Trouble;
use crate::leases::header;
use crate::mirror::{Delay, Mirror, Party, Standing};
use crate::record::Record;
use crate::wire::{LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, RangeResponse};

/// Keys in one answer.
const PAGE: i64 = 5000;

impl Core {
    pub(crate) async fn check(&self, name: &Name, seq: u64) -> Result<Freshness> {
        let mirror = self.list(name).await.map_err(Trouble::of_a_read)?;
        Ok(match mirror.standing(seq) {
            Some(Standing::Holds) => Freshness::Current,
            _ => Freshness::Stale,
        })
    }

    pub(crate) async fn view(&self, name: &Name) -> Result<Option<LockView>> {
        let mirror = self.list(name).await.map_err(Trouble::of_a_read)?;
        let mut left = HashMap::new();
        self.view_of(name, &mirror, &mut left)
            .await
            .map_err(Trouble::of_a_read)
    }

    pub(crate) async fn views(&self, prefix: &str) -> Result<Vec<LockView>> {
        let (names, _) = self.all(prefix).await.map_err(Trouble::of_a_read)?;
        let (mut views, mut left) = (Vec::new(), HashMap::new());
        for (name, mirror) in names {
            let view = self.view_of(&name, &mirror, &mut left).await;
            views.extend(view.map_err(Trouble::of_a_read)?);
        }
        Ok(views)
    }

    /// All names that start so, as they are at one revision.
    pub(crate) async fn all(&self, prefix: &str) -> Result<(BTreeMap<Name, Mirror>, u64), Trouble> {
        let span = self.keys.starting(prefix);
        let mut request = RangeRequest {
            key: span.0,
            range_end: span.1,
            limit: PAGE,
            ..RangeRequest::default()
        };
        let mut names: BTreeMap<Name, Mirror> = BTreeMap::new();
        loop {
            let reply: RangeResponse = self
                .session
                .call("/etcdserverpb.KV/Range", request.clone())
                .await?;
            if request.revision == 0 {
                request.revision = reply.header.map_or(0, |header| header.revision);
            }
            let (revision, last) = (
                crate::mirror::revision(request.revision),
                reply.kvs.last().map(|kv| kv.key.clone()),
            );
            header(reply.header)?;
            for kv in reply.kvs {
                if let Some((name, kind)) = self.keys.parse(&kv.key) {
                    let mirror = names.entry(name).or_insert_with(|| Mirror::new(revision));
                    mirror.add(kind, kv);
                }
            }
            match last {
                Some(mut last) if reply.more => {
                    last.push(0);
                    request.key = last;
                }
                _ => return Ok((names, revision)),
            }
        }
    }

    async fn view_of(
        &self,
        name: &Name,
        mirror: &Mirror,
        left: &mut HashMap<i64, Duration>,
    ) -> Result<Option<LockView>, Trouble> {
        let (mut delayed, mut limit) = (Vec::new(), 1);
        for (_, delay) in mirror.running() {
            let left = self.left(delay.lease, left).await?;
            if !left.is_zero() {
                limit = delay.record.limit;
                delayed.push(delayed_view(delay, left));
            }
        }
        if mirror.line.is_empty() && delayed.is_empty() {
            return Ok(None);
        }
        let holders = mirror.holders();
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (place, (seq, party)) in mirror.line.iter().enumerate() {
            let lease_left = self.left(party.lease, left).await?;
            limit = party.record.as_ref().map_or(1, |record| record.limit);
            match place < holders {
                true => held.push(view(party, Token::new(*seq, 0), lease_left)),
                false => waiting.push(view(party, None, lease_left)),
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

    /// What is left of a lease.
    async fn left(&self, id: i64, known: &mut HashMap<i64, Duration>) -> Result<Duration, Trouble> {
        if id == 0 {
            // It hangs on nothing and never ends.
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
            Err(trouble) if trouble.is_lease_not_found() => 0,
            Err(trouble) => return Err(trouble),
        };
        let left = Duration::from_secs(ttl);
        known.insert(id, left);
        Ok(left)
    }
}

fn view(party: &Party, token: Option<Token>, left: Duration) -> PartyView {
    match &party.record {
        Some(record) => PartyView {
            age: record.age(),
            lease_left: left.min(record.lease()),
            ..record_view(record, token)
        },
        None => PartyView {
            owner: party.owner(),
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

/// Who it is; the times are not known.
fn record_view(record: &Record, token: Option<Token>) -> PartyView {
    PartyView {
        owner: record.owner(),
        client: record.client(),
        host: record.host.clone(),
        pid: record.pid,
        label: record.told_label(),
        value: record.published(),
        units: record.units,
        token,
        age: Duration::MAX,
        lease_left: Duration::MAX,
    }
}

fn delayed_view(delay: &Delay, left: Duration) -> PartyView {
    // etcd does not say when its hold has ended.
    PartyView {
        lease_left: left,
        ..record_view(&delay.record, Token::new(delay.seq, 0))
    }
}
