//! HTTP requests of guests of the tier `wasm`: a call, made by the box's own gateway under the same rules as everybody's. Each test
//! has a small internet of its own and looks at both ends.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "wasm/components.rs"]
#[expect(dead_code, reason = "these tests need one of them")]
mod components;
#[path = "wasm/modules.rs"]
#[expect(dead_code, reason = "these tests need few of them")]
mod modules;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Boxed, Caller, Served, both_ways, text, wait_until};
use serde_json::{Value, json};

both_ways!(
    a_request_is_made_where_a_rule_allows_it_and_nowhere_else,
    javascript_has_requests_made_too,
    a_module_has_requests_made_too,
    a_component_has_requests_made_too,
    a_secret_is_put_in_by_the_gateway_and_never_in_the_guest,
    without_rules_there_is_no_request_and_sockets_there_are_never,
    answers_and_calls_have_bounds_and_the_command_goes_on,
    a_request_ends_with_its_command,
    an_answer_that_was_cut_off_is_none,
    nothing_that_is_passed_on_begins_another_line,
);

const SECRET: &str = "hunter2-of-the-operator";

const POLICY: &str = "threat = \"high\"
accept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]
[kernel]
tier = \"wasm\"
[network]
mode = \"allow\"
allow = [
  { host = \"api.example.test\", tls = \"inspect\", methods = [\"GET\", \"POST\"], paths = [\"/open/*\"] },
  { host = \"inside.example.com\", tls = \"inspect\" },
  { host = \"cloud.example.com\", tls = \"inspect\" },
  { host = \"unread.example.test\", tls = \"passthrough\" },
  { host = \"plain.example.test\", protocol = \"http\" },
]
";

const BOUND: &str = "[credentials]
mode = \"brokered\"
bind = [{ secret = \"token\", host = \"api.example.test\", placeholder = \"sk-\", env = \"API_KEY\" }]
";

const TRIED: &str = "
import blastbox, json, os
def tried(url, **more):
    try:
        answer = blastbox.fetch(url, **more)
        return [answer.status, answer.text()]
    except blastbox.FetchError as error:
        return [type(error).__name__, error.reason]
def said(to, head):
    import _host
    answer = bytes(_host.call(b':http\\n' + to + b'\\n' + head + b'\\r\\nconnection: close\\r\\n\\r\\n')).decode('latin-1').lower()
    return answer.split('x-blastbox-denied: ')[-1].split('\\r\\n')[0]
";

/// A small internet with one server, and guests; `None`, and reported: one of them cannot be had.
fn build(caller: &Caller, guest: &str) -> Option<Internet> {
    if !caller.blastbox_path().with_file_name("wasm").join(format!("{guest}.guest")).is_file() {
        caller.skip(&format!("the guest {guest} is not built: `make wasm` builds it"));
        return None;
    }
    let internet = Internet::build(caller)?;
    for (name, address) in [
        ("api.example.test", PUBLIC),
        ("inside.example.com", "10.9.9.9"),
        ("cloud.example.com", "169.254.169.254"),
        ("stranger.test", PUBLIC),
        ("plain.example.test", PUBLIC),
    ] {
        internet.name(name, &[&[address]]);
    }
    internet.secure_echo(caller, "api.example.test").then_some(internet)
}

fn run(internet: &Internet, caller: &Caller, options: &[&str], command: &[&str]) -> Boxed {
    let words = [&["run", "--json"], options, &["--"], command].concat();
    internet.blastbox(caller, &words).end().boxed()
}

fn reasons(boxed: &Boxed, target: &str) -> Vec<String> {
    let lines = boxed.receipt.network.denied.iter().filter(|line| line.target == target);
    lines.map(|line| line.reason.clone()).collect()
}

fn a_request_is_made_where_a_rule_allows_it_and_nowhere_else(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    let policy = caller.file("policy.toml", POLICY);
    let code = format!(
        "{TRIED}
print(json.dumps([
    tried('https://api.example.test/open/a?b=c', headers={{'X-Mine': 'é'.encode().decode('latin-1')}}),
    tried('https://api.example.test/open/a', method='POST', body='x' * 5000),
    tried('https://api.example.test/open/a', method='DELETE'),
    tried('https://api.example.test/closed'),
    tried('https://api.example.test/open/../closed'),
    tried('https://api.example.test:8443/open/a'),
    tried('http://api.example.test/open/a'),
    tried('https://stranger.test/open/a'),
    tried('https://{PUBLIC}/open/a'),
    tried('https://inside.example.com/'),
    tried('https://cloud.example.com/latest/meta-data'),
    tried('https://unread.example.test/'),
    tried('https://api.example.test/open/a', headers={{'Host': 'stranger.test'}}),
    tried('https://api.example.test/open/a', body='x' * 100000),
    said(b'https://api.example.test', b'GET /open/a HTTP/1.1\\r\\nhost: stranger.test'),
    said(b'https://api.example.test', b'GET https://stranger.test/open/a HTTP/1.1\\r\\nhost: api.example.test'),
    said(b'https://api.example.test', b'GET https://stranger.test/open/a HTTP/1.1\\r\\nhost: stranger.test'),
    said(b'https://api.example.test', b'GET http://169.254.169.254/open/a HTTP/1.1\\r\\nhost: api.example.test'),
    said(b'https://api.example.test', b'GET https://api.example.test/open/a HTTP/1.1\\r\\nhost: api.example.test'),
]))"
    );
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["python", "-c", &code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(seen[0][0], 200, "{seen}");
    let head = seen[0][1].as_str().unwrap().to_lowercase();
    assert!(
        head.starts_with("get /open/a?b=c http/1.1\r\n") && head.contains("\r\nhost: api.example.test\r\n"),
        "{head}"
    );
    assert!(seen[1][1].as_str().unwrap().to_lowercase().contains("content-length: 5000"), "{seen}");
    let denied = |reason: &str| json!(["FetchDenied", reason]);
    let expected = [
        denied("method-not-allowed"),
        denied("path-not-allowed"),
        denied("path-not-allowed"),
        denied("port-not-allowed"),
        denied("port-not-allowed"),
        denied("host-not-allowed"),
        denied("address-not-allowed"),
        denied("forbidden-address"),
        denied("metadata-address"),
        denied("inspection-not-built"),
    ];
    assert_eq!(seen.as_array().unwrap()[2..12], expected, "{seen}");
    assert_eq!(seen[12][0], "FetchDenied", "{seen}");
    assert_eq!(seen[13], json!(["FetchError", "too_large"]), "{seen}");
    // One word for another host, wherever it stands, by the door beneath the module.
    assert_eq!(seen.as_array().unwrap()[14..18], ["authority-mismatch"; 4].map(Value::from), "{seen}");
    assert!(seen[18].as_str().unwrap().starts_with("+http/1.1 200 "), "its own name in full: {seen}");
    // The server was asked for what was allowed, and for nothing else; and everything is told.
    assert_eq!(internet.requests().len(), 3, "{:?}", internet.requests());
    assert!(!internet.questions().iter().any(|name| name.contains("stranger")), "{:?}", internet.questions());
    let allowed = &boxed.receipt.network.allowed;
    assert_eq!((allowed.len(), allowed[0].connections), (1, 3), "{allowed:?}");
    assert_eq!(reasons(&boxed, "stranger.test"), ["host-not-allowed"]);
    assert_eq!(reasons(&boxed, "inside.example.com"), ["forbidden-address"]);
    assert!(!boxed.receipt.network.gateway_lost);
}

fn javascript_has_requests_made_too(caller: &Caller) {
    let Some(internet) = build(caller, "js") else { return };
    let policy = caller.file("policy.toml", POLICY);
    let code = "const tried = async (url, more) => {
  try { const answer = await fetch(url, more); return [answer.status, answer.ok, answer.text().split('\\r\\n')[0]]; }
  catch (error) { return [error.name, error.reason]; }
};
console.log(JSON.stringify([
  await tried('https://api.example.test/open/j', { method: 'post', body: 'é' }),
  await tried('https://api.example.test/open/j', { method: 'PUT' }),
  await tried('https://stranger.test/'),
]));";
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["js", "-e", code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(
        seen,
        json!([
            [200, true, "POST /open/j HTTP/1.1"],
            ["FetchDenied", "method-not-allowed"],
            ["FetchDenied", "host-not-allowed"]
        ])
    );
    assert!(internet.requests()[0].to_lowercase().contains("content-length: 2"), "{:?}", internet.requests());
}

fn a_module_has_requests_made_too(caller: &Caller) {
    let Some(internet) = build(caller, "js") else { return };
    let policy = caller.file("policy.toml", POLICY);
    let asked = |options: &[&str], host: &str, room: u32| {
        let said =
            format!("https://{host}\nGET /open/m HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let numbers = [65_536, u32::try_from(said.len()).unwrap(), modules::ANSWER, room];
        let asks = modules::asks(modules::Asks::Started, "fetch", &[(65_536, said.as_bytes())], &numbers);
        let module = caller.file("asks.wasm", asks);
        let words = [&["run", "--json"], options, &["--", text(&module)]].concat();
        let state = caller.place().join("state");
        internet.blastbox(caller, &words).env("XDG_STATE_HOME", text(&state)).end().boxed()
    };
    let rules = ["--policy", text(&policy)];
    let boxed = asked(&rules, "api.example.test", 1 << 20).fine();
    assert!(boxed.stdout.starts_with("HTTP/1.1 200 "), "{}", boxed.stdout);
    assert!(internet.requests()[0].starts_with("GET /open/m HTTP/1.1"), "{:?}", internet.requests());
    let boxed = asked(&rules, "stranger.test", 1 << 20).fine();
    assert!(boxed.stdout.to_lowercase().contains("x-blastbox-denied: host-not-allowed"), "{}", boxed.stdout);
    assert_eq!(reasons(&boxed, "stranger.test"), ["host-not-allowed"]);
    // Before there is a command nobody asks.
    let said = b"https://api.example.test\nGET /open/early HTTP/1.1\r\nhost: api.example.test\r\nconnection: close\r\n\r\n";
    let numbers = [65_536, u32::try_from(said.len()).unwrap(), modules::ANSWER, 1 << 20];
    let early = modules::asks(modules::Asks::Early, "fetch", &[(65_536, said)], &numbers);
    let early = caller.file("early.wasm", early);
    let before = internet.requests().len();
    let words = ["run", "--json", "--policy", text(&policy), "--", text(&early)];
    let state = caller.place().join("state");
    let boxed = internet.blastbox(caller, &words).env("XDG_STATE_HOME", text(&state)).end().boxed();
    assert_eq!(boxed.receipt.exit_code, 1, "{}", boxed.stderr);
    assert_eq!(internet.requests().len(), before, "{:?}", internet.requests());
    // Without rules, and without room.
    let boxed = asked(&["--tier", "wasm"], "api.example.test", 1 << 20);
    assert_eq!(boxed.receipt.exit_code, 1, "{}", boxed.stderr);
    assert!(boxed.stdout.contains("no-network"), "{}", boxed.stdout);
    let boxed = asked(&rules, "api.example.test", 16);
    assert_eq!((boxed.receipt.exit_code, boxed.stdout.as_str()), (2, ""), "{}", boxed.stderr);
}

fn a_component_has_requests_made_too(caller: &Caller) {
    if !caller.blastbox_path().with_file_name("wasm").join("blastbox-wasm-component").is_file() {
        return caller.skip("the worker of components is not built: `make wasm` builds it");
    }
    let Some(internet) = build(caller, "js") else { return };
    let policy = caller.file("policy.toml", POLICY);
    let asked = |options: &[&str], host: &str| {
        let said =
            format!("https://{host}\nGET /open/c HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let brought = caller.file("calls.wasm", components::calling(None, &said));
        let words = [&["run", "--json"], options, &["--", text(&brought)]].concat();
        let state = caller.place().join("state");
        internet.blastbox(caller, &words).env("XDG_STATE_HOME", text(&state)).end().boxed()
    };
    let rules = ["--policy", text(&policy)];
    asked(&rules, "api.example.test").fine();
    assert!(internet.requests()[0].starts_with("GET /open/c HTTP/1.1"), "{:?}", internet.requests());
    // What the gateway refuses is an answer, too.
    let boxed = asked(&rules, "stranger.test").fine();
    assert_eq!(reasons(&boxed, "stranger.test"), ["host-not-allowed"]);
    assert_eq!(asked(&["--tier", "wasm"], "api.example.test").receipt.exit_code, 1);
    assert_eq!(internet.requests().len(), 1, "{:?}", internet.requests());
}

fn a_secret_is_put_in_by_the_gateway_and_never_in_the_guest(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    let private = |path: PathBuf| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let token = private(caller.file("token", SECRET));
    let sources = format!("[secrets.token]\nhosts = [\"api.example.test\"]\nfile = {token:?}\n");
    let sources = private(caller.file("secrets.toml", sources));
    let policy = caller.file("policy.toml", format!("{POLICY}{BOUND}"));
    let code = format!(
        "{TRIED}
key = os.environ['API_KEY']
print(json.dumps([key,
    tried('https://api.example.test/open/a', headers={{'Authorization': 'Bearer ' + key}}),
    tried('https://api.example.test/open/a?k=' + key),
    dict(os.environ)]))"
    );
    let options = ["--policy", text(&policy), "--secrets", text(&sources)];
    let boxed = run(&internet, caller, &options, &["python", "-c", &code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert!(seen[0].as_str().unwrap().starts_with("sk-"), "{seen}");
    assert_eq!(seen[1][0], 200, "{seen}");
    // The server had it, and what it said of it was struck out on the way back.
    assert!(internet.requests()[0].contains(SECRET), "{:?}", internet.requests());
    assert!(seen[1][1].as_str().unwrap().contains("***"), "{seen}");
    assert_eq!(seen[2], json!(["FetchDenied", "credential-misplaced"]), "{seen}");
    assert!(!boxed.stdout.contains(SECRET) && !boxed.stderr.contains(SECRET));
}

fn without_rules_there_is_no_request_and_sockets_there_are_never(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    let code = "import socket";
    let words = ["--tier", "wasm"];
    let boxed = run(&internet, caller, &words, &["python", "-c", "import blastbox"]);
    assert!(boxed.stderr.contains("ModuleNotFoundError"), "{}", boxed.stderr);
    let raw = "import _host\nprint(bytes(_host.call(b':http\\nhttps://api.example.test\\nGET / HTTP/1.1\\r\\n\\r\\n')).decode())";
    let boxed = run(&internet, caller, &words, &["python", "-c", raw]).fine();
    assert!(boxed.stdout.starts_with("-\"no-network"), "{}", boxed.stdout);
    let policy = caller.file("policy.toml", POLICY);
    let connect = format!(
        "{code}\ntry: socket.create_connection(('{PUBLIC}', 443), 5)\nexcept Exception as error: print('none')"
    );
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["python", "-c", &connect]);
    assert!(boxed.stdout == "none\n" || boxed.stderr.contains("Error"), "{} {}", boxed.stdout, boxed.stderr);
    assert_eq!(internet.visits(), [""; 0]);
}

fn answers_and_calls_have_bounds_and_the_command_goes_on(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    internet.server(80, |mut stream| {
        let Some(head) = head_of(&mut stream) else { return };
        let length = if head.starts_with(b"GET /much") { 2 << 20 } else { 1000 << 10 };
        let answer =
            [format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes(), vec![b'x'; length]];
        // An error: nobody wants the rest.
        stream.write_all(&answer.concat()).ok();
    });
    let policy = caller.file("policy.toml", POLICY);
    let code = format!(
        "{TRIED}
seen = [tried('http://plain.example.test/much'), len(tried('http://plain.example.test/most')[1])]
made = 2
while True:
    last = tried('https://stranger.test/')
    if last[1] != 'host-not-allowed': break
    made += 1
print(json.dumps(seen + [made, last]))"
    );
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["python", "-c", &code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    let most = 1000 << 10;
    assert_eq!(seen, json!([["FetchError", "too_large"], most, 4096, ["FetchError", "too_many"]]));
    assert!(!boxed.receipt.network.gateway_lost);
}

fn head_of(stream: &mut impl std::io::Read) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    Some(head)
}

fn an_answer_that_was_cut_off_is_none(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    internet.server(80, |mut stream| {
        let Some(head) = head_of(&mut stream) else { return };
        let answer: &[u8] = match &head[..10] {
            b"GET /whole" => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhalf",
            b"GET /sized" => b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf",
            _ => b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        };
        // An error: nobody wants it.
        stream.write_all(answer).ok();
    });
    let policy = caller.file("policy.toml", POLICY);
    let code = format!(
        "{TRIED}
print(json.dumps([tried('http://plain.example.test/' + how) for how in ('whole', 'sized', 'chunks')]))"
    );
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["python", "-c", &code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    let cut = json!(["FetchError", "truncated"]);
    assert_eq!(seen, json!([[200, "half"], cut, cut]));
    if !caller.blastbox_path().with_file_name("wasm").join("js.guest").is_file() {
        caller.skip("the guest js is not built: `make wasm` builds it");
        return;
    }
    let code = "const tried = (how) => { try { return blastbox.fetch('http://plain.example.test/' + how).text(); } catch (e) { return e.reason; } };
console.log(['whole', 'sized', 'chunks'].map(tried).join(' '));";
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["js", "-e", code]).fine();
    assert_eq!(boxed.stdout.trim(), "half truncated truncated");
}

fn nothing_that_is_passed_on_begins_another_line(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    let policy = caller.file("policy.toml", POLICY);
    let code = format!(
        "{TRIED}
def refused(url='https://api.example.test/open/a', **more):
    try: return tried(url, **more)
    except ValueError: return 'refused'
print(json.dumps([
    refused('https://api.example.test/open/a HTTP/1.1\\r\\nx: y'),
    refused('https://api.example.test\\n/open/a'),
    refused('https://api.example.test/open/a b'),
    refused(method='GET /open/b HTTP/1.1\\r\\nx:'),
    refused(headers={{'X-A': 'b\\r\\nc: d'}}),
    refused(headers={{'X-A: b\\r\\nc': 'd'}}),
    refused(headers={{'': 'd'}}),
]))"
    );
    let boxed = run(&internet, caller, &["--policy", text(&policy)], &["python", "-c", &code]).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(seen, json!(vec!["refused"; 7]));
    assert!(internet.requests().is_empty(), "{:?}", internet.requests());
}

fn a_request_ends_with_its_command(caller: &Caller) {
    let Some(internet) = build(caller, "python") else { return };
    let (came, went) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&came), Arc::clone(&went));
    internet.server(80, move |mut stream| {
        counts.0.fetch_add(1, Ordering::Relaxed);
        // It never answers: what it hears is the end.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        counts.1.fetch_add(1, Ordering::Relaxed);
    });
    let policy = caller.file("policy.toml", POLICY);
    let served = Served::start_in(&internet, caller, &[]);
    let id = served.ask(["create", "--policy", text(&policy)]);
    let code = "import blastbox; blastbox.fetch('http://plain.example.test/never')";
    let command = served.ask(["exec", "--detach", &id, "--", "python", "-c", code]);
    assert!(wait_until(|| came.load(Ordering::Relaxed) == 1), "the request is under way");
    assert_eq!(went.load(Ordering::Relaxed), 0);
    let path = format!("/v1/boxes/{id}/execs/{command}/signal");
    let (status, said) = served.request("POST", &path, &json!({"signal": 9}));
    assert!(status < 300, "{status} {said}");
    assert!(wait_until(|| went.load(Ordering::Relaxed) == 1), "nobody waits for it any more");
    // The box goes on, and so do its requests.
    let again = "import blastbox
try: blastbox.fetch('https://stranger.test/')
except blastbox.FetchDenied as error: print(error.reason)";
    assert_eq!(served.ask(["exec", &id, "--", "python", "-c", again]), "host-not-allowed");
}
