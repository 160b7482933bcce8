//! Selects the cryptography library for TLS.

use rustls::crypto::{CryptoProvider, ring};

/// Makes rustls use ring, unless the application has already chosen a provider: the setting belongs to the process, not
/// to the client.
pub(super) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread was faster, with the same result.
        let _ = ring::default_provider().install_default();
    }
}
