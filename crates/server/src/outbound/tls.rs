//! TLS as a client: rustls with ring, versions 1.2 and 1.3, certificates of the host or of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::target::BadTarget;

/// Where hosts keep the certificates that they trust.
const USUAL: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A client that trusts the certificates in a file, or those of the host.
pub(crate) fn client(ca: Option<&Path>) -> Result<ClientConfig, BadTarget> {
    let usual = || USUAL.iter().map(PathBuf::from).find(|path| path.exists());
    let path = ca.map(Path::to_owned).or_else(usual).unwrap_or_else(|| USUAL[0].into());
    let failed = |source| BadTarget::File { path: path.clone(), source };
    let text = std::fs::read(&path).map_err(failed)?;
    let mut roots = RootCertStore::empty();
    // What the library does not understand of a host's bundle is not trusted, and that is all.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).filter_map(Result::ok));
    if roots.is_empty() {
        return Err(BadTarget::NoCertificate { path });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(BadTarget::Tls)?.with_root_certificates(roots).with_no_client_auth())
}
