//! From a URL to a store.

use std::sync::Arc;

use clinch_core::store::{Admin, OpenContext, StoreInfo};
use clinch_core::{Result, StoreUrl, keeper};
use clinch_table::{Options, TableStore};

use crate::config::Config;
use crate::connection::Pool;
use crate::dialect::MySql;
use crate::info::info;
use crate::schema;
use crate::server::Server;

/// Opens the store of a URL: `mysql://user:password@host:port/database`.
///
/// ```
/// # fn main() -> clinch_core::Result<()> {
/// use clinch_core::{Clinch, ErrorKind, blocking};
/// let url = "mysql://127.0.0.1:1/app?timeout=200ms".parse()?; // no server there
/// let opened = blocking::block_on(clinch_mysql::open(&url, Clinch::context("app")?));
/// assert_eq!(opened.unwrap_err().kind(), ErrorKind::Unreachable);
/// # Ok(()) }
/// ```
pub async fn open(url: &StoreUrl, context: OpenContext) -> Result<Arc<dyn Admin>> {
    let config = Config::from_url(url)?;
    let opened = connect(config, context).await;
    match opened {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(error.or_store("mysql")),
    }
}

/// Connects to the server, checks that locks can live there, and makes the tables.
async fn connect(config: Config, context: OpenContext) -> Result<TableStore> {
    let pool = Pool::new(&config, context.operations)?;
    let opening = pool.clone();
    let (server, now) = keeper::run(async move {
        let server = Server::read(&opening).await?;
        server.check(opening.address())?;
        Ok((server, schema::ensure(&opening).await?))
    })
    .await?;
    let options = Options {
        info: info(),
        client: context.identity.info().id,
        remember: config.remember,
        now,
    };
    let dialect = MySql {
        ns: context.namespace.as_bytes().to_vec(),
        client: options.client,
        returning: server.is_mariadb() && !config.plain_dialect,
        stuck: Default::default(),
        pool,
        config,
    };
    TableStore::start(Arc::new(dialect), options)
}

/// Describes the stores of this crate, without opening them.
///
/// ```
/// let info = &clinch_mysql::stores()[0];
/// assert_eq!(info.scheme, "mysql");
/// assert!(info.capabilities.queue && info.capabilities.tokens);
/// ```
pub fn stores() -> Vec<StoreInfo> {
    vec![info()]
}
