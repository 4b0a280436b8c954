//! TLS from the files that the URL names.

use clinch_core::{Error, Result, TlsFiles};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

pub(super) fn client_config(files: &TlsFiles) -> Result<ClientTlsConfig> {
    let mut config = ClientTlsConfig::new();
    config = match &files.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca)?)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = &files.client {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

fn read(path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| Error::invalid(format!("cannot read {}: {error}", path.display())))
}
