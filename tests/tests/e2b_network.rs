//! What the owner of an E2B sandbox says about its network, on a small internet of two namespaces: hosts that were named are
//! reached and nothing else; everything public only where the operator wrote so, and the receipt says it.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use blastbox_tests::internet::{FORBIDDEN, Internet, PUBLIC};
use blastbox_tests::{Caller, Held, both_ways, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

both_ways!(
    hosts_that_were_named_are_reached_and_nothing_else,
    everything_public_where_the_operator_says_so,
    headers_of_the_owner_reach_their_host_and_never_the_sandbox
);

/// Each `tried` prints one line: what came back, or that there is no such name, or the name of the errno.
const TRIED: &str = r#"
import errno, socket, ssl
def tried(what, *arguments):
    try: print(what(*arguments))
    except socket.gaierror: print("no such name")
    except socket.timeout: print("silence")
    except OSError as error: print(errno.errorcode.get(error.errno, "broken"))
def talk(host, port):
    with socket.create_connection((host, port), 20) as one:
        one.sendall(b"hello")
        return one.recv(5).decode()
def greet(host):
    with socket.create_connection((host, 443), 20) as one: ssl.create_default_context().wrap_socket(one, server_hostname=host)
"#;

struct Daemon<'a> {
    caller: &'a Caller,
    socket: PathBuf,
    held: Held,
}

impl<'a> Daemon<'a> {
    fn start(internet: &Internet, caller: &'a Caller, config: &str) -> Self {
        let place = |name: &str| caller.place().join(name).display().to_string();
        let (state, socket, config) =
            (place("state"), place("api.sock"), caller.file("daemon.toml", config).display().to_string());
        let words = ["serve", "--quiet", "--state-dir", &state, "--socket", &socket, "--config", &config];
        let mut held = internet.blastbox(caller, &words).start();
        let socket = PathBuf::from(socket);
        assert!(wait_until(|| held.is_over() || UnixStream::connect(&socket).is_ok()));
        assert!(!held.is_over(), "the daemon ended: {}", held.end().err);
        Self { caller, socket, held }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut line = UnixStream::connect(&self.socket).unwrap();
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: blastbox\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        line.write_all(head.as_bytes()).unwrap();
        let mut heard = String::new();
        line.read_to_string(&mut heard).unwrap();
        let (head, body) = heard.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn make(&self, more: Value) -> String {
        let mut asked = json!({ "templateID": "base", "timeout": 600 });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, made) = self.ask("POST", "/v2/sandboxes", &asked);
        assert_eq!(status, 201, "{made}");
        made["sandboxID"].as_str().unwrap().to_owned()
    }

    /// What each line of a program in a sandbox printed.
    fn python(&self, id: &str, code: &str) -> Vec<String> {
        let (of, code) = (format!("bx_{id}"), format!("{TRIED}\n{code}"));
        let words = ["exec", &of, "--", "python3", "-c", &code];
        let ended =
            self.caller.blastbox(words).env("BLASTBOX_SOCKET", &self.socket.display().to_string()).end();
        assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
        ended.text().lines().map(ToOwned::to_owned).collect()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if !self.held.is_over() {
            self.held.signal(Signal::TERM);
            // What does not end in time is killed with `held`.
            wait_until(|| self.held.is_over());
        }
    }
}

fn hosts_that_were_named_are_reached_and_nothing_else(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("named.test", &[&[PUBLIC]]);
    internet.name("other.test", &[&[PUBLIC]]);
    internet.echo(443);
    let daemon = Daemon::start(&internet, caller, "");
    let (status, no) =
        daemon.ask("POST", "/v2/sandboxes", &json!({ "templateID": "base", "allow_internet_access": true }));
    assert_eq!(status, 400, "{no}");
    let id = daemon.make(json!({ "network": { "allowOut": ["named.test"], "denyOut": ["0.0.0.0/0"] } }));
    let (_, shown) = daemon.ask("GET", &format!("/sandboxes/{id}"), &Value::Null);
    assert_eq!(shown["network"]["allowOut"], json!(["named.test"]), "{shown}");
    // The server only gives the greeting back, so that no TLS comes of it: that somebody came is what counts.
    let code = format!(
        "tried(greet, 'named.test'); tried(greet, 'other.test'); tried(talk, '{PUBLIC}', 443); tried(talk, 'named.test', 22)"
    );
    let seen = daemon.python(&id, &code);
    assert_eq!(&seen[1..], ["no such name", "ECONNREFUSED", "ECONNREFUSED"], "{seen:?}");
    assert_eq!(internet.visits(), [format!("{PUBLIC}:443")]);
    // Another name instead, by the rules of the gateway that runs; then none.
    let network = format!("/sandboxes/{id}/network");
    let shown = || daemon.ask("GET", &format!("/sandboxes/{id}"), &Value::Null).1["network"].clone();
    let resolves = "tried(socket.gethostbyname, 'named.test'); tried(socket.gethostbyname, 'other.test')";
    assert_eq!(daemon.ask("PUT", &network, &json!({ "allowOut": ["other.test"] })).0, 204);
    assert_eq!(shown()["allowOut"], json!(["other.test"]));
    let seen = daemon.python(&id, resolves);
    assert!(seen[0] == "no such name" && seen[1] != "no such name", "{seen:?}");
    for (asked, status) in [
        (json!({ "allowOut": ["other.test"], "allowPublicTraffic": false }), 409),
        (json!({ "allowOut": ["other.test"], "allowPublicTraffic": true }), 204),
        (json!({ "allowOut": ["10.0.0.1"] }), 400),
        (json!({ "allow_internet_access": true }), 400),
    ] {
        assert_eq!(daemon.ask("PUT", &network, &asked).0, status, "{asked}");
        assert_eq!(shown()["allowOut"], json!(["other.test"]));
    }
    assert_eq!(daemon.ask("PUT", &network, &json!({})).0, 204);
    assert_eq!(daemon.python(&id, resolves), ["no such name", "no such name"]);
    // One that asks for nothing has nothing, and no gateway that could be told of more.
    let closed = daemon.make(json!({}));
    let (status, no) =
        daemon.ask("PUT", &format!("/sandboxes/{closed}/network"), &json!({ "allowOut": ["named.test"] }));
    assert!(status == 409 && no["message"].as_str().unwrap().contains("decided when it is made"), "{no}");
    assert_eq!(daemon.python(&closed, "tried(talk, 'named.test', 443)"), ["no such name"]);
    assert_eq!(internet.visits().len(), 1);
}

fn everything_public_where_the_operator_says_so(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("any.test", &[&[PUBLIC]]);
    internet.name("inside.test", &[&[FORBIDDEN[1]]]);
    internet.echo(7000);
    let daemon = Daemon::start(&internet, caller, "[e2b]\ninternet = \"dangerously-open\"\n");
    let id = daemon.make(json!({}));
    let (metadata, private) = (FORBIDDEN[0], FORBIDDEN[1]);
    let code = format!(
        "tried(talk, 'any.test', 7000); tried(talk, '{PUBLIC}', 7000); tried(talk, '{private}', 7000)\n\
         tried(talk, '{metadata}', 7000); tried(talk, 'inside.test', 7000)"
    );
    let seen = daemon.python(&id, &code);
    assert_eq!(&seen[..2], ["hello", "hello"], "{seen:?}");
    assert!(seen[2..].iter().all(|line| line != "hello"), "{seen:?}");
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7000"), format!("{PUBLIC}:7000")]);
    // Its owner may still close it.
    let closed = daemon.make(json!({ "allow_internet_access": false }));
    assert_eq!(daemon.python(&closed, "tried(talk, 'any.test', 7000)"), ["no such name"]);
    // The receipt says what the network was.
    let (status, receipt) = daemon.ask("DELETE", &format!("/v1/boxes/bx_{id}"), &Value::Null);
    assert_eq!(status, 200, "{receipt}");
    let lines = receipt["boundaries"].as_array().unwrap();
    let network = lines.iter().find(|line| line["boundary"] == "network").unwrap();
    assert!(network["effective"] == false && network.to_string().contains("dangerously open"), "{network}");
    assert!(
        receipt["network"]["allowed"].as_array().unwrap().iter().all(|target| target["rule"] == "*"),
        "{receipt}"
    );
}

fn headers_of_the_owner_reach_their_host_and_never_the_sandbox(caller: &Caller) {
    const SECRET: &str = "sk-real-value-of-the-owner";
    const HOST: &str = "api.example.test";
    let Some(internet) = Internet::build(caller) else { return };
    internet.name(HOST, &[&[PUBLIC]]);
    if !internet.secure_echo(caller, HOST) {
        return;
    }
    let daemon = Daemon::start(&internet, caller, "");
    let headers = json!({ "Authorization": format!("Bearer {SECRET}"), "X-Api-Version": "2026-01-01" });
    let rules = json!({ HOST: [{ "transform": { "headers": headers } }] });
    // They open nothing.
    let (status, no) = daemon.ask(
        "POST",
        "/v2/sandboxes",
        &json!({ "templateID": "base", "network": { "allowOut": ["other.test"], "rules": rules } }),
    );
    assert!(status == 400 && no.to_string().contains("allowOut"), "{no}");
    let id = daemon.make(json!({ "network": { "allowOut": [HOST], "rules": rules } }));
    let code = format!(
        "import os, urllib.request\n\
         asked = urllib.request.Request('https://{HOST}/mine', headers={{'Authorization': 'Bearer of-the-box', 'X-Mine': 'kept'}})\n\
         print(urllib.request.urlopen(asked, timeout=20).read().decode())\n\
         print(os.environ)"
    );
    let seen = daemon.python(&id, &code).join("\n");
    let requests = internet.requests();
    let [request] = requests.as_slice() else { unreachable!("{requests:?} {seen}") };
    let lower = request.to_ascii_lowercase();
    for line in [&format!("authorization: bearer {SECRET}"), "x-api-version: 2026-01-01", "x-mine: kept"] {
        assert!(lower.contains(line), "{request}");
    }
    assert!(!request.contains("of-the-box"), "{request}");
    // The server says it all back, and the sandbox gets stars.
    assert!(seen.contains(&"*".repeat(SECRET.len())) && !seen.contains(SECRET), "{seen}");
    // What was decided when it was made stays; nothing of it is shown.
    let (status, no) = daemon.ask(
        "PUT",
        &format!("/sandboxes/{id}/network"),
        &json!({ "allowOut": [HOST], "rules": rules }),
    );
    assert!(status == 409 && no["message"].as_str().unwrap().contains("headers"), "{no}");
    let (_, shown) = daemon.ask("GET", &format!("/sandboxes/{id}"), &Value::Null);
    assert!(shown["network"]["allowOut"] == json!([HOST]) && !shown.to_string().contains(SECRET), "{shown}");
    let (status, receipt) = daemon.ask("DELETE", &format!("/v1/boxes/bx_{id}"), &Value::Null);
    assert!(status == 200 && !receipt.to_string().contains(SECRET), "{receipt}");
    let kept = files_beneath(&caller.place().join("state"));
    assert!(
        kept.iter().any(|bytes| contains(bytes, b"own-0-authorization")),
        "the ledger has that it was lent"
    );
    assert!(!kept.iter().any(|bytes| contains(bytes, SECRET.as_bytes())));
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// What is in every file of a directory.
fn files_beneath(at: &std::path::Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(files_beneath(&entry.path())),
            kind if kind.is_file() => all.extend(std::fs::read(entry.path()).ok()),
            _ => {}
        }
    }
    all
}
