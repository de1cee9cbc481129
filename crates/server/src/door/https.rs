//! The door with TLS: for `https://PORT-ID.DOMAIN`, as users of E2B's SDKs write it. With the operator's certificate, or with one that
//! an authority of our own signs, which lies in the state directory.
//!
//! Trust: caller. Whoever greets has shown nothing yet; what is asked goes the way of every other request.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use time::{Duration, OffsetDateTime};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::DoorError;
use crate::config::Https;

/// Where the authority of our own lies in the state directory.
const PLACE: &str = "https";
const AUTHORITY: &str = "authority.crt";
const AUTHORITY_KEY: &str = "authority.key";
/// Clients trust the authority once; what it signs is short.
const AUTHORITY_VALID: Duration = Duration::days(3_650);
const LEAF_VALID: Duration = Duration::days(90);
/// When the next one is signed. The daemon may run for years.
const LEAF_RENEWED: Duration = Duration::days(30);
/// A caller whose clock is behind must not call it "not yet valid".
const BACK_DATED: Duration = Duration::hours(24);
/// The largest file that is read.
const MOST: u64 = 1024 * 1024;

/// What greets callers who speak TLS.
#[derive(Clone)]
pub struct TlsDoor {
    acceptor: TlsAcceptor,
    words: String,
}

impl std::fmt::Debug for TlsDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsDoor({})", self.words)
    }
}

impl TlsDoor {
    /// Reads the certificate, or makes one. `state` is the daemon's state directory.
    pub fn open(https: &Https, state: &Path) -> Result<Self, DoorError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (resolver, words): (Arc<dyn ResolvesServerCert>, String) = match &https.given {
            Some((certificate, key)) => {
                let given = given(certificate, key, &provider)?;
                (Arc::new(Given(Arc::new(given))), format!("*.{}", https.host))
            }
            None => {
                // Another domain has another authority: whoever trusts one, trusts it for its names.
                let place = state.join(PLACE).join(&https.host);
                let own = Own::open(&place, &https.host, provider.clone())?;
                let words = format!("*.{}; clients trust {}", https.host, place.join(AUTHORITY).display());
                (Arc::new(own), words)
            }
        };
        Self::with(resolver, provider, words).map_err(|why| unusable(&state.join(PLACE), why))
    }

    fn with(
        resolver: Arc<dyn ResolvesServerCert>,
        provider: Arc<CryptoProvider>,
        words: String,
    ) -> Result<Self, rustls::Error> {
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), words })
    }

    /// For which names, and whom clients trust for it.
    #[must_use]
    pub fn words(&self) -> &str {
        &self.words
    }

    pub(super) fn greet(&self, stream: TcpStream) -> Accept<TcpStream> {
        self.acceptor.accept(stream)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> DoorError {
    move |error| DoorError::Certificate { path: path.to_owned(), why: error.to_string() }
}

fn unusable(path: &Path, why: impl ToString) -> DoorError {
    DoorError::Certificate { path: path.to_owned(), why: why.to_string() }
}

fn read(path: &Path) -> Result<(Vec<u8>, fs::Metadata), DoorError> {
    let file = File::open(path).map_err(failed(path))?;
    let about = file.metadata().map_err(failed(path))?;
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).map_err(failed(path))?;
    Ok((text, about))
}

/// A key that everybody on the host may read is nobody's.
fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, DoorError> {
    let (text, about) = read(path)?;
    if about.mode() & 0o007 != 0 {
        return Err(unusable(path, "everybody on this host can read it (chmod o= it)"));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(path, error))
}

/// What the operator gives.
fn given(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, DoorError> {
    let (text, _) = read(certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| unusable(certificate, error))?;
    if chain.is_empty() {
        return Err(unusable(certificate, "there is no certificate in it"));
    }
    let made = CertifiedKey::from_der(chain, read_key(key)?, provider);
    made.map_err(|error| unusable(certificate, error))
}

#[derive(Debug)]
struct Given(Arc<CertifiedKey>);

impl ResolvesServerCert for Given {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// An authority of our own, and what it has signed last.
struct Own {
    issuer: Issuer<'static, KeyPair>,
    authority: CertificateDer<'static>,
    host: String,
    provider: Arc<CryptoProvider>,
    leaf: Mutex<Option<(OffsetDateTime, Arc<CertifiedKey>)>>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Own({})", self.host)
    }
}

impl Own {
    /// Takes the authority that is there, or makes one: clients that trust it go on to.
    fn open(place: &Path, host: &str, provider: Arc<CryptoProvider>) -> Result<Self, DoorError> {
        let (certificate, key) = (place.join(AUTHORITY), place.join(AUTHORITY_KEY));
        let there = certificate.exists() && key.exists();
        let key = if there { the_key(&key)? } else { make(place, host, &certificate, &key)? };
        let (text, _) = read(&certificate)?;
        let authority =
            CertificateDer::from_pem_slice(&text).map_err(|error| unusable(&certificate, error))?;
        let issuer = Issuer::new(of_authority(host), key);
        let own = Self { issuer, authority, host: host.to_owned(), provider, leaf: Mutex::default() };
        // What cannot be signed is told when the daemon starts, not to the first caller.
        own.current().map_err(|why| unusable(&certificate, why))?;
        Ok(own)
    }

    fn current(&self) -> Result<Arc<CertifiedKey>, String> {
        let now = OffsetDateTime::from(SystemTime::now());
        // Whoever panics while holding it leaves nothing half-written in it.
        let mut leaf = self.leaf.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((signed, leaf)) = &*leaf
            && now - *signed < LEAF_RENEWED
        {
            return Ok(Arc::clone(leaf));
        }
        let made = Arc::new(self.sign(now)?);
        *leaf = Some((now, Arc::clone(&made)));
        Ok(made)
    }

    fn sign(&self, now: OffsetDateTime) -> Result<CertifiedKey, String> {
        self.sign_for(vec![self.host.clone(), format!("*.{}", self.host)], now)
    }

    fn sign_for(&self, names: Vec<String>, now: OffsetDateTime) -> Result<CertifiedKey, String> {
        let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
        (params.not_before, params.not_after) = (now - BACK_DATED, now + LEAF_VALID);
        params.distinguished_name = named(&self.host);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| error.to_string())?;
        let signed = params.signed_by(&key, &self.issuer).map_err(|error| error.to_string())?;
        let chain = vec![signed.der().clone(), self.authority.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialized_der().to_vec()));
        CertifiedKey::from_der(chain, key, &self.provider).map_err(|error| error.to_string())
    }
}

impl ResolvesServerCert for Own {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().ok()
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    // At most 64 characters in a common name.
    names.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    names
}

/// The same for every start, so that what is signed names the authority that is on disk. It signs for one domain and no other: whoever
/// trusts it, trusts it for that. What permits names alone says nothing about addresses: those are excluded, all of them.
fn of_authority(host: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = named(&format!("blastbox {host}"));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName(host.to_owned())],
        excluded_subtrees: vec![
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([0; 4], 0)),
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix([0; 16], 0)),
        ],
    });
    params
}

fn the_key(path: &Path) -> Result<KeyPair, DoorError> {
    match read_key(path)? {
        PrivateKeyDer::Pkcs8(key) => KeyPair::try_from(&key).map_err(|error| unusable(path, error)),
        _ => Err(unusable(path, "it is no key that was made here")),
    }
}

/// Makes an authority. The key is there before the certificate: half of it is made anew.
fn make(place: &Path, host: &str, certificate: &Path, key_path: &Path) -> Result<KeyPair, DoorError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(place).map_err(failed(place))?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| unusable(key_path, error))?;
    let mut params = of_authority(host);
    let now = OffsetDateTime::from(SystemTime::now());
    (params.not_before, params.not_after) = (now - BACK_DATED, now + AUTHORITY_VALID);
    let made = params.self_signed(&key).map_err(|error| unusable(certificate, error))?;
    store(key_path, "PRIVATE KEY", key.serialized_der())?;
    store(certificate, "CERTIFICATE", made.der())?;
    Ok(key)
}

/// As text, in lines of 64 characters, for the daemon's user alone. It has its name when all of it is there: whoever is ended before leaves
/// a draft, which the next one writes over.
fn store(path: &Path, what: &str, der: &[u8]) -> Result<(), DoorError> {
    let mut text = format!("-----BEGIN {what}-----\n");
    let body = STANDARD.encode(der);
    for line in body.as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {what}-----\n"));
    let draft = path.with_extension("draft");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&draft, path)).map_err(failed(path))
}

#[cfg(test)]
mod tests;
