//! TLS from the files that the URL names.

use clinch_core::{Error, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::config::Tls;

impl Tls {
    pub(crate) fn client_config(&self) -> Result<ClientTlsConfig> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => config.with_native_roots(),
        };
        if let Some((cert, key)) = &self.client {
            config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(config)
    }
}

fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))
}
