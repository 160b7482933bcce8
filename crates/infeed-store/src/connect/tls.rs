//! Who does the cryptography of TLS.

use rustls::crypto::{CryptoProvider, ring};

/// Has rustls use ring, unless the application chose somebody before: rustls asks the process, not the client.
pub(super) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Refused if another thread was quicker, which is as good.
        let _ = ring::default_provider().install_default();
    }
}
