//! Certificates as text: written for the box's bundle files, read from the host's.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Largest bundle that is read; Debian's has 200 kB.
const LARGEST_BUNDLE: usize = 4 * 1024 * 1024;

/// One certificate, in lines of 64 characters.
pub(super) fn certificate(der: &CertificateDer<'_>) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> =
        (0..body.len()).step_by(64).filter_map(|at| body.get(at..body.len().min(at + 64))).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The certificates of a bundle; what is not one is passed over, as every reader of bundles does.
pub(super) fn certificates(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    if bundle.len() > LARGEST_BUNDLE {
        return Vec::new();
    }
    CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for length in [1, 47, 48, 49, 96, 700] {
            let der = CertificateDer::from(vec![7; length]);
            let text = certificate(&der);
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(certificates(format!("# a comment\n{text}{text}").as_bytes()), [der.clone(), der]);
        }
    }

    #[test]
    fn a_bundle_without_certificates_has_none() {
        assert_eq!(certificates(b"nothing"), []);
        assert_eq!(certificates(&vec![b'\n'; LARGEST_BUNDLE + 1]), []);
    }
}
