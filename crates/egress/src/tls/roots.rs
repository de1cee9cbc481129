//! Whom the gateway believes when it calls a server by name.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};

use super::pem::certificates;

/// Authorities of the servers outside.
#[derive(Debug, Clone)]
pub struct Roots {
    http1: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
}

/// What the gateway offers to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// A guest that speaks HTTP/1 may turn its connection into a WebSocket.
    Http1,
    /// What the server likes better.
    Both,
}

impl Roots {
    /// Mozilla's authorities, and those of a bundle: the host's own, or a test's.
    pub fn new(bundle: &[u8]) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        store.add_parsable_certificates(certificates(bundle));
        Self::of(store)
    }

    /// Only those of a bundle.
    pub fn only(bundle: &[u8]) -> Result<Self, rustls::Error> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(certificates(bundle));
        Self::of(store)
    }

    fn of(store: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        // Tickets of one name would be kept for the life of the box; connections are kept open instead.
        config.resumption = Resumption::in_memory_sessions(64);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut both = config.clone();
        both.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { http1: Arc::new(config), both: Arc::new(both) })
    }

    pub(crate) fn client(&self, offer: Offer) -> Arc<ClientConfig> {
        match offer {
            Offer::Http1 => Arc::clone(&self.http1),
            Offer::Both => Arc::clone(&self.both),
        }
    }
}
