//! etcd: a transaction that creates a key on a lease, and its deletion; etcd's own lock as the token.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use clinch::{Result, StoreUrl};
use clinch_etcd::raw;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::baseline::etcd_wire::{
    Compare, Done, Key, LeaseGrant, LeaseGrantReply, LeaseRevoke, Lock, LockReply, Op, Put, Txn,
    TxnReply,
};
use crate::baseline::{Baseline, Engine, HOLDER, TokenPassing, taken};

/// Seconds until the keys of a run that died are gone. Longer than a run, because leases are not renewed.
const TTL: i64 = 600;

pub(super) struct Etcd {
    connection: Arc<Connection>,
    /// Prefix of the keys.
    prefix: String,
    /// Leases that were granted.
    leases: Mutex<Vec<i64>>,
}

impl Etcd {
    pub(super) async fn open(url: &StoreUrl, id: &str) -> Result<Self> {
        Ok(Self {
            connection: Arc::new(Connection(raw::connect(url).await?)),
            prefix: format!("clinch-floor/{id}/"),
            leases: Mutex::default(),
        })
    }

    async fn lease(&self) -> Result<i64> {
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let reply: LeaseGrantReply = self.connection.call(path, LeaseGrant { ttl: TTL }).await?;
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.push(reply.id);
        Ok(reply.id)
    }
}

#[async_trait]
impl Engine for Etcd {
    async fn floor(&self) -> Result<Box<dyn Baseline>> {
        Ok(Box::new(Pairs {
            connection: self.connection.clone(),
            lease: self.lease().await?,
            prefix: self.prefix.clone(),
        }))
    }

    async fn token(&self, name: &str) -> Result<Option<Box<dyn TokenPassing>>> {
        Ok(Some(Box::new(OwnLock {
            connection: self.connection.clone(),
            // Each process needs its own: the lock's key is named after the lease.
            lease: self.lease().await?,
            name: format!("clinch-baton/{name}"),
            held: None,
        })))
    }

    async fn close(&self) -> Result<()> {
        let leases = {
            let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *leases)
        };
        for id in leases {
            let path = "/etcdserverpb.Lease/LeaseRevoke";
            let _: Done = self.connection.call(path, LeaseRevoke { id }).await?;
        }
        Ok(())
    }
}

struct Connection(raw::Connection);

impl Connection {
    async fn call<Q, A>(&self, path: &'static str, message: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = Request::new(message);
        if let Some(token) = &self.0.token {
            request.metadata_mut().insert("token", token.clone());
        }
        let mut grpc = Grpc::new(self.0.channel.clone());
        let ready = grpc.ready().await;
        ready.map_err(|error| raw::error(Status::from_error(error.into())))?;
        let codec = ProstCodec::<Q, A>::default();
        let reply = grpc.unary(request, PathAndQuery::from_static(path), codec);
        Ok(reply.await.map_err(raw::error)?.into_inner())
    }
}

struct Pairs {
    connection: Arc<Connection>,
    lease: i64,
    prefix: String,
}

#[async_trait]
impl Baseline for Pairs {
    async fn pair(&mut self, key: u64) -> Result<()> {
        let key = format!("{}{key}", self.prefix).into_bytes();
        let absent = Compare {
            relation: 0,
            target: 1,
            key: key.clone(),
            create_revision: Some(0),
        };
        let put = Put {
            key: key.clone(),
            value: HOLDER.to_owned(),
            lease: self.lease,
        };
        let create = Txn {
            compare: vec![absent],
            success: vec![Op { put: Some(put) }],
        };
        let reply: TxnReply = self.connection.call("/etcdserverpb.KV/Txn", create).await?;
        if !reply.succeeded {
            return Err(taken());
        }
        let path = "/etcdserverpb.KV/DeleteRange";
        let _: Done = self.connection.call(path, Key { key }).await?;
        Ok(())
    }
}

/// The lock service of etcd.
struct OwnLock {
    connection: Arc<Connection>,
    lease: i64,
    name: String,
    /// The key of the lock while it is held.
    held: Option<Vec<u8>>,
}

#[async_trait]
impl TokenPassing for OwnLock {
    async fn take(&mut self) -> Result<()> {
        let request = Lock {
            name: self.name.clone(),
            lease: self.lease,
        };
        let reply: LockReply = self.connection.call("/v3lockpb.Lock/Lock", request).await?;
        self.held = Some(reply.key);
        Ok(())
    }

    async fn pass(&mut self) -> Result<()> {
        if let Some(key) = self.held.take() {
            let _: Done = self
                .connection
                .call("/v3lockpb.Lock/Unlock", Key { key })
                .await?;
        }
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        self.pass().await
    }
}
