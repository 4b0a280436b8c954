//! What a lock on etcd can cost at least, and etcd's own lock, for the benchmark.

use std::sync::Arc;

use async_trait::async_trait;
use clinch_core::store::{Baton, Floor};
use clinch_core::{Error, ErrorKind, Result};

use crate::connection::Session;
use crate::leases::Leases;
use crate::txn;
use crate::wire::{
    DeleteRangeRequest, DeleteRangeResponse, LockRequest, LockResponse, TxnRequest, UnlockRequest,
    UnlockResponse,
};

/// A transaction that puts a key on a lease if it is not there, and its deletion.
pub(crate) struct PutFloor {
    session: Arc<Session>,
    lease: i64,
    prefix: String,
}

impl PutFloor {
    pub(crate) async fn new(session: Arc<Session>, leases: &Leases, client: &str) -> Result<Self> {
        let lease = leases.grant(600).await?.id;
        Ok(Self {
            session,
            lease,
            prefix: format!("clinch-floor/{client}/"),
        })
    }
}

#[async_trait]
impl Floor for PutFloor {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let key = format!("{}{key}", self.prefix).into_bytes();
        let txn = TxnRequest {
            compare: vec![txn::absent(&key)],
            success: vec![txn::put(&key, b"the one who holds it".to_vec(), self.lease)],
            failure: Vec::new(),
        };
        if !txn::run(&self.session, txn).await?.succeeded {
            return Err(Error::new(ErrorKind::Internal, "the key was taken"));
        }
        let request = DeleteRangeRequest {
            key,
            range_end: Vec::new(),
        };
        let path = "/etcdserverpb.KV/DeleteRange";
        let _: DeleteRangeResponse = self.session.call(path, request).await?;
        Ok(())
    }
}

/// The lock that etcd itself offers. Each side has a lease of its own: the lock is named after it.
pub(crate) struct LockBaton {
    session: Arc<Session>,
    lease: i64,
    name: Vec<u8>,
    held: Option<Vec<u8>>,
}

impl LockBaton {
    pub(crate) async fn new(session: Arc<Session>, leases: &Leases, name: &str) -> Result<Self> {
        let lease = leases.grant(600).await?.id;
        Ok(Self {
            session,
            lease,
            name: format!("clinch-baton/{name}").into_bytes(),
            held: None,
        })
    }
}

#[async_trait]
impl Baton for LockBaton {
    async fn take(&mut self) -> Result<()> {
        let request = LockRequest {
            name: self.name.clone(),
            lease: self.lease,
        };
        let reply: LockResponse = self
            .session
            .call_patiently("/v3lockpb.Lock/Lock", request)
            .await?;
        self.held = Some(reply.key);
        Ok(())
    }

    async fn pass(&mut self) -> Result<()> {
        if let Some(key) = self.held.take() {
            let request = UnlockRequest { key };
            let _: UnlockResponse = self.session.call("/v3lockpb.Lock/Unlock", request).await?;
        }
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        self.pass().await
    }
}
