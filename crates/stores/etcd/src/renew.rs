//! Renewal: a keep-alive for each lease, then a check that the keys still exist.
//!
//! A keep-alive alone proves nothing about a key: the key can be deleted, and a lease can be revoked
//! while its keep-alive succeeds. So both are sent, in this order.

use std::sync::Arc;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{BootTime, Error, ErrorKind, LostReason, Result};

use crate::client::Client;
use crate::error::CallError;
use crate::leases::Lease;
use crate::ledger::OwnClaim;
use crate::txn;
use crate::wire::{TxnRequest, revision};

/// A hold to renew.
struct Item<'a> {
    /// Index of its reply.
    at: usize,
    renewal: &'a Renewal,
    own: OwnClaim,
    seq: u64,
    lease: Arc<Lease>,
    /// Its key must be put again: on another lease, or with another value.
    put: bool,
}

impl Client {
    pub(crate) async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let mut replies = vec![RenewReply::Unknown; renewals.len()];
        let mut items = Vec::new();
        let mut failed = None;
        let until = self.clock.now();
        for (at, renewal) in renewals.iter().enumerate() {
            let hold = &renewal.hold;
            let own = self.ledger.get(hold.request);
            let own = own.filter(|own| own.seq == Some(hold.seq) && own.name == hold.name);
            let Some(own) = own else {
                let ended = self.ledger.ended(hold.request);
                let reason = ended.map_or(LostReason::Forgotten, |ended| ended.reason);
                set(&mut replies, at, RenewReply::Lost(reason));
                continue;
            };
            let until = until + renewal.lease;
            let delay = own.record.delay();
            let lease = match own.lease.clone() {
                Some(lease) if lease.is_for(renewal.lease, delay) => Ok(lease),
                _ => self.leases.get(renewal.lease, delay, until).await,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(error) => {
                    failed = Some(error.without_effect());
                    break;
                }
            };
            let value = renewal.value.as_deref();
            let moved = own.lease.as_ref().is_none_or(|old| old.id != lease.id);
            items.push(Item {
                at,
                renewal,
                seq: hold.seq,
                put: moved || value.is_some_and(|v| own.record.value.as_deref() != Some(v)),
                own,
                lease,
            });
        }
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        for item in &items {
            if !leases.iter().any(|lease| lease.id == item.lease.id) {
                leases.push(item.lease.clone());
            }
        }
        for lease in leases {
            let attached = items.iter().filter(|item| item.lease.id == lease.id);
            let attached: Vec<_> = attached.collect();
            let renewed = self.renew_on(&lease, &attached, until, &mut replies).await;
            if let Err(error) = renewed {
                // Further requests could each take as long to fail.
                failed = Some(error);
                break;
            }
        }
        let known = |reply: &RenewReply| *reply != RenewReply::Unknown;
        if let Some(error) = failed
            && !replies.iter().any(known)
        {
            return Err(error);
        }
        for item in &items {
            if replies.get(item.at) == Some(&RenewReply::Held) {
                self.recorder.refresh(item.renewal.hold.request, &item.own);
            }
        }
        Ok(replies)
    }

    /// Renews the holds on one lease.
    async fn renew_on(
        &self,
        lease: &Arc<Lease>,
        items: &[&Item<'_>],
        until: BootTime,
        replies: &mut [RenewReply],
    ) -> Result<()> {
        let (kept, confirmed) = (self.leases.keep_alive(lease).await, lease.confirmed());
        let alive = kept.map_err(CallError::without_effect)?;
        for batch in items.chunks(txn::MAX_OPS) {
            let longest = batch.iter().map(|item| item.renewal.lease).max();
            let until = until + longest.unwrap_or_default();
            let checked = async {
                let term = self.check_keys(batch, replies).await?;
                match alive {
                    true => Ok(self.leases.ensure(lease, confirmed, term, until).await?),
                    false => Ok(()),
                }
            };
            if let Err(error) = checked.await {
                // The keys exist, but their lease is not confirmed.
                for item in batch {
                    if replies.get(item.at) == Some(&RenewReply::Held) {
                        set(replies, item.at, RenewReply::Unknown);
                    }
                }
                return Err(error);
            }
            if !alive {
                self.mark_lost(batch, replies);
            }
        }
        Ok(())
    }

    /// Checks that the keys exist, and puts those that must be put. Returns the term of the reply.
    async fn check_keys(&self, batch: &[&Item<'_>], replies: &mut [RenewReply]) -> Result<u64> {
        let (put, rest): (Vec<&Item<'_>>, Vec<&Item<'_>>) = batch.iter().partition(|item| item.put);
        let mut term = None;
        for item in put {
            term = Some(self.put_again(item, replies).await?);
        }
        if !rest.is_empty() {
            let txn = TxnRequest {
                compare: rest
                    .iter()
                    .map(|i| txn::created(&i.own.key, i.seq))
                    .collect(),
                // Without a read, etcd may answer without its majority.
                success: rest
                    .first()
                    .map(|i| txn::get_key_only(&i.own.key))
                    .into_iter()
                    .collect(),
                failure: rest.iter().map(|i| txn::get_key_only(&i.own.key)).collect(),
            };
            let mut found = txn::run(&self.session, txn)
                .await
                .map_err(CallError::without_effect)?;
            term = Some(found.term);
            let all = found.succeeded;
            for item in rest {
                let exists = all || {
                    let key = found.key()?;
                    key.is_some_and(|kv| revision(kv.create_revision) == item.seq)
                };
                let reply = match exists {
                    true => RenewReply::Held,
                    false => RenewReply::Lost(self.loss_reason(item).await?),
                };
                set(replies, item.at, reply);
            }
        }
        term.ok_or_else(|| Error::new(ErrorKind::Internal, "an empty renewal"))
    }

    async fn put_again(&self, item: &Item<'_>, replies: &mut [RenewReply]) -> Result<u64> {
        let mut record = item.own.record.clone();
        record.set_lease(item.renewal.lease);
        if let Some(value) = item.renewal.value.as_deref() {
            record.value = Some(value.to_owned());
        }
        let mut success = vec![txn::put(&item.own.key, record.bytes(), item.lease.id)];
        if let (Some(key), Some(lease)) = (&item.own.delay_key, item.lease.delay_lease) {
            success.push(txn::put(key, record.delay_bytes(item.seq), lease));
        }
        let txn = TxnRequest::when(vec![txn::created(&item.own.key, item.seq)], success);
        let stored = txn::run(&self.session, txn).await?;
        let reply = match stored.succeeded {
            true => {
                self.ledger.update(item.renewal.hold.request, |own| {
                    own.record = record;
                    own.lease = Some(item.lease.clone());
                });
                RenewReply::Held
            }
            false => RenewReply::Lost(self.loss_reason(item).await?),
        };
        set(replies, item.at, reply);
        Ok(stored.term)
    }

    /// Why a hold, whose key does not exist, has ended.
    async fn loss_reason(&self, item: &Item<'_>) -> Result<LostReason> {
        let request = item.renewal.hold.request;
        let txn = TxnRequest::always(self.read_end(&item.own.name, request).into());
        let mut found = txn::run(&self.session, txn)
            .await
            .map_err(CallError::without_effect)?;
        let reason = self
            .end_reason(&item.own, &mut found)
            .map_err(CallError::without_effect)?;
        self.lost(&item.own, request, reason);
        Ok(reason)
    }

    /// The lease is gone; etcd deletes the attached keys with it, if not yet then soon.
    fn mark_lost(&self, batch: &[&Item<'_>], replies: &mut [RenewReply]) {
        for item in batch {
            if replies.get(item.at) == Some(&RenewReply::Held) {
                let reason = LostReason::Expired;
                self.lost(&item.own, item.renewal.hold.request, reason);
                set(replies, item.at, RenewReply::Lost(reason));
            }
        }
    }
}

fn set(replies: &mut [RenewReply], at: usize, reply: RenewReply) {
    if let Some(slot) = replies.get_mut(at) {
        *slot = reply;
    }
}
