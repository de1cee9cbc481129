//! How servers inside are spoken to, where their owner says so: by which name, and on which ports with TLS.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::HeaderValue;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::e2b::no::No;

/// Stands for the port in the name that servers hear.
const PORT: &str = "${PORT}";
const LONGEST_NAME: usize = 255;
const MOST_PORTS: usize = 128;
/// That of what E2B's SDKs take for their own server, which is the daemon.
const ENVD: u16 = 49_983;

/// What an owner says of servers inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::e2b) struct Front {
    /// The host that they hear; `None`: as it was asked for.
    host: Option<String>,
    /// Ports on which they speak TLS.
    https: BTreeSet<u16>,
}

impl Front {
    pub(in crate::e2b) fn of(host: Option<&str>, https: Option<&[u16]>) -> Result<Self, No> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if let Some(host) = host {
            let rest = host.replace(PORT, "65535");
            if rest.is_empty() || rest.len() > LONGEST_NAME || !rest.bytes().all(plain) {
                return Err(refused(
                    "network.maskRequestHost is the name of a host, perhaps with a port, in which ${PORT} may stand",
                ));
            }
        }
        let https: BTreeSet<u16> = https.unwrap_or_default().iter().copied().collect();
        if https.len() > MOST_PORTS || https.contains(&0) || https.contains(&ENVD) {
            return Err(refused("network.httpsPorts are at most 128 ports, and neither 0 nor 49983"));
        }
        Ok(Self { host: host.map(str::to_owned), https })
    }

    /// The same, with what it leaves out as another says it.
    pub(in crate::e2b) fn or(self, other: &Self) -> Self {
        let https = if self.https.is_empty() { other.https.clone() } else { self.https };
        Self { host: self.host.or_else(|| other.host.clone()), https }
    }

    /// The host that a server on this port hears, where it is not the one that was asked for.
    pub(super) fn host(&self, port: u16) -> Option<HeaderValue> {
        let host = self.host.as_ref()?.replace(PORT, &port.to_string());
        HeaderValue::from_str(&host).ok()
    }

    pub(super) fn is_https(&self, port: u16) -> bool {
        self.https.contains(&port)
    }

    /// As E2B shows it.
    pub(in crate::e2b) fn show(&self, network: &mut Map<String, Value>) {
        if let Some(host) = &self.host {
            network.insert("maskRequestHost".to_owned(), json!(host));
        }
        if !self.https.is_empty() {
            network.insert("httpsPorts".to_owned(), json!(self.https));
        }
    }
}

fn refused(why: &str) -> No {
    No::bad(why).coded("sandbox_create_refused")
}

/// A line to a server inside.
pub(super) trait Line: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Line for T {}

/// The same line with TLS on it. An error: whoever listens there does not speak it.
pub(super) async fn encrypted(line: Box<dyn Line>) -> std::io::Result<Box<dyn Line>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let anybody = Arc::new(Anybody(provider.signature_verification_algorithms));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(std::io::Error::other)?.dangerous().with_custom_certificate_verifier(anybody);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").map_err(std::io::Error::other)?;
    let line = TlsConnector::from(Arc::new(config)).connect(name, line).await?;
    Ok(Box::new(line))
}

/// Takes every certificate, as E2B does: the line ends in the box, whoever answers there is the box, and a certificate would say no more.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_port_filled_in_and_is_one() {
        let front = |host: &str| Front::of(Some(host), None);
        for (host, heard) in [
            ("localhost", "localhost"),
            ("localhost:${PORT}", "localhost:3000"),
            ("${PORT}-my.example.com", "3000-my.example.com"),
            ("[::1]:${PORT}", "[::1]:3000"),
        ] {
            assert_eq!(front(host).unwrap().host(3000).unwrap(), heard);
        }
        assert!(Front::default().host(3000).is_none());
        let long = "a".repeat(256);
        for wrong in ["", "a b", "a\r\nx: y", "${port}", "a/b", "a@b", "ä", long.as_str()] {
            assert_eq!(front(wrong).unwrap_err().status(), 400, "{wrong:?}");
        }
    }

    #[test]
    fn ports_that_speak_tls_are_named_and_the_daemons_own_is_none() {
        let front = Front::of(None, Some(&[443, 8443, 443])).unwrap();
        assert!(front.is_https(443) && front.is_https(8443) && !front.is_https(80));
        let mut shown = Map::new();
        front.show(&mut shown);
        assert_eq!(Value::from(shown), json!({ "httpsPorts": [443, 8443] }));
        let many: Vec<u16> = (1..=200).collect();
        for wrong in [&[0][..], &[ENVD], &many] {
            assert_eq!(Front::of(None, Some(wrong)).unwrap_err().status(), 400);
        }
    }
}
