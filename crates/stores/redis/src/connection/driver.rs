//! A client of the driver for one server.

use clinch_kit::url::Login;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};

use crate::config::{Address, Config};

/// A client of the driver for one server.
pub(crate) fn client(config: &Config, to: &Address, login: &Login) -> redis::RedisResult<Client> {
    let address = match to {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host) if config.tls.is_some() => ConnectionAddr::TcpTls {
            host: host.name.clone(),
            port: host.port,
            insecure: false,
            tls_params: None,
        },
        Address::Tcp(host) => ConnectionAddr::Tcp(host.name.clone(), host.port),
    };
    let mut redis = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_db(config.db)
        .set_lib_name("clinch", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &login.user {
        redis = redis.set_username(user);
    }
    if let Some(password) = &login.password {
        redis = redis.set_password(password);
    }
    let info: ConnectionInfo = address
        .into_connection_info()?
        .set_redis_settings(redis)
        .set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    match &config.tls {
        #[cfg(feature = "tls")]
        Some(tls) => Client::build_with_tls(info, tls.certificates()?),
        _ => Client::open(info),
    }
}
