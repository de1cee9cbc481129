//! The certificate authority of one box: made when its gateway starts, known to nobody else, gone with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

/// A guest whose clock is behind must not call the certificate "not yet valid".
const BACK_DATED: Duration = Duration::hours(24);
/// Longer than any box lives; browsers and Go refuse leaves of more than 398 days.
const VALID_FOR: Duration = Duration::days(90);
/// Names for which a certificate is kept. Wildcard rules let a guest ask for any number.
const MOST_LEAVES: usize = 256;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// The authority or a certificate of it cannot be made.
    #[error("cannot make a certificate for {what}")]
    Make {
        /// The authority, or the name.
        what: String,
        /// What the maker says.
        #[source]
        source: rcgen::Error,
    },
    /// The TLS library does not take what was made.
    #[error("cannot use the certificate for {what}")]
    Use {
        /// The name.
        what: String,
        /// What the library says.
        #[source]
        source: rustls::Error,
    },
}

/// The authority of one box. Its key exists in this process's memory only.
pub struct BoxCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// One key for all names: a second one would protect nothing that this process does not hold anyway.
    leaf_key: KeyPair,
    provider: Arc<CryptoProvider>,
    valid: (OffsetDateTime, OffsetDateTime),
    leaves: Mutex<Leaves>,
}

#[derive(Default)]
struct Leaves {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// Oldest first.
    order: VecDeque<String>,
}

impl std::fmt::Debug for BoxCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxCa(…)")
    }
}

impl BoxCa {
    /// A fresh authority. `box_name` is what a person sees who looks at the certificate.
    pub fn new(box_name: &str) -> Result<Self, CaError> {
        let make = |source| CaError::Make { what: "the box's authority".into(), source };
        let now = OffsetDateTime::from(SystemTime::now());
        let valid = (now - BACK_DATED, now + VALID_FOR);
        let mut params = CertificateParams::default();
        params.not_before = valid.0;
        params.not_after = valid.1;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = named(&format!("blastbox {box_name}"));
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(make)?;
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(Self { issuer, leaf_key, provider, valid, leaves: Mutex::default() })
    }

    /// What all its certificates are used with.
    pub(super) fn provider(&self) -> Arc<rustls::crypto::CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// The certificate that the box must trust.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// The same as text, for bundle files.
    pub fn pem(&self) -> String {
        super::pem::certificate(self.certificate())
    }

    /// A certificate for this name, made at most once while it is in use.
    pub fn leaf(&self, name: &str) -> Result<Arc<CertifiedKey>, CaError> {
        // A poisoned cache is still a cache: nothing is left half-written in it.
        if let Some(leaf) = self.leaves.lock().unwrap_or_else(PoisonError::into_inner).by_name.get(name) {
            return Ok(Arc::clone(leaf));
        }
        let leaf = Arc::new(self.sign(name)?);
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if leaves.by_name.insert(name.to_owned(), Arc::clone(&leaf)).is_none() {
            leaves.order.push_back(name.to_owned());
        }
        while leaves.order.len() > MOST_LEAVES {
            if let Some(oldest) = leaves.order.pop_front() {
                leaves.by_name.remove(&oldest);
            }
        }
        Ok(leaf)
    }

    fn sign(&self, name: &str) -> Result<CertifiedKey, CaError> {
        let make = |source| CaError::Make { what: name.to_owned(), source };
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(make)?;
        params.not_before = self.valid.0;
        params.not_after = self.valid.1;
        // The subject may be empty: clients read the alternative name, and a common name has at most 64 bytes.
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&self.leaf_key, &self.issuer).map_err(make)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialized_der().to_vec()));
        let chain = vec![certificate.der().clone(), self.certificate().clone()];
        CertifiedKey::from_der(chain, key, &self.provider)
            .map_err(|source| CaError::Use { what: name.to_owned(), source })
    }

    #[cfg(test)]
    fn kept(&self) -> usize {
        self.leaves.lock().unwrap().by_name.len()
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    // At most 64 characters in a common name.
    names.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    names
}

/// The certificate of exactly one name: that of the flow, which was held against the client's before.
#[derive(Debug)]
pub(super) struct OneName(pub(super) Arc<CertifiedKey>);

impl ResolvesServerCert for OneName {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_signed_once() {
        let ca = BoxCa::new("bx_test").unwrap();
        let first = ca.leaf("api.example.test").unwrap();
        assert!(Arc::ptr_eq(&first, &ca.leaf("api.example.test").unwrap()));
        assert!(!Arc::ptr_eq(&first, &ca.leaf("other.example.test").unwrap()));
    }

    #[test]
    fn a_guest_that_asks_for_ever_new_names_fills_nothing() {
        let ca = BoxCa::new("bx_test").unwrap();
        for number in 0..MOST_LEAVES + 20 {
            ca.leaf(&format!("n{number}.example.test")).unwrap();
        }
        assert_eq!(ca.kept(), MOST_LEAVES);
    }

    /// The two moments of a certificate, as DER writes those before 2050.
    fn validity(certificate: &[u8]) -> [&str; 2] {
        // A sequence of two moments of 13 characters each.
        let begins = certificate.windows(4).position(|bytes| *bytes == [0x30, 0x1e, 0x17, 13]).unwrap();
        [begins + 4, begins + 19].map(|at| std::str::from_utf8(&certificate[at..at + 13]).unwrap())
    }

    fn written(at: OffsetDateTime) -> String {
        let (year, month) = (at.year() % 100, u8::from(at.month()));
        format!("{year:02}{month:02}{:02}{:02}{:02}{:02}Z", at.day(), at.hour(), at.minute(), at.second())
    }

    #[test]
    fn a_guest_whose_clock_is_a_day_behind_believes_the_certificates() {
        let now = || OffsetDateTime::from(SystemTime::now());
        let before = now();
        let ca = BoxCa::new("bx_test").unwrap();
        let leaf = ca.leaf("api.example.test").unwrap();
        let after = now();
        for certificate in [ca.certificate(), leaf.end_entity_cert().unwrap()] {
            let [from, until] = validity(certificate);
            for (moment, shift) in [(from, -BACK_DATED), (until, VALID_FOR)] {
                let (least, most) = (written(before + shift), written(after + shift));
                assert!((least.as_str()..=most.as_str()).contains(&moment), "{least} {moment} {most}");
            }
        }
        assert!(BACK_DATED >= Duration::hours(24));
    }

    #[test]
    fn two_boxes_have_two_authorities() {
        let (one, other) = (BoxCa::new("bx_one").unwrap(), BoxCa::new("bx_two").unwrap());
        assert_ne!(one.certificate(), other.certificate());
        assert!(one.pem().starts_with("-----BEGIN CERTIFICATE-----\n"));
        assert!(!format!("{one:?}").contains("BEGIN"));
    }
}
