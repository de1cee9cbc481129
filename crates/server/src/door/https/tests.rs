//! Who believes the door, and for which names.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;
use crate::testing::Scratch;

fn https(given: Option<(PathBuf, PathBuf)>) -> Https {
    Https { address: "127.0.0.1:0".parse().unwrap(), host: "sbx.test".to_owned(), given }
}

/// Whether a client that trusts this certificate believes that the door has this name.
async fn believes(door: &TlsDoor, trusted: &Path, name: &str) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let door = door.clone();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = door.greet(stream).await {
            stream.shutdown().await.ok();
        }
    });
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(trusted).unwrap()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(at).await.unwrap();
    let greeted = TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok();
    server.await.unwrap();
    greeted
}

#[tokio::test]
async fn an_authority_of_our_own_is_kept_and_vouches_for_names_of_the_domain_alone() {
    let scratch = Scratch::new("https");
    let authority = scratch.path().join("https/sbx.test/authority.crt");
    let door = TlsDoor::open(&https(None), scratch.path()).unwrap();
    let first = fs::read(&authority).unwrap();
    assert!(believes(&door, &authority, "8080-abc123.sbx.test").await);
    assert!(believes(&door, &authority, "sbx.test").await);
    assert!(!believes(&door, &authority, "8080-abc123.other.test").await);
    let key = fs::metadata(scratch.path().join("https/sbx.test/authority.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    // The next daemon signs with the same one: clients that trust it go on to.
    let door = TlsDoor::open(&https(None), scratch.path()).unwrap();
    assert_eq!(fs::read(&authority).unwrap(), first);
    assert!(believes(&door, &authority, "49983-x.sbx.test").await);
}

/// Who has the authority's key can sign anything; who trusts the authority believes what it signs for its domain.
#[tokio::test]
async fn what_the_authority_signs_for_another_name_or_an_address_is_believed_by_nobody() {
    let scratch = Scratch::new("stolen");
    let place = scratch.path().join("https/sbx.test");
    TlsDoor::open(&https(None), scratch.path()).unwrap();
    for (name, believed) in
        [("9-z.sbx.test", true), ("9-z.other.test", false), ("127.0.0.1", false), ("::1", false)]
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let own = Own::open(&place, "sbx.test", provider.clone()).unwrap();
        let signed = own.sign_for(vec![name.to_owned()], OffsetDateTime::from(SystemTime::now())).unwrap();
        let door = TlsDoor::with(Arc::new(Given(Arc::new(signed))), provider, name.to_owned()).unwrap();
        assert_eq!(believes(&door, &place.join("authority.crt"), name).await, believed, "{name}");
    }
}

#[tokio::test]
async fn an_authority_that_was_half_written_is_made_anew() {
    let scratch = Scratch::new("half");
    let place = scratch.path().join("https/sbx.test");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("authority.draft"), "-----BEGIN").unwrap();
    let door = TlsDoor::open(&https(None), scratch.path()).unwrap();
    assert!(believes(&door, &place.join("authority.crt"), "1-a.sbx.test").await);
    assert!(!place.join("authority.draft").exists());
}

#[tokio::test]
async fn a_certificate_of_the_operator_is_used_unless_everybody_can_read_its_key() {
    let scratch = Scratch::new("given");
    let made = rcgen::generate_simple_self_signed(vec!["*.sbx.test".to_owned()]).unwrap();
    let (certificate, key) = (scratch.path().join("chain.pem"), scratch.path().join("key.pem"));
    store(&certificate, "CERTIFICATE", made.cert.der()).unwrap();
    store(&key, "PRIVATE KEY", made.signing_key.serialized_der()).unwrap();
    let given = || https(Some((certificate.clone(), key.clone())));
    let door = TlsDoor::open(&given(), scratch.path()).unwrap();
    assert!(believes(&door, &certificate, "1-a.sbx.test").await);
    assert!(!scratch.path().join("https").exists());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = TlsDoor::open(&given(), scratch.path()).unwrap_err().to_string();
    assert!(refused.contains("key.pem") && refused.contains("everybody"), "{refused}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&certificate, "nothing").unwrap();
    let refused = TlsDoor::open(&given(), scratch.path()).unwrap_err().to_string();
    assert!(refused.contains("no certificate"), "{refused}");
}
