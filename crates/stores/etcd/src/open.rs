//! Opens the store from a URL.

use std::sync::Arc;

use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Result, StoreUrl};

use crate::EtcdStore;
use crate::config::Config;

/// Opens the store that a URL names.
///
/// ```no_run
/// # async fn demo() -> clinch_core::Result<()> {
/// let url = "etcd://10.0.0.1,10.0.0.2,10.0.0.3".parse()?;
/// use clinch_core::store::Store;
/// let store = clinch_etcd::open(&url, clinch_core::Clinch::context("app")?).await?;
/// assert_eq!(store.info().scheme, "etcd");
/// # Ok(()) }
/// ```
pub async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
    let config = Config::from_url(url)?;
    let store = EtcdStore::connect(Arc::new(config), context).await;
    Ok(Arc::new(store.map_err(|error| error.or_store("etcd"))?))
}

/// The stores of this crate.
///
/// ```
/// assert_eq!(clinch_etcd::stores()[0].scheme, "etcd");
/// ```
pub fn stores() -> Vec<StoreInfo> {
    vec![EtcdStore::describe()]
}
