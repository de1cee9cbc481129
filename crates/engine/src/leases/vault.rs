//! HashiCorp Vault and OpenBao, as far as lending needs them: read a path, renew a lease, revoke a lease.
//!
//! The wire is the documented HTTP API. A stored secret (KV version 2) comes as `data.data`, one that the server makes
//! as `data` with a `lease_id`. The token is read from its file for every question: agents rotate it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_policy::SecretName;
use hyper::Method;
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use super::ask::{Answer, Server};
use super::error::{BadSources, MintError};
use super::read::sized;
use super::value::{Minted, NotMinted};

/// Longest token.
const LONGEST_TOKEN: u64 = 16 * 1024;

/// How Vault is reached.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultAccess {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub address: String,
    /// The file with the token.
    pub token_file: PathBuf,
    /// The namespace, where there are several.
    pub namespace: Option<String>,
    /// Authorities to believe instead of the host's.
    pub ca_file: Option<PathBuf>,
}

/// Vault.
#[derive(Debug)]
pub(super) struct Vault {
    access: VaultAccess,
    server: Server,
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    lease_id: String,
    #[serde(default)]
    lease_duration: u64,
    #[serde(default)]
    renewable: bool,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    errors: Vec<String>,
}

impl Vault {
    pub(super) fn new(access: VaultAccess) -> Result<Self, BadSources> {
        let server =
            Server::parse(&access.address, access.ca_file.as_ref()).ok_or(BadSources::VaultAddress)?;
        let path = access.ca_file.clone().unwrap_or_default();
        let server = server.map_err(|source| BadSources::Read { path, source })?;
        Ok(Self { access, server })
    }

    pub(super) fn token_file(&self) -> &Path {
        &self.access.token_file
    }

    /// Reads a field of what is at a path.
    pub(super) async fn fetch(
        &self,
        secret: &SecretName,
        path: &str,
        field: &str,
    ) -> Result<Minted, NotMinted> {
        let reply = self.ask(secret, Method::GET, &format!("/v1/{path}"), Vec::new()).await?;
        let answer = |problem| MintError::Answer { secret: secret.clone(), problem };
        let Reply { lease_id, lease_duration, renewable, data } = parse(&reply.body).map_err(answer)?;
        let lease = (!lease_id.is_empty()).then_some(lease_id);
        let minted = match value(data, field).map_err(answer).and_then(|value| sized(secret.clone(), value)) {
            Ok(minted) => minted,
            Err(error) => return Err(NotMinted { error, lease }),
        };
        let ttl = lease.is_some().then(|| Duration::from_secs(lease_duration)).filter(|ttl| !ttl.is_zero());
        Ok(Minted { ttl, lease, renewable, ..minted })
    }

    /// Makes the life of a lease longer, and says how long it is now.
    pub(super) async fn renew(&self, secret: &SecretName, lease: &str) -> Result<Duration, MintError> {
        let body = serde_json::json!({ "lease_id": lease }).to_string().into_bytes();
        let reply = self.ask(secret, Method::PUT, "/v1/sys/leases/renew", body).await?;
        let answer = |problem| MintError::Answer { secret: secret.clone(), problem };
        Ok(Duration::from_secs(parse(&reply.body).map_err(answer)?.lease_duration))
    }

    /// Ends a lease. One that Vault says it does not know any more is as good as ended. Not so a path that is not found:
    /// that is said by whoever stands before Vault, or in a namespace that the lease is not in, while it lives on.
    pub(super) async fn revoke(&self, secret: &SecretName, lease: &str) -> Result<(), MintError> {
        let body = serde_json::json!({ "lease_id": lease }).to_string().into_bytes();
        match self.ask(secret, Method::PUT, "/v1/sys/leases/revoke", body).await {
            Ok(_) => Ok(()),
            Err(MintError::Vault { status: 400, reasons, .. }) if reasons.contains("invalid lease") => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        secret: &SecretName,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Answer, MintError> {
        let address = || self.access.address.clone();
        let unreachable =
            |source| MintError::VaultUnreachable { secret: secret.clone(), address: address(), source };
        let token = self.token().map_err(|source| MintError::File {
            secret: secret.clone(),
            path: self.access.token_file.clone(),
            source,
        })?;
        let namespace = self.access.namespace.as_deref().unwrap_or_default().as_bytes();
        let mut headers: Vec<(&'static str, &[u8])> =
            vec![("x-vault-token", token.trim_ascii()), ("x-vault-request", b"true")];
        if !namespace.is_empty() {
            headers.push(("x-vault-namespace", namespace));
        }
        let answer = self.server.ask(method, path, &headers, body).await.map_err(unreachable)?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let complaint: Complaint =
            serde_json::from_slice(&answer.body).unwrap_or(Complaint { errors: Vec::new() });
        let reasons: String =
            complaint.errors.join("; ").chars().filter(|c| !c.is_control()).take(300).collect();
        Err(MintError::Vault { secret: secret.clone(), status: answer.status.as_u16(), reasons })
    }

    fn token(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        use std::io::Read;
        let mut token = Zeroizing::new(Vec::with_capacity(4096));
        std::fs::File::open(&self.access.token_file)?.take(LONGEST_TOKEN).read_to_end(&mut token)?;
        Ok(token)
    }
}

/// Whether Vault says that it will never renew a lease. It answers 400 to much else, such as trouble with what is behind
/// it, so its words count; and 403 is about the token, which may be another one soon.
pub(super) fn is_final(error: &MintError) -> bool {
    const WORDS: [&str; 4] = ["invalid lease", "lease not found", "lease expired", "lease is not renewable"];
    matches!(error, MintError::Vault { status: 400, reasons, .. } if WORDS.iter().any(|words| reasons.contains(words)))
}

fn parse(body: &[u8]) -> Result<Reply, &'static str> {
    if body.is_empty() {
        return Ok(Reply { lease_id: String::new(), lease_duration: 0, renewable: false, data: None });
    }
    serde_json::from_slice(body).map_err(|_| "Vault's answer is not what its API says")
}

type Data = serde_json::Map<String, serde_json::Value>;

/// The field of what Vault has there.
fn value(data: Option<Data>, field: &str) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    let mut data = data.ok_or("Vault's answer has no data")?;
    // KV version 2 wraps what it stores, with its metadata beside it.
    let wrapped = data.contains_key("metadata");
    let found = match data.get("data").filter(|_| wrapped) {
        Some(stored) => stored.get(field),
        None => data.get(field),
    };
    let found = found.and_then(serde_json::Value::as_str);
    let value = found.map(|text| Zeroizing::new(text.as_bytes().to_vec()));
    wipe(&mut data);
    value.ok_or("what Vault has there has no such field")
}

/// Text of an answer that held a secret.
fn wipe(data: &mut Data) {
    for value in data.values_mut() {
        match value {
            serde_json::Value::String(text) => text.zeroize(),
            serde_json::Value::Object(inner) => wipe(inner),
            _ => {}
        }
    }
}
