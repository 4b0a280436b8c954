//! Transactions, in few words.

use std::sync::Arc;

use crate::error::{Trouble, strange};
use crate::keys::Span;
use crate::leases::header;
use crate::session::Session;
use crate::wire::{
    Compare, DeleteRangeRequest, KeyValue, Op, OpKind, OpReply, OpReplyKind, Operand, PutRequest,
    RangeRequest, Relation, Target, TxnRequest, TxnResponse,
};

/// The most comparisons and operations that etcd takes in one transaction by default.
pub(crate) const MOST: usize = 128;

/// The reply to a transaction.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) succeeded: bool,
    pub(crate) revision: u64,
    pub(crate) term: u64,
    pub(crate) replies: std::vec::IntoIter<OpReply>,
}

/// Runs a transaction.
pub(crate) async fn run(session: &Arc<Session>, txn: TxnRequest) -> Result<Done, Trouble> {
    let reply: TxnResponse = session.call("/etcdserverpb.KV/Txn", txn).await?;
    Done::new(reply)
}

impl Done {
    fn new(reply: TxnResponse) -> Result<Self, Trouble> {
        let (revision, term) = header(reply.header)?;
        Ok(Self {
            succeeded: reply.succeeded,
            revision,
            term,
            replies: reply.responses.into_iter(),
        })
    }

    /// The keys that the next operation found.
    pub(crate) fn keys(&mut self) -> Result<Vec<KeyValue>, Trouble> {
        match self.replies.next().and_then(|reply| reply.kind) {
            Some(OpReplyKind::Range(range)) => Ok(range.kvs),
            _ => Err(strange().into()),
        }
    }

    /// The key that the next operation found.
    pub(crate) fn key(&mut self) -> Result<Option<KeyValue>, Trouble> {
        Ok(self.keys()?.into_iter().next())
    }

    /// What the key had before the next operation, a put.
    pub(crate) fn previous(&mut self) -> Result<Option<KeyValue>, Trouble> {
        match self.replies.next().and_then(|reply| reply.kind) {
            Some(OpReplyKind::Put(put)) => Ok(put.prev_kv),
            _ => Err(strange().into()),
        }
    }

    /// The next operation, a transaction: it has no header of its own.
    pub(crate) fn nested(&mut self) -> Result<Self, Trouble> {
        match self.replies.next().and_then(|reply| reply.kind) {
            Some(OpReplyKind::Txn(txn)) => Ok(Self {
                succeeded: txn.succeeded,
                revision: self.revision,
                term: self.term,
                replies: txn.responses.into_iter(),
            }),
            _ => Err(strange().into()),
        }
    }
}

fn compare(key: Vec<u8>, range_end: Vec<u8>, relation: Relation, create: i64) -> Compare {
    Compare {
        relation: relation.into(),
        target: Target::Create.into(),
        key,
        operand: Some(Operand::Create(create)),
        range_end,
    }
}

/// The key is not there.
pub(crate) fn absent(key: &[u8]) -> Compare {
    compare(key.to_vec(), Vec::new(), Relation::Equal, 0)
}

/// The key is there, and was created at this revision.
pub(crate) fn created(key: &[u8], at: u64) -> Compare {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    // A key that is not there counts as created at 0.
    compare(key.to_vec(), Vec::new(), Relation::Equal, at.max(1))
}

/// The key hangs on this lease.
pub(crate) fn on_lease(key: &[u8], lease: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        target: Target::Lease.into(),
        key: key.to_vec(),
        operand: Some(Operand::Lease(lease)),
        range_end: Vec::new(),
    }
}

/// The key was put last at this revision.
pub(crate) fn changed(key: &[u8], at: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        target: Target::Mod.into(),
        key: key.to_vec(),
        operand: Some(Operand::Mod(at)),
        range_end: Vec::new(),
    }
}

/// No key is there.
pub(crate) fn empty(span: Span) -> Compare {
    compare(span.0, span.1, Relation::Equal, 0)
}

/// No key was created after this revision.
pub(crate) fn nothing_after(span: Span, revision: u64) -> Compare {
    let after = i64::try_from(revision)
        .unwrap_or(i64::MAX)
        .saturating_add(1);
    compare(span.0, span.1, Relation::Less, after)
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

pub(crate) fn range(span: Span) -> Op {
    op(OpKind::Range(RangeRequest {
        key: span.0,
        range_end: span.1,
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

/// A put that also tells what was there before.
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
