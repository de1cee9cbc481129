//! A small world on loopback: a resolver, servers with certificates of a test authority, and a gateway in between.
//!
//! Guests connect to 127.0.0.1, servers listen on 127.0.0.2 at the same port, so that the name and port which a guest
//! writes are those that the gateway dials. Nothing leaves the machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use blastbox_egress::credentials::Secret;
use blastbox_egress::decide::{Ask, Said, Target, Verdict};
use blastbox_egress::house::House;
use blastbox_egress::inspection::Inspection;
use blastbox_egress::report::Reporter;
use blastbox_egress::tls::Roots;
use blastbox_egress::{http, tls};
use blastbox_policy::{Host, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::{Door, Record};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A gateway and everything around it.
pub(crate) struct World {
    pub(crate) house: Arc<House>,
    pub(crate) port: u16,
    pub(crate) box_ca: Vec<u8>,
    pub(crate) pem: String,
    pub(crate) variables: Vec<(String, String)>,
    records: Mutex<mpsc::Receiver<Record>>,
    seen: Mutex<Vec<Record>>,
    authority: Arc<Authority>,
    /// The server's side, bound before anybody knows the port.
    servers: Mutex<Option<TcpListener>>,
    /// The guests' side, held so that nobody else takes the port.
    guests: Mutex<Option<TcpListener>>,
}

/// The authority that the gateway believes.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn server(&self, names: &[&str], alpn: &[&[u8]]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

impl World {
    /// `allow` and `bind` are lists of rules and bindings, with `PORT` where the port goes; each secret is
    /// `(name, value)`.
    pub(crate) async fn new(allow: &str, bind: &str, secrets: &[(&str, &str)]) -> Self {
        let (servers, guests) = ports().await;
        let port = servers.local_addr().unwrap().port();
        let policy =
            seal(&allow.replace("PORT", &port.to_string()), &bind.replace("PORT", &port.to_string()), port);
        let authority = Arc::new(Authority::new());
        let secrets = policy
            .credentials()
            .bind
            .iter()
            .map(|binding| {
                let value = secrets.iter().find(|(name, _)| *name == binding.secret().as_str()).unwrap().1;
                (binding.clone(), Secret::new(value.into()).ok().unwrap(), None)
            })
            .collect();
        let roots = Roots::only(pem(authority.0.der()).as_bytes()).unwrap();
        let inspection = Inspection::with("bx_test", roots, secrets).unwrap();
        let (box_ca, variables) = (inspection.ca().certificate().to_vec(), inspection.keyring().variables());
        let (reporter, records) = Reporter::new();
        let house = House::new(
            BoxId::from_random([1; 20]),
            policy.network().clone(),
            vec![resolver().await],
            reporter,
        )
        .with_inspection(inspection);
        Self {
            house: Arc::new(house),
            port,
            pem: pem(&box_ca),
            box_ca,
            variables,
            records: Mutex::new(records),
            seen: Mutex::default(),
            authority,
            servers: Mutex::new(Some(servers)),
            guests: Mutex::new(Some(guests)),
        }
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The place at which servers of this world listen. Once.
    pub(crate) fn listener(&self) -> TcpListener {
        self.servers.lock().unwrap().take().unwrap()
    }

    /// Serves connections to any name with one kind of server.
    pub(crate) fn serve<F, R>(&self, config: Arc<ServerConfig>, mut each: F)
    where
        F: FnMut(tokio_rustls::server::TlsStream<TcpStream>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = self.listener();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A gateway that does not believe the certificate ends the connection here.
                if let Ok(stream) = TlsAcceptor::from(Arc::clone(&config)).accept(stream).await {
                    tokio::spawn(each(stream));
                }
            }
        });
    }

    /// A connection of the box to a name, as the gateway sees it: this end is the box's.
    pub(crate) async fn connect(&self, name: &str) -> Result<TcpStream, blastbox_wire::egress::Reason> {
        let target = Target::Name(name.parse::<Host>().unwrap());
        let allowed = match self.house.decide(&Ask { target: &target, port: self.port, said: Said::Nothing })
        {
            Verdict::Allow(allowed) => allowed,
            Verdict::Deny(reason) => return Err(reason),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (guest, gateway) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        self.hand_over(gateway.unwrap().0, allowed);
        Ok(guest.unwrap())
    }

    fn hand_over(&self, stream: TcpStream, allowed: blastbox_egress::decide::Allowed) {
        let plain = allowed.protocol() == blastbox_policy::Protocol::Http;
        let flow = self.house.admit(Door::Link, allowed).unwrap();
        let metered = self.house.metered(stream, &flow);
        let house = Arc::clone(&self.house);
        match plain {
            true => drop(tokio::spawn(http::serve(metered, flow, house))),
            false => drop(tokio::spawn(tls::serve(metered, flow, house))),
        }
    }

    /// Takes connections of real programs to one name at 127.0.0.1 and the world's port.
    pub(crate) fn open_for(self: &Arc<Self>, name: &'static str) {
        let listener = self.guests.lock().unwrap().take().unwrap();
        let world = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let target = Target::Name(name.parse::<Host>().unwrap());
                let ask = Ask { target: &target, port: world.port, said: Said::Nothing };
                let Verdict::Allow(allowed) = world.house.decide(&ask) else { continue };
                world.hand_over(stream, allowed);
            }
        });
    }

    /// A TLS connection of the box that believes the box's authority.
    pub(crate) async fn tls(
        &self,
        name: &str,
        alpn: &[u8],
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        self.tls_as(name, name, alpn).await
    }

    /// The same with another name in the hello than the one that was connected to.
    pub(crate) async fn tls_as(
        &self,
        name: &str,
        sni: &str,
        alpn: &[u8],
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = self.connect(name).await.unwrap();
        let mut store = RootCertStore::empty();
        store.add(CertificateDer::from(self.box_ca.clone())).unwrap();
        handshake(store, sni, alpn, stream).await
    }

    /// Everything that was reported so far.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut seen = self.seen.lock().unwrap();
        while let Ok(record) = self.records.lock().unwrap().try_recv() {
            seen.push(record);
        }
        seen.clone()
    }

    /// Reasons of everything that was denied so far.
    pub(crate) fn denials(&self) -> Vec<&'static str> {
        let reason = |record: Record| match record {
            Record::Denied { reason, .. } => Some(reason.as_str()),
            _ => None,
        };
        self.records().into_iter().filter_map(reason).collect()
    }

    /// `secret request` of everything that was lent so far.
    pub(crate) fn lent(&self) -> Vec<String> {
        let lent = |record: Record| match record {
            Record::Lent { secret, target, request, .. } => Some(format!("{secret} {target} {request}")),
            _ => None,
        };
        self.records().into_iter().filter_map(lent).collect()
    }
}

/// A client that believes nobody, the box's authority among them.
pub(crate) async fn unbelieving(
    name: &str,
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    handshake(RootCertStore::empty(), name, b"http/1.1", stream).await
}

async fn handshake(
    believed: RootCertStore,
    name: &str,
    alpn: &[u8],
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(believed)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// One port that is free on both addresses.
async fn ports() -> (TcpListener, TcpListener) {
    for _ in 0..64 {
        let servers = TcpListener::bind((SERVER, 0)).await.unwrap();
        let port = servers.local_addr().unwrap().port();
        if let Ok(guests) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            return (servers, guests);
        }
    }
    panic!("no port is free on both loopback addresses");
}

fn seal(allow: &str, bind: &str, port: u16) -> SealedPolicy {
    let mode = if bind.is_empty() { "none" } else { "brokered" };
    let text = format!(
        "threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{allow}]\n\
         dangerously_allow_private = [{{ cidr = \"127.0.0.2/32\", ports = [{port}] }}]\n\
         [credentials]\nmode = \"{mode}\"\nbind = [{bind}]\n"
    );
    blastbox_policy::parse(&text).and_then(blastbox_policy::Draft::seal).unwrap()
}

/// Says that every name is at 127.0.0.2, and has no other address.
async fn resolver() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            let question = &question[..length];
            let Some(end) = question[12..].iter().position(|byte| *byte == 0).map(|at| 12 + at + 5) else {
                continue;
            };
            let is_a = question[end - 4..end - 2] == [0, 1];
            let mut answer = question[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            answer.extend_from_slice(&question[12..end]);
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
                answer.extend(SERVER.octets());
            }
            socket.send_to(&answer, from).await.ok();
        }
    });
    address
}
