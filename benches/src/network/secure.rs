//! `https`: requests that a box's gateway reads, beside the same client without a box. Client and gateway share one processor.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde::Deserialize;

use super::world::{SERVER, World};
use super::{gateway_memory, least, most};
use crate::boxes::programs;
use crate::options::Options;
use crate::paper::{Finding, Row, Wrong};
use crate::process::conversing;

const NAME: &str = "api.bench.test";
const WORLD: &str = include_str!("secure.py");
const CLIENT: &str = include_str!("requests.py");
/// Where the gateway, and the client without one, look for authorities of the host.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const LEAST: f64 = 300.0;
/// Connections that wait while a gateway's memory is looked at, each after one request, and what it may take then, in MiB.
const WAITING: [(u32, f64); 2] = [(100, 14.0), (300, 28.0)];
const POLICY: &str = r#"
threat = "high"
accept = ["host-image", "shared-kernel"]
[network]
mode = "allow"
dangerously_allow_private = [{ cidr = "10.9.9.9/32", ports = [443] }]
allow = [{ host = "api.bench.test", protocol = "https", tls = "inspect", methods = ["GET"] }]
[network.limits]
flows = 4096
connections_per_second = 100000
questions_per_second = 100000
bandwidth = "1 TiB"
bytes = "64 TiB"
bytes_per_host = "64 TiB"
"#;

/// What the client says, in requests a second.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Found {
    kept: f64,
    fresh: f64,
}

/// Files that go with it.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, Wrong> {
        let path = std::env::temp_dir().join(format!("blastbox-bench-https-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str, content: &str) -> Result<String, Wrong> {
        let path = self.0.join(name);
        std::fs::write(&path, content)?;
        Ok(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever clears the directory for temporary files finds what is left.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A process that goes when nobody needs it any more.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    if !Path::new(BUNDLE).exists() {
        return Err("there are no authorities of the host: apt-get install ca-certificates".into());
    }
    let (world, folder) = (World::build()?, Folder::make()?);
    let (authority, certificate, key) = papers()?;
    let authority = folder.file("authority.pem", &authority)?;
    let resolver = folder.file("resolv.conf", &format!("nameserver {SERVER}\n"))?;
    let policy = folder.file("policy.toml", POLICY)?;
    let serves = [
        &folder.file("world.py", WORLD)?,
        SERVER,
        &folder.file("certificate.pem", &certificate)?,
        &folder.file("key.pem", &key)?,
    ];
    let _serving = serve(&world, &serves)?;
    // A view of the mounts in which the host believes the server's authority and asks its resolver.
    let view = "mount --bind \"$1\" \"$2\" && mount --bind \"$3\" /etc/resolv.conf && shift 3 && exec \"$@\"";
    let own_view = ["/usr/bin/unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", view, "sh"];
    let seen =
        [&own_view[..], &[&authority, BUNDLE, &resolver, "/usr/bin/taskset", "--cpu-list", "0"]].concat();
    let blastbox = programs()?.join("blastbox").display().to_string();
    let boxed = [&blastbox, "run", "--quiet", "--timeout", "300s", "--policy", &policy, "--lang", "python"];
    let believes = format!("SSL_CERT_FILE={BUNDLE}");
    let bare = ["/usr/bin/env", &believes, "/usr/bin/python3", "-"];
    let line = |words: &[&str]| world.on_host(&[&seen[..], words].concat());
    let (boxed, bare) = (line(&boxed), line(&bare));
    let seconds = if options.quick { 0.5 } else { 2.0 };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.samples(5, 2) {
        ours.push(ask(&boxed, seconds)?);
        theirs.push(ask(&bare, seconds)?);
    }
    let mut memories = Vec::new();
    for (lines, bound) in WAITING {
        memories.push((lines, bound, memory(&boxed, lines)?));
    }
    let row = |name, line: &[String], found: &[Found]| {
        let (kept, fresh) = (middle(found, |found| found.kept), middle(found, |found| found.fresh));
        let says = format!("{kept:6.0} requests/s over one connection {fresh:6.0} over one of its own each");
        Row::said(name, &format!("{} < requests.py", line.join(" ")), says)
    };
    let mut rows = vec![row("read by the gateway", &boxed, &ours), row("without a box", &bare, &theirs)];
    rows.extend(memories.iter().map(|(lines, _, memory)| {
        let how = format!("Pss of blastbox-egress, {lines} connections that it reads and that wait");
        let said = memory.map_or("not seen".to_owned(), |memory| format!("{memory:.1} MiB"));
        Row::said("memory of the gateway", &how, said)
    }));
    let bounds = memories.into_iter().map(|(lines, bound, memory)| {
        most(&format!("memory of a gateway that reads {lines} connections, in MiB"), bound, memory)
    });
    let requests = Some(middle(&ours, |found| found.kept));
    let requests = least("requests a second over one connection", LEAST, requests);
    Ok(Finding {
        title: "https · requests that a box's gateway reads and makes anew, client and gateway on one processor",
        rows,
        promises: std::iter::once(requests).chain(bounds).collect(),
    })
}

/// An authority, a certificate by it and its key.
fn papers() -> Result<(String, String, String), Wrong> {
    let text = |kind: &str, bytes: &[u8]| {
        let body = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than the server's: OpenSSL takes the same one for the same certificate.
    params.distinguished_name.push(DnType::CommonName, "authority of a benchmark");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let own = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![NAME.to_owned()])?.signed_by(&own, &authority)?;
    Ok((
        text("CERTIFICATE", authority.der()),
        text("CERTIFICATE", certificate.der()),
        text("PRIVATE KEY", &own.serialize_der()),
    ))
}

fn serve(world: &World, words: &[&str]) -> Result<Serving, Wrong> {
    let mut serving = Serving(conversing(&world.in_world(&[&["/usr/bin/python3"], words].concat()))?);
    let mut said = String::new();
    let from = serving.0.stdout.take().ok_or("the server has no pipe")?;
    BufReader::new(from).read_line(&mut said)?;
    if said.trim() == "ready" { Ok(serving) } else { Err("the server did not start".into()) }
}

/// Has Python run the client: for so long, or only to open connections and wait with them.
fn asking(line: &[String], seconds: f64, lines: u32) -> Result<Child, Wrong> {
    // Whoever does not answer is not waited for.
    let most = ["/usr/bin/timeout", "--kill-after=1", "90"].map(str::to_owned);
    let line: Vec<String> = most.iter().chain(line).cloned().collect();
    let mut asking = conversing(&line)?;
    let mut to = asking.stdin.take().ok_or("the client has no pipe")?;
    let linger = if lines > 0 { 2 } else { 0 };
    let settings = format!("HOST, SECONDS, LINES, LINGER = {NAME:?}, {seconds}, {lines}, {linger}\n");
    to.write_all(format!("{settings}{CLIENT}").as_bytes())?;
    Ok(asking)
}

/// Memory of the gateway, in MiB, while connections wait that it has read.
fn memory(line: &[String], lines: u32) -> Result<Option<f64>, Wrong> {
    let mut asking = asking(line, 0.0, lines)?;
    let (mut said, from) = (String::new(), asking.stdout.take().ok_or("the client has no pipe")?);
    BufReader::new(from).read_line(&mut said)?;
    let memory = gateway_memory(asking.id());
    let status = asking.wait()?;
    if status.success() { Ok(memory) } else { Err(format!("the client ended with {status}").into()) }
}

fn ask(line: &[String], seconds: f64) -> Result<Found, Wrong> {
    let done = asking(line, seconds, 0)?.wait_with_output()?;
    serde_json::from_slice(&done.stdout).map_err(|_| format!("the client ended with {}", done.status).into())
}

fn middle(found: &[Found], of: impl Fn(&Found) -> f64) -> f64 {
    let mut all: Vec<f64> = found.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}
