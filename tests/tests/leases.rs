//! Leases of boxes that were never made: given back, written down, and no burden for anybody else.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blastbox_tests::{Caller, Served, both_ways, remembered, wait_until};
use serde_json::json;

both_ways!(
    a_box_that_cannot_be_made_gives_its_leases_back_before_run_returns,
    leases_of_a_box_that_was_never_made_are_in_the_ledger,
    a_source_that_hangs_holds_up_its_own_boxes_only,
    a_daemon_forgets_the_secrets_of_boxes_that_are_over,
    a_lease_that_cannot_be_read_is_told_when_the_daemon_starts,
);

const POLICY: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\"]\n[network]\nmode = \"allow\"\n\
    allow = [{ host = \"api.example.test\", tls = \"inspect\" }]\n[credentials]\nmode = \"brokered\"\n\
    bind = [{ secret = \"db\", host = \"api.example.test\" }]\n";

/// A server with Vault's wire on loopback: every secret that it makes has this value, or it never answers.
struct Vault {
    address: String,
    /// `GET PATH`, or the lease that was revoked.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Vault {
    fn start(password: Option<&'static str>) -> Self {
        Self::revoking(password, true)
    }

    /// One that takes a lease back, or does not.
    fn revoking(password: Option<&'static str>, revokes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&asked);
        // Ends with the process of the test.
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some((line, body)) = request(&stream) else { continue };
                let revoked = serde_json::from_str::<serde_json::Value>(&body).ok();
                let revoked =
                    revoked.and_then(|body| Some(format!("revoked {}", body["lease_id"].as_str()?)));
                if revoked.is_some() && !revokes {
                    let sealed =
                        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    (&stream).write_all(sealed.as_bytes()).ok();
                    continue;
                }
                told.lock().unwrap().push(revoked.unwrap_or(line));
                match password {
                    Some(password) => answer(&stream, password),
                    None => unanswered.push(stream),
                }
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// A policy that binds a secret of this server, and the operator's file that says so.
    fn files(&self, caller: &Caller) -> (String, String) {
        use std::os::unix::fs::PermissionsExt as _;
        let private = |path: std::path::PathBuf| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let token = private(caller.file("vault.token", "s.token"));
        let sources = format!(
            "[vault]\naddress = \"{}\"\ntoken_file = {token:?}\n[secrets.db]\nhosts = [\"api.example.test\"]\n\
             vault = {{ path = \"database/creds/app\", field = \"password\" }}\n",
            self.address
        );
        (private(caller.file("policy.toml", POLICY)), private(caller.file("secrets.toml", sources)))
    }
}

fn request(stream: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let line = first.strip_suffix(" HTTP/1.1\r\n")?.to_owned();
    Some((line, String::from_utf8(body).ok()?))
}

fn answer(mut stream: &TcpStream, password: &str) {
    let body = json!({ "lease_id": "database/creds/app/1", "renewable": false, "lease_duration": 100,
                       "data": { "password": password } })
    .to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // Whoever asked may be gone.
    stream.write_all(format!("{head}{body}").as_bytes()).ok();
}

const MADE_AND_REVOKED: [&str; 2] = ["GET /v1/database/creds/app", "revoked database/creds/app/1"];
/// Too short to be scrubbed from answers: the gateway refuses it, after it was made.
const UNFIT: &str = "short";

/// Whether this caller can have boxes with network here.
fn has_tun(caller: &Caller) -> bool {
    let ended = caller.blastbox(["run", "-q", "--allow", "api.example.test", "--", "true"]).end();
    let missing = ended.err.contains("/dev/net/tun");
    if missing {
        caller.skip("boxes with network need /dev/net/tun");
    }
    !missing
}

fn a_box_that_cannot_be_made_gives_its_leases_back_before_run_returns(caller: &Caller) {
    if !has_tun(caller) {
        return;
    }
    let vault = Vault::start(Some(UNFIT));
    let (policy, sources) = vault.files(caller);
    let words = ["run", "--policy", &policy, "--secrets", &sources, "--", "true"];
    let ended = caller.blastbox(words).end();
    assert!(ended.code == 125 && ended.err.contains("at least 8"), "{}", ended.err);
    assert_eq!(vault.asked(), MADE_AND_REVOKED);
    // Nobody is left who would try again: whoever runs it is told, also with `-q`.
    let sealed = Vault::revoking(Some(UNFIT), false);
    let (policy, sources) = sealed.files(caller);
    let ended =
        caller.blastbox(["run", "-q", "--policy", &policy, "--secrets", &sources, "--", "true"]).end();
    assert_eq!((ended.code, sealed.asked()), (125, vec![MADE_AND_REVOKED[0].to_owned()]), "{}", ended.err);
    assert!(ended.err.contains("blastbox: secret db: not"), "{}", ended.err);
}

fn leases_of_a_box_that_was_never_made_are_in_the_ledger(caller: &Caller) {
    if !has_tun(caller) {
        return;
    }
    let vault = Vault::start(Some(UNFIT));
    let (policy, sources) = vault.files(caller);
    let daemon = Served::start(caller, &["--secrets", &sources]);
    let ended = daemon.blastbox(["create", "--policy", &policy]).end();
    assert!(ended.code != 0 && ended.err.contains("at least 8"), "{}", ended.err);
    assert_eq!(vault.asked(), MADE_AND_REVOKED);
    daemon.stop();
    let ledger = ledger(caller);
    for event in ["secret_minted", "secret_revoked"] {
        assert_eq!(ledger.matches(&format!("\"{event}\"")).count(), 1, "{event} in {ledger}");
    }
}

/// Everything that was written.
fn ledger(caller: &Caller) -> String {
    let folder = caller.place().join("state/ledger");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()).collect()
}

fn a_source_that_hangs_holds_up_its_own_boxes_only(caller: &Caller) {
    // More than are made at the same time.
    const HANGING: usize = 40;
    if !has_tun(caller) {
        return;
    }
    let vault = Vault::start(None);
    let (_, sources) = vault.files(caller);
    let daemon = Served::start(caller, &["--secrets", &sources]);
    let body = json!({ "policy": POLICY, "limits": { "memory": "32MiB", "cpus": 0.05 } }).to_string();
    let request =
        format!("POST /v1/boxes HTTP/1.1\r\nhost: blastbox\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let asking: Vec<UnixStream> = (0..HANGING)
        .map(|_| {
            let mut stream = UnixStream::connect(daemon.socket()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert!(wait_until(|| vault.asked().len() >= HANGING), "only {} asked", vault.asked().len());
    let made = daemon.ask(["create", "--memory", "32MiB"]);
    // It was made while they hang: none of them has an answer yet.
    for stream in &asking {
        stream.set_nonblocking(true).unwrap();
        let mut first = [0];
        let seen = (&mut &*stream).read(&mut first).map_err(|error| error.kind());
        assert_eq!(seen, Err(std::io::ErrorKind::WouldBlock), "answered before the other box was made");
    }
    assert_eq!(daemon.sh(&made, "echo runs"), "runs");
}

/// Nothing else is called that.
const PASSWORD: &str = "a-password-that-nothing-else-is-called-0123456789";

/// Its own, and what its libraries for HTTP had of the server's answers.
fn a_daemon_forgets_the_secrets_of_boxes_that_are_over(caller: &Caller) {
    if !has_tun(caller) {
        return;
    }
    let vault = Vault::start(Some(PASSWORD));
    let (policy, sources) = vault.files(caller);
    let daemon = Served::start(caller, &["--secrets", &sources]);
    let boxes: Vec<String> = (0..10).map(|_| daemon.ask(["create", "--policy", &policy])).collect();
    for id in &boxes {
        assert_eq!(daemon.sh(id, "echo runs"), "runs");
        daemon.ask(["kill", id]);
    }
    assert!(wait_until(|| vault.asked().len() >= 2 * boxes.len()), "{:?}", vault.asked());
    let left = || remembered(daemon.id(), PASSWORD);
    if left().is_none() {
        return caller.skip("the daemon's memory cannot be read here");
    }
    assert!(wait_until(|| left() == Some(0)), "{:?} times", left());
}

fn a_lease_that_cannot_be_read_is_told_when_the_daemon_starts(caller: &Caller) {
    let leases = caller.directory("state").join("leases");
    std::fs::create_dir(&leases).unwrap();
    let damaged = leases.join("bx_damaged.db.0.lease");
    std::fs::write(&damaged, "not a lease").unwrap();
    for path in [&leases, &damaged] {
        caller.own(path);
    }
    // Also where the operator names no secrets any more.
    let ended = Served::start(caller, &[]).stop();
    assert!(ended.err.contains("bx_damaged.db.0.lease: not revoked"), "{}", ended.err);
    assert!(damaged.exists() && ledger(caller).contains("\"secret_trouble\""));
}
