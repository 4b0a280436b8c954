//! The options of a plain connection of the driver for `clinch-bench`.

use clinch_core::{Error, Result, StoreUrl};
use mysql_async::Opts;

use crate::config::Config;
use crate::connection::options;
use crate::error::RequestError;

/// What a URL says about connections.
#[derive(Debug)]
pub struct Settings {
    /// How to open one.
    pub options: Opts,
    /// How many a store of this URL would use.
    pub pool: usize,
}

/// Reads the URL.
pub fn settings(url: &StoreUrl) -> Result<Settings> {
    let config = Config::from_url(url)?;
    Ok(Settings {
        options: options::options(&config)?,
        pool: config.pool,
    })
}

/// An error of the driver.
pub fn error(error: mysql_async::Error) -> Error {
    RequestError::from(error).into_error("mysql")
}
