//! How a session is set up.

use clinch_core::Result;
use mysql_async::{Opts, OptsBuilder};

use crate::config::Config;

/// The first statements of each session.
///
/// READ COMMITTED: rows are locked, and never the gaps between them. A wait for a lock on a row or a table
/// ends after a second, so that the caller gets an error. Nothing depends on the server's default modes, time
/// zone or character sets, nor on when it closes idle sessions.
const SESSION: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET NAMES binary, SESSION autocommit=1, SESSION innodb_lock_wait_timeout=1, \
     SESSION lock_wait_timeout=1, SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION wait_timeout=28800",
];

/// The driver's options.
pub(crate) fn options(config: &Config) -> Result<Opts> {
    let builder = OptsBuilder::default()
        .ip_or_hostname(config.host.name.clone())
        .tcp_port(config.host.port)
        .user(config.user.clone())
        .pass(config.password.clone())
        .db_name(Some(config.database.clone()))
        .socket(
            config
                .socket
                .as_ref()
                .map(|path| path.display().to_string()),
        )
        .prefer_socket(false)
        .tcp_nodelay(true)
        .stmt_cache_size(32)
        // Set here, so that the driver does not query them.
        .max_allowed_packet(Some(16 * 1024 * 1024))
        .wait_timeout(Some(28_800))
        .setup(SESSION.to_vec());
    with_tls(builder, config)
}

#[cfg(feature = "tls")]
fn with_tls(builder: OptsBuilder, config: &Config) -> Result<Opts> {
    use crate::config::Check;
    use mysql_async::{ClientIdentity, SslOpts};
    let Some(tls) = &config.tls else {
        return Ok(builder.into());
    };
    clinch_core::tls::choose_provider();
    let mut ssl = SslOpts::default()
        .with_danger_skip_domain_validation(tls.check != Check::Full)
        .with_danger_accept_invalid_certs(tls.check == Check::Nothing);
    if let Some(ca) = &tls.ca {
        ssl = ssl
            .with_root_certs(vec![ca.clone().into()])
            .with_disable_built_in_roots(true);
    }
    if let Some((cert, key)) = &tls.client {
        let identity = ClientIdentity::new(cert.clone().into(), key.clone().into());
        ssl = ssl.with_client_identity(Some(identity));
    }
    Ok(builder.ssl_opts(Some(ssl)).into())
}

#[cfg(not(feature = "tls"))]
fn with_tls(builder: OptsBuilder, config: &Config) -> Result<Opts> {
    match config.tls {
        None => Ok(builder.into()),
        Some(_) => Err(clinch_core::Error::new(
            clinch_core::ErrorKind::Unsupported,
            "this build has no TLS for MySQL",
        )
        .with_advice("build it with the feature `mysql-tls`")),
    }
}
