//! Builds transactions and reads their replies.

use std::sync::Arc;

use clinch_core::Result;

use crate::connection::Session;
use crate::error::{CallError, unexpected_reply};
use crate::keys::KeyRange;
use crate::wire::{
    Compare, DeleteRangeRequest, KeyValue, Op, OpKind, OpReply, OpReplyKind, Operand, PutRequest,
    RangeRequest, Relation, Target, TxnRequest, TxnResponse, revision_and_term,
};

/// The most comparisons and operations that etcd accepts in one transaction by default.
pub(crate) const MAX_OPS: usize = 128;

impl TxnRequest {
    /// Operations without a condition.
    pub(crate) fn always(success: Vec<Op>) -> Self {
        Self::when(Vec::new(), success)
    }

    /// Operations that run if all comparisons are true.
    pub(crate) fn when(compare: Vec<Compare>, success: Vec<Op>) -> Self {
        Self {
            compare,
            success,
            failure: Vec::new(),
        }
    }
}

/// The reply to a transaction. Its operations' replies are read in order.
#[derive(Debug)]
pub(crate) struct TxnReply {
    pub(crate) succeeded: bool,
    pub(crate) revision: u64,
    pub(crate) term: u64,
    replies: std::vec::IntoIter<OpReply>,
}

/// Runs a transaction.
pub(crate) async fn run(session: &Arc<Session>, txn: TxnRequest) -> Result<TxnReply, CallError> {
    let reply: TxnResponse = session.call("/etcdserverpb.KV/Txn", txn).await?;
    let (revision, term) = revision_and_term(reply.header)?;
    Ok(TxnReply {
        succeeded: reply.succeeded,
        revision,
        term,
        replies: reply.responses.into_iter(),
    })
}

impl TxnReply {
    fn next(&mut self) -> Option<OpReplyKind> {
        self.replies.next().and_then(|reply| reply.kind)
    }

    /// Skips the replies of the next operations.
    pub(crate) fn skip(&mut self, operations: usize) {
        self.replies.by_ref().take(operations).for_each(drop);
    }

    /// The keys that the next operation, a range, has found.
    pub(crate) fn keys(&mut self) -> Result<Vec<KeyValue>> {
        match self.next() {
            Some(OpReplyKind::Range(range)) => Ok(range.kvs),
            _ => Err(unexpected_reply()),
        }
    }

    /// The key that the next operation, a get, has found.
    pub(crate) fn key(&mut self) -> Result<Option<KeyValue>> {
        Ok(self.keys()?.into_iter().next())
    }

    /// The key before the next operation, a put.
    pub(crate) fn previous(&mut self) -> Result<Option<KeyValue>> {
        match self.next() {
            Some(OpReplyKind::Put(put)) => Ok(put.prev_kv),
            _ => Err(unexpected_reply()),
        }
    }

    /// The reply of the next operation, a nested transaction. It has no header of its own.
    pub(crate) fn nested(&mut self) -> Result<Self> {
        match self.next() {
            Some(OpReplyKind::Txn(txn)) => Ok(Self {
                succeeded: txn.succeeded,
                revision: self.revision,
                term: self.term,
                replies: txn.responses.into_iter(),
            }),
            _ => Err(unexpected_reply()),
        }
    }
}

fn compare_created(key: Vec<u8>, range_end: Vec<u8>, relation: Relation, create: i64) -> Compare {
    Compare {
        relation: relation.into(),
        target: Target::Create.into(),
        key,
        operand: Some(Operand::Create(create)),
        range_end,
    }
}

/// The key does not exist.
pub(crate) fn absent(key: &[u8]) -> Compare {
    compare_created(key.to_vec(), Vec::new(), Relation::Equal, 0)
}

/// The key exists and was created at this revision.
pub(crate) fn created(key: &[u8], at: u64) -> Compare {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    // A key that does not exist counts as created at 0.
    compare_created(key.to_vec(), Vec::new(), Relation::Equal, at.max(1))
}

/// The key is attached to this lease.
pub(crate) fn on_lease(key: &[u8], lease: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        target: Target::Lease.into(),
        key: key.to_vec(),
        operand: Some(Operand::Lease(lease)),
        range_end: Vec::new(),
    }
}

/// The last put of the key was at this revision.
pub(crate) fn modified(key: &[u8], at: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        target: Target::Mod.into(),
        key: key.to_vec(),
        operand: Some(Operand::Mod(at)),
        range_end: Vec::new(),
    }
}

/// The range has no key.
pub(crate) fn empty(range: KeyRange) -> Compare {
    compare_created(range.0, range.1, Relation::Equal, 0)
}

/// The range has no key that was created after this revision.
pub(crate) fn none_after(range: KeyRange, revision: u64) -> Compare {
    let after = i64::try_from(revision)
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    compare_created(range.0, range.1, Relation::Less, after)
}

fn op(kind: OpKind) -> Op {
    Op { kind: Some(kind) }
}

pub(crate) fn get(key: &[u8]) -> Op {
    op(OpKind::Range(RangeRequest {
        key: key.to_vec(),
        ..RangeRequest::default()
    }))
}

pub(crate) fn get_key_only(key: &[u8]) -> Op {
    op(OpKind::Range(RangeRequest {
        key: key.to_vec(),
        keys_only: true,
        ..RangeRequest::default()
    }))
}

pub(crate) fn range(range: KeyRange) -> Op {
    op(OpKind::Range(RangeRequest {
        key: range.0,
        range_end: range.1,
        ..RangeRequest::default()
    }))
}

pub(crate) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> Op {
    op(OpKind::Put(PutRequest {
        key: key.to_vec(),
        value,
        lease,
        ..PutRequest::default()
    }))
}

/// A put whose reply has the key as it was before.
pub(crate) fn replace(key: &[u8], value: Vec<u8>, lease: i64) -> Op {
    op(OpKind::Put(PutRequest {
        key: key.to_vec(),
        value,
        lease,
        prev_kv: true,
        ..PutRequest::default()
    }))
}

pub(crate) fn delete(key: &[u8]) -> Op {
    op(OpKind::Delete(DeleteRangeRequest {
        key: key.to_vec(),
        range_end: Vec::new(),
    }))
}

pub(crate) fn nested(txn: TxnRequest) -> Op {
    op(OpKind::Txn(txn))
}
