//! Certificates for a server, made when it starts.

use std::path::{Path, PathBuf};

use clinch_core::{Error, ErrorKind, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::Folder;

/// A new authority, and two certificates that it signed: for a server at `127.0.0.1` and
/// `localhost`, and for a client. All are PEM files.
///
/// ```
/// use clinch_testkit::servers::{Certificates, Folder};
/// let folder = Folder::new("demo")?;
/// let certificates = Certificates::make(&folder)?;
/// let ca = std::fs::read_to_string(certificates.ca_file()).unwrap();
/// assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok::<(), clinch_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Certificates {
    ca: PathBuf,
    server: Pair,
    client: Pair,
}

/// A certificate and its key.
#[derive(Debug)]
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// Makes them, as files of the folder.
    pub fn make(folder: &Folder) -> Result<Self> {
        let mut params = named("clinch test authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().map_err(refused)?;
        let ca = params.self_signed(&key).map_err(refused)?;
        let issuer = Issuer::new(params, key);
        let signed = |name: &str, purpose| -> Result<Pair> {
            let mut params = named(name)?;
            params.extended_key_usages = vec![purpose];
            let key = KeyPair::generate().map_err(refused)?;
            let certificate = params.signed_by(&key, &issuer).map_err(refused)?;
            Ok(Pair {
                certificate: folder.write(&format!("{name}.crt"), certificate.pem())?,
                key: folder.write(&format!("{name}.key"), key.serialize_pem())?,
            })
        };
        Ok(Self {
            ca: folder.write("ca.crt", ca.pem())?,
            server: signed("server", ExtendedKeyUsagePurpose::ServerAuth)?,
            client: signed("client", ExtendedKeyUsagePurpose::ClientAuth)?,
        })
    }

    /// The authority's certificate, for clients to trust.
    pub fn ca_file(&self) -> &Path {
        &self.ca
    }

    /// The server's certificate.
    pub fn server_certificate(&self) -> &Path {
        &self.server.certificate
    }

    /// The server's key.
    pub fn server_key(&self) -> &Path {
        &self.server.key
    }

    /// The client's certificate, for servers that require one.
    pub fn client_certificate(&self) -> &Path {
        &self.client.certificate
    }

    /// The client's key.
    pub fn client_key(&self) -> &Path {
        &self.client.key
    }
}

fn named(name: &str) -> Result<CertificateParams> {
    let names = ["127.0.0.1", "localhost"].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(refused)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn refused(e: rcgen::Error) -> Error {
    Error::new(ErrorKind::Internal, format!("no certificate: {e}")).with_source(e)
}
