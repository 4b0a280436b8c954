//! Renewal: a keep-alive for each lease, then a look whether the keys are still there.
//!
//! A keep-alive alone proves nothing about a key (it can be deleted, and a lease can be revoked while
//! its keep-alive succeeds), so both are asked, in this order.

use std::sync::Arc;

use clinch_core::store::{RenewReply, Renewal};
use clinch_core::{BootTime, Error, ErrorKind, LostReason, Result};

use crate::core::Core;
use crate::error::Trouble;
use crate::lease::Lease;
use crate::ours::Mine;
use crate::txn;
use crate::wire::TxnRequest;

/// A hold that is to be renewed, and where its answer goes.
struct Item<'a> {
    at: usize,
    renewal: &'a Renewal,
    mine: Mine,
    seq: u64,
    lease: Arc<Lease>,
    /// Its key has to be put again: on another lease, or with another value.
    put: bool,
}

impl Core {
    pub(crate) async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>> {
        let mut replies = vec![RenewReply::Unknown; renewals.len()];
        let mut items = Vec::new();
        let mut failed = None;
        let until = self.clock.now();
        for (at, renewal) in renewals.iter().enumerate() {
            let hold = &renewal.hold;
            let mine = self.ours.get(hold.request);
            let mine = mine.filter(|mine| mine.seq == Some(hold.seq) && mine.name == hold.name);
            let Some(mine) = mine else {
                let past = self.ours.past(hold.request);
                let reason = past.map_or(LostReason::Forgotten, |past| past.reason);
                set(&mut replies, at, RenewReply::Lost(reason));
                continue;
            };
            let until = until + renewal.lease;
            let delay = mine.record.delay();
            let lease = match mine.lease.clone() {
                Some(lease) if lease.is_for(renewal.lease, delay) => Ok(lease),
                _ => self.leases.get(renewal.lease, delay, until).await,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(trouble) => {
                    failed = Some(Trouble::of_a_read(trouble));
                    break;
                }
            };
            let value = renewal.value.as_deref();
            let moved = mine.lease.as_ref().is_none_or(|old| old.id != lease.id);
            items.push(Item {
                at,
                renewal,
                seq: hold.seq,
                put: moved || value.is_some_and(|v| mine.record.value.as_deref() != Some(v)),
                mine,
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
            let hanging = items.iter().filter(|item| item.lease.id == lease.id);
            let hanging: Vec<_> = hanging.collect();
            let kept = self.keep_all(&lease, &hanging, until, &mut replies).await;
            if let Err(error) = kept {
                // Nothing else is asked: each question could take as long.
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
                self.note_again(item.renewal.hold.request, &item.mine);
            }
        }
        Ok(replies)
    }

    /// Renews what hangs on one lease.
    async fn keep_all(
        &self,
        lease: &Arc<Lease>,
        items: &[&Item<'_>],
        until: BootTime,
        replies: &mut [RenewReply],
    ) -> Result<()> {
        let (kept, words) = (self.leases.keep(lease).await, lease.word());
        let alive = kept.map_err(Trouble::of_a_read)?;
        for batch in items.chunks(txn::MOST) {
            let longest = batch.iter().map(|item| item.renewal.lease).max();
            let until = until + longest.unwrap_or_default();
            let proven = async {
                let term = self.look(batch, replies).await?;
                match alive {
                    true => Ok(self.leases.proven(lease, words, term, until).await?),
                    false => Ok(()),
                }
            };
            if let Err(error) = proven.await {
                // The keys are there; that they stay is not known.
                for item in batch {
                    if replies.get(item.at) == Some(&RenewReply::Held) {
                        set(replies, item.at, RenewReply::Unknown);
                    }
                }
                return Err(error);
            }
            if !alive {
                self.bury_batch(batch, replies);
            }
        }
        Ok(())
    }

    /// Looks whether the keys are there, and puts those that have to be put.
    async fn look(&self, batch: &[&Item<'_>], replies: &mut [RenewReply]) -> Result<u64> {
        let (put, rest): (Vec<&Item<'_>>, Vec<&Item<'_>>) = batch.iter().partition(|item| item.put);
        let mut term = None;
        for item in put {
            term = Some(self.put_again(item, replies).await?);
        }
        if !rest.is_empty() {
            let txn = TxnRequest {
                compare: rest
                    .iter()
                    .map(|i| txn::created(&i.mine.key, i.seq))
                    .collect(),
                // With nothing to read, the answer need not be the cluster's.
                success: rest
                    .first()
                    .map(|i| txn::get_key_only(&i.mine.key))
                    .into_iter()
                    .collect(),
                failure: rest
                    .iter()
                    .map(|i| txn::get_key_only(&i.mine.key))
                    .collect(),
            };
            let mut done = txn::run(&self.session, txn)
                .await
                .map_err(Trouble::of_a_read)?;
            term = Some(done.term);
            let all = done.succeeded;
            for item in rest {
                let there = all || {
                    let key = done.key().map_err(Trouble::of_a_read)?;
                    key.is_some_and(|kv| crate::mirror::revision(kv.create_revision) == item.seq)
                };
                let reply = match there {
                    true => RenewReply::Held,
                    false => RenewReply::Lost(self.why(item).await?),
                };
                set(replies, item.at, reply);
            }
        }
        term.ok_or_else(|| Error::new(ErrorKind::Internal, "an empty renewal"))
    }

    async fn put_again(&self, item: &Item<'_>, replies: &mut [RenewReply]) -> Result<u64> {
        let mut record = item.mine.record.clone();
        record.set_lease(item.renewal.lease);
        if let Some(value) = item.renewal.value.as_deref() {
            record.value = Some(value.to_owned());
        }
        let mut success = vec![txn::put(&item.mine.key, record.bytes(), item.lease.id)];
        if let (Some(key), Some(lease)) = (&item.mine.delay, item.lease.companion) {
            success.push(txn::put(key, record.delay_bytes(item.seq), lease));
        }
        let txn = TxnRequest {
            compare: vec![txn::created(&item.mine.key, item.seq)],
            success,
            failure: Vec::new(),
        };
        let done = txn::run(&self.session, txn).await?;
        let reply = match done.succeeded {
            true => {
                self.ours.update(item.renewal.hold.request, |mine| {
                    mine.record = record;
                    mine.lease = Some(item.lease.clone());
                });
                RenewReply::Held
            }
            false => RenewReply::Lost(self.why(item).await?),
        };
        set(replies, item.at, reply);
        Ok(done.term)
    }

    /// Why a hold, whose key is not there, has ended.
    async fn why(&self, item: &Item<'_>) -> Result<LostReason> {
        let request = item.renewal.hold.request;
        let txn = TxnRequest {
            success: self.words(&item.mine.name, request).into(),
            ..TxnRequest::default()
        };
        let mut done = txn::run(&self.session, txn)
            .await
            .map_err(Trouble::of_a_read)?;
        let word = self
            .reason(&item.mine, &mut done)
            .map_err(Trouble::of_a_read)?;
        let reason = word.unwrap_or_else(|| self.reason_without_word(&item.mine));
        self.lost(&item.mine, request, reason);
        Ok(reason)
    }

    /// The lease is gone, and with it, now or in a moment, what hangs on it.
    fn bury_batch(&self, batch: &[&Item<'_>], replies: &mut [RenewReply]) {
        for item in batch {
            if replies.get(item.at) == Some(&RenewReply::Held) {
                let reason = LostReason::Expired;
                self.lost(&item.mine, item.renewal.hold.request, reason);
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
