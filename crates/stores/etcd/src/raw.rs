//! A plain connection of the driver for `clinch-bench`: the members, login and TLS of a URL without the
//! store's sessions and leases.

use std::sync::Arc;

use clinch_core::store::Operations;
use clinch_core::{Clock, Error, Result, StoreUrl};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use crate::config::Config;
use crate::connection::Members;
use crate::error::CallError;

/// One connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// To the first member that replied.
    pub channel: Channel,
    /// The value of the metadata key `token` that each request needs if the URL has a login.
    pub token: Option<MetadataValue<Ascii>>,
}

/// Connects. The connection lives on the runtime that polls this.
pub async fn connect(url: &StoreUrl) -> Result<Connection> {
    let config = Arc::new(Config::from_url(url)?);
    let members = Members::new(config, Clock::boot(), Operations::default());
    let live = members.connect_to_any().await?;
    Ok(Connection {
        channel: live.channel,
        token: live.token,
    })
}

/// An error of the driver.
pub fn error(status: Status) -> Error {
    CallError::Status(status, "etcd".to_owned()).into()
}
