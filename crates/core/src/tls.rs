//! What drivers with encrypted connections need of this process.

/// Makes a choice of cryptography for rustls, unless the application has made one.
///
/// Drivers ask rustls for the process's choice. It has none by itself when two libraries are built
/// in, which any part of the application may bring about, and then the driver panics. A store calls
/// this before it connects.
///
/// ```
/// clinch_core::tls::choose_provider();
/// clinch_core::tls::choose_provider(); // the choice stands
/// ```
pub fn choose_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody may have been quicker; then it is their choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
