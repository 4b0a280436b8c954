//! The files of an encrypted connection.

use redis::{ClientTlsConfig, ErrorKind, RedisError, RedisResult, TlsCertificates};

use crate::config::Tls;

impl Tls {
    /// Reads the files, anew for each connection: certificates are renewed.
    pub(crate) fn certificates(&self) -> RedisResult<TlsCertificates> {
        clinch_core::tls::choose_provider();
        let client_tls = match &self.client {
            Some((cert, key)) => Some(ClientTlsConfig {
                client_cert: read(cert)?,
                client_key: read(key)?,
            }),
            None => None,
        };
        Ok(TlsCertificates {
            client_tls,
            root_cert: self.ca.as_deref().map(read).transpose()?,
        })
    }
}

fn read(path: &(impl AsRef<std::path::Path> + ?Sized)) -> RedisResult<Vec<u8>> {
    let path = path.as_ref();
    std::fs::read(path).map_err(|error| {
        RedisError::from((
            ErrorKind::InvalidClientConfig,
            "cannot read",
            format!("{}: {error}", path.display()),
        ))
    })
}
