//! Opens the store from a URL.

use std::sync::Arc;

use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Result, StoreUrl};

use crate::ZooKeeperStore;
use crate::config::Config;

/// Opens the store that a URL names: `zookeeper://user:password@h1,h2,h3/path`.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, ErrorKind, blocking};
/// let url = "zookeeper://127.0.0.1:1/?timeout=200ms".parse()?; // no server listens there
/// let opened = blocking::block_on(clinch_zookeeper::open(&url, Clinch::context("app")?));
/// assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unreachable);
/// # Ok(()) }
/// ```
pub async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
    let config = Arc::new(Config::from_url(url)?);
    let opened = ZooKeeperStore::connect(config, &context).await;
    Ok(Arc::new(
        opened.map_err(|error| error.or_store("zookeeper"))?,
    ))
}

/// The stores of this crate.
///
/// ```
/// assert!(clinch_zookeeper::stores().iter().any(|info| info.scheme == "zookeeper"));
/// ```
pub fn stores() -> Vec<StoreInfo> {
    vec![ZooKeeperStore::describe()]
}
