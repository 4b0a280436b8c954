//! From a URL to a store.

use std::sync::Arc;

use clinch_core::store::{OpenContext, Store, StoreInfo};
use clinch_core::{Result, StoreUrl};

use crate::MySqlStore;
use crate::config::Config;

/// Opens the store of a URL: `mysql://user:password@host:port/database`.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, ErrorKind, blocking};
/// let url = "mysql://127.0.0.1:1/app?timeout=200ms".parse()?; // nobody listens there
/// let opened = blocking::block_on(clinch_mysql::open(&url, Clinch::context("app")?));
/// assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unreachable);
/// # Ok(()) }
/// ```
pub async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Store>> {
    let config = Config::from_url(url)?;
    let opened = MySqlStore::connect(config, context).await;
    match opened {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.or_store("mysql")),
    }
}

/// What the stores of this crate are, without opening them.
///
/// ```
/// assert_eq!(clinch_mysql::stores()[0].scheme, "mysql");
/// ```
pub fn stores() -> Vec<StoreInfo> {
    vec![MySqlStore::describe()]
}
