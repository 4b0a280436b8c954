//! The files of an encrypted connection.

use redis::{ClientTlsConfig, ErrorKind, RedisError, RedisResult, TlsCertificates};

use crate::config::Tls;

impl Tls {
    /// Reads the files, anew for each connection: certificates are renewed.
    pub(crate) fn certificates(&self) -> RedisResult<TlsCertificates> {
        choose_provider();
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

/// The driver asks rustls for the process's choice of cryptography, and panics where there is none:
/// so make one, unless the application has.
fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody may have been quicker; then it is their choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
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
