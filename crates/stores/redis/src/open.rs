//! Opens a store from a URL.

use std::sync::Arc;

use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Result, StoreUrl};

use crate::config::{Config, Deployment};
use crate::{GuestStore, QuorumStore, RedisStore};

/// Opens the store of a URL: `redis:`, `rediss:`, `redis+unix:`, `redis+sentinel:`,
/// `redis+cluster:` or `redis+quorum:`, with any layout.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, ErrorKind, blocking};
/// let url = "redis://127.0.0.1:1/?timeout=200ms".parse()?; // no server listens there
/// let opened = blocking::block_on(clinch_redis::open(&url, Clinch::context("app")?));
/// assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unreachable);
/// # Ok(()) }
/// ```
pub async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
    let config = Arc::new(Config::from_url(url)?);
    let scheme = config.scheme;
    let opened = dispatch(config, context).await;
    opened.map_err(|error| error.or_store(scheme))
}

async fn dispatch(config: Arc<Config>, context: OpenContext) -> Result<Arc<dyn Admin>> {
    let deployment = config.deployment.clone();
    Ok(match (config.guest, deployment) {
        (Some(layout), deployment) => {
            Arc::new(GuestStore::connect(config, layout, deployment, context).await?)
        }
        (None, Deployment::Single(topology)) => {
            Arc::new(RedisStore::connect(config, &topology, context).await?)
        }
        (None, Deployment::Quorum(hosts, need)) => {
            Arc::new(QuorumStore::connect(config, &hosts, need, context).await?)
        }
    })
}

/// The properties of the stores of this crate, without opening them.
///
/// ```
/// assert!(clinch_redis::stores().iter().any(|info| info.scheme == "redis"));
/// ```
pub fn stores() -> Vec<StoreInfo> {
    vec![
        RedisStore::describe("redis"),
        RedisStore::describe("redis+sentinel"),
        RedisStore::describe("redis+cluster"),
        QuorumStore::describe(false),
        GuestStore::describe("redis?layout=plain"),
        GuestStore::describe("redis?layout=redisson"),
    ]
}
