//! A plain connection of the driver for `clinch-bench`: the servers, login and TLS of a URL without the
//! store's sessions and scripts.

use clinch_core::{Error, ErrorKind, Result, StoreUrl};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, RedisError, Value};

use crate::cluster::redirected;
use crate::config::{Address, Config, Deployment, Topology};
use crate::connection::{Locate as _, client};
use crate::error::{connecting, sending};
use crate::sentinel::Sentinels;

/// Connects to the server that has `key`. `None` for a quorum: no single server has it.
///
/// The connection lives on the runtime that polls this.
pub async fn connect(url: &StoreUrl, key: &str) -> Result<Option<MultiplexedConnection>> {
    let config = Config::from_url(url)?;
    let address = match &config.deployment {
        Deployment::Single(Topology::One(address)) => address.clone(),
        Deployment::Single(Topology::Sentinel(hosts, master)) => {
            Sentinels::new(&config, hosts, master).locate().await?
        }
        Deployment::Single(Topology::Cluster(seeds)) => {
            return in_cluster(&config, seeds, key).await.map(Some);
        }
        Deployment::Quorum(..) => return Ok(None),
    };
    open(&config, &address).await.map(Some)
}

/// An error of the driver.
pub fn error(error: RedisError) -> Error {
    sending(error, "redis")
}

async fn open(config: &Config, to: &Address) -> Result<MultiplexedConnection> {
    let failed = |error| connecting(error, &to.to_string());
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.timeout))
        .set_response_timeout(None);
    let client = client(config, to, &config.login).map_err(failed)?;
    let connection = client.get_multiplexed_async_connection_with_config(&settings);
    connection.await.map_err(failed)
}

/// Follows the redirection of the first node that replies.
async fn in_cluster(
    config: &Config,
    seeds: &[Address],
    key: &str,
) -> Result<MultiplexedConnection> {
    let mut last = None;
    for seed in seeds {
        let mut connection = match open(config, seed).await {
            Ok(connection) => connection,
            Err(error) => {
                last = Some(error);
                continue;
            }
        };
        let look = redis::cmd("EXISTS").arg(key).take();
        let reply = connection.req_packed_command(&look).await;
        let moved = match reply.and_then(Value::extract_error) {
            Ok(_) => return Ok(connection),
            Err(error) => error,
        };
        let node = moved.redirect_node();
        match node.and_then(|(node, _)| redirected(node, seed)) {
            Some(node) => return open(config, &node).await,
            None => last = Some(error(moved)),
        }
    }
    Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unreachable, "no node replies")))
}
