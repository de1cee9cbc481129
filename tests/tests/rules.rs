//! What a box does with its network is seen from outside, and what it may reach is changed from outside.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use blastbox_tests::{Caller, Held, Served, both_ways, wait_until};
use serde_json::Value;

both_ways!(
    every_question_and_connection_is_seen_from_outside,
    rules_change_from_outside_and_the_ledger_has_it,
    a_connection_that_new_rules_deny_is_cut_and_another_is_not,
    nothing_that_a_box_can_reach_changes_its_rules,
);

const POLICY: &str =
    "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\"]\n[network]\nmode = \"allow\"\n";

/// A box of this policy that stays; `None` where boxes cannot have network here.
fn made(caller: &Caller, daemon: &Served<'_>, network: &str) -> Option<String> {
    let policy = caller.file("policy.toml", format!("{POLICY}{network}\n"));
    let ended = daemon.blastbox(["create", "--policy", policy.to_str().unwrap()]).end();
    if ended.err.contains("/dev/net/tun") {
        caller.skip("boxes with network need /dev/net/tun");
        return None;
    }
    assert_eq!(ended.code, 0, "{}", ended.err);
    Some(ended.text().trim_end().to_owned())
}

/// Whether the box gets an address for a name. It is the gateway's own: nobody outside is asked.
fn resolves(daemon: &Served<'_>, id: &str, name: &str) -> bool {
    let script = format!("getent ahostsv4 {name} > /dev/null && echo yes || echo no");
    daemon.sh(id, &script) == "yes"
}

/// Everything that the box did with its network so far, `event target` each.
fn seen(daemon: &Served<'_>, id: &str) -> Vec<String> {
    let lines = daemon.ask(["net", id, "--json"]);
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["box_id"], *id);
        format!("{} {}", event["event"].as_str().unwrap(), event["target"].as_str().unwrap_or_default())
    };
    lines.lines().map(event).collect()
}

fn every_question_and_connection_is_seen_from_outside(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let Some(id) = made(caller, &daemon, "allow = [{ host = \"a.example.com\" }]") else { return };
    let (_follower, rows) = follow(&daemon, &id);
    assert!(resolves(&daemon, &id, "a.example.com"));
    assert!(!resolves(&daemon, &id, "evil.test"));
    daemon.sh(&id, "timeout 20 bash -c 'echo > /dev/tcp/93.184.216.34/80' 2>/dev/null; true");
    // What a gateway saw arrives a moment later.
    let wanted = ["name_asked a.example.com", "network_denied evil.test", "network_denied 93.184.216.34"];
    let all = || {
        let seen = seen(&daemon, &id);
        wanted.iter().all(|event| seen.iter().any(|line| line == event))
    };
    assert!(wait_until(all), "{:?}", seen(&daemon, &id));
    // The one who follows is told the same as it happens, as a table.
    let mut missing = vec!["a.example.com", "evil.test", "93.184.216.34:80"];
    while !missing.is_empty() {
        // A bound against hangs only.
        let row = rows.recv_timeout(Duration::from_secs(120)).unwrap();
        missing.retain(|target| !(row.contains(target) && row.contains(&id)));
    }
    daemon.stop();
    // The record of a denial is as whole as that of a connection, also in the ledger.
    let ledger = ledger(caller);
    let denied = |target: &str| {
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
        let mut events = ledger.lines().map(event);
        events.find(|event| event["kind"] == "network_denied" && event["target"] == target).unwrap()
    };
    let question = denied("evil.test");
    assert!(question["kind_asked"].is_u64() && question["door"].is_null(), "{question}");
    let connection = denied("93.184.216.34");
    let whole = serde_json::json!({
        "kind": "network_denied", "flow": 0, "door": "link", "target": "93.184.216.34", "port": 80,
        "address": "93.184.216.34", "reason": "address-not-allowed", "count": 1, "sent": 0, "received": 0, "millis": 0,
    });
    assert_eq!(connection, whole);
}

/// Somebody who follows, and the rows of the table as they come.
fn follow(daemon: &Served<'_>, id: &str) -> (Held, mpsc::Receiver<String>) {
    let (reader, writer) = std::io::pipe().unwrap();
    let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let held = daemon.blastbox(["net", id, "--follow"]).start_with([null(), writer.into(), null()]);
    let (to, rows) = mpsc::channel();
    // Ends with the one who follows.
    std::thread::spawn(move || {
        for row in BufReader::new(reader).lines().map_while(Result::ok) {
            if to.send(row).is_err() {
                return;
            }
        }
    });
    (held, rows)
}

fn rules_change_from_outside_and_the_ledger_has_it(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let Some(id) = made(caller, &daemon, "allow = [{ host = \"a.example.com\" }]") else { return };
    let digest = |text: &str| text.split_whitespace().nth(1).unwrap_or_default().to_owned();
    assert!(!resolves(&daemon, &id, "b.example.com"));
    let allowed = daemon.ask(["net", "allow", &id, "b.example.com"]);
    assert!(allowed.contains("b.example.com: allowed: rule 2 of network.allow"), "{allowed}");
    assert!(resolves(&daemon, &id, "b.example.com"));
    assert_eq!(daemon.blastbox(["net", "would-allow", &id, "https://b.example.com/"]).end().code, 0);
    // The card, and with it every record from here on, names the policy that holds.
    let card: Value = serde_json::from_str(&daemon.ask(["inspect", &id, "--json"])).unwrap();
    assert_eq!(card["policy"], digest(&allowed));
    let denied = daemon.ask(["net", "deny", &id, "b.example.com"]);
    assert!(denied.contains("b.example.com: denied: no rule names"), "{denied}");
    assert!(!resolves(&daemon, &id, "b.example.com"));
    assert_eq!(daemon.blastbox(["net", "would-allow", &id, "https://b.example.com/"]).end().code, 1);
    for (words, why) in [
        (["net", "allow", &id, "*.com"], "com"),
        (["net", "deny", &id, "c.example.com"], "nothing to take away"),
        (["net", "allow", &id, "10.0.0.1:80"], "private"),
    ] {
        let ended = daemon.blastbox(words).end();
        assert!(ended.code != 0 && ended.err.contains(why), "{words:?}: {}", ended.err);
    }
    let without = daemon.ask(["create"]);
    let ended = daemon.blastbox(["net", "allow", &without, "a.example.com"]).end();
    assert!(ended.err.contains("has no network"), "{}", ended.err);
    daemon.stop();
    let ledger = ledger(caller);
    assert_eq!(ledger.matches("\"rules_changed\"").count(), 2, "{ledger}");
    assert!(ledger.contains(&format!("\"to\":\"{}\"", digest(&allowed))), "{allowed} in {ledger}");
}

fn ledger(caller: &Caller) -> String {
    let folder = caller.place().join("state/ledger");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()).collect()
}

/// Opens two connections through the gateway's proxy, says when both carry bytes, and then what becomes of each.
const TWO: &str = r#"
import socket, sys
def connect(port):
    line = socket.create_connection(("198.18.0.1", 3128), timeout=60)
    line.sendall(f"CONNECT 127.0.0.2:{port} HTTP/1.1\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer: answer += line.recv(1)
    assert b" 200 " in answer, answer
    line.sendall(b"x")
    assert line.recv(1) == b"x"
    return line
kept, cut = (connect(int(port)) for port in sys.argv[1:3])
print("up", flush=True)
try: ended = cut.recv(1) == b""
except ConnectionError: ended = True
kept.sendall(b"y")
print("cut" if ended else "not cut", kept.recv(1).decode(), flush=True)
"#;

/// A server on the host that says everything back. Ends with the process of the test.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(length @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn a_connection_that_new_rules_deny_is_cut_and_another_is_not(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let (kept, cut) = (echo(), echo());
    let network = format!(
        "allow = [{{ host = \"127.0.0.2\", ports = [{kept}], protocol = \"tcp\" }}, \
         {{ host = \"127.0.0.2\", ports = [{cut}], protocol = \"tcp\" }}]\n\
         dangerously_allow_private = [{{ cidr = \"127.0.0.2/32\", ports = [{kept}, {cut}] }}]"
    );
    let Some(id) = made(caller, &daemon, &network) else { return };
    let (one, other) = (kept.to_string(), cut.to_string());
    let words = ["exec", &id, "--", "python3", "-c", TWO, &one, &other];
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let (reader, out) = std::io::pipe().unwrap();
    let running = daemon.blastbox(words).start_with([null().into(), out.into(), null().into()]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(reader));
    // Only when both carry bytes: one that is cut while it is made says nothing about those that are there.
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let opened = seen(&daemon, &id).iter().filter(|line| *line == "network_opened 127.0.0.2").count();
    assert_eq!(opened, 2, "{:?}", seen(&daemon, &id));
    daemon.ask(["net", "deny", &id, &format!("127.0.0.2:{cut}")]);
    assert_eq!(lines.next().unwrap().unwrap(), "cut y");
    assert_eq!(running.end().code, 0);
    let closed = || daemon.ask(["net", &id, "--json"]).contains("\"reason\":\"rules-changed\"");
    assert!(wait_until(closed));
    daemon.stop();
    let ledger = ledger(caller);
    let opened: Vec<&str> = ledger.lines().filter(|line| line.contains("\"network_opened\"")).collect();
    let words = ["\"address\":\"127.0.0.2\"", "\"rule\":\"127.0.0.2\"", "\"door\":\"connect\""];
    let whole = |line: &&str| words.iter().all(|word| line.contains(word));
    assert!(opened.len() == 2 && opened.iter().all(whole), "{opened:?}");
}

/// Says to whatever answers in a box what would widen its rules, in each language that something outside speaks: the API's, a proxy's, the
/// gateway's own messages. Tells what answered, and how.
const WIDEN: &str = r#"
import glob, json, os, socket, stat, struct, sys
box, place = sys.argv[1:3]
body = json.dumps({"allow": ["evil.test"], "deny": []})
ask = f"POST /v1/boxes/{box}/network HTTP/1.1\r\nHost: blastbox\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
policy = b'threat = "medium"\n[network]\nmode = "allow"\nallow = [{ host = "evil.test" }]\n'
# A message to a gateway: other rules, with and without a length before it.
rules = b"\x02" + struct.pack("!I", len(policy)) + policy
says = [ask, b"PUT /rules HTTP/1.1\r\nHost: 198.18.0.1\r\nContent-Length: %d\r\n\r\n" % len(policy) + policy, rules,
    struct.pack("!I", len(rules)) + rules, b"CONNECT evil.test:443 HTTP/1.1\r\nX-Forward-To: evil.test\r\n\r\n", b"\x05\x01\x00\x05\x02\x00\x03\x09evil.test\x01\xbb"]
answered, refused = {}, 0
def tell(name, one, what):
    one.settimeout(5)
    try:
        one.sendall(what)
        one.shutdown(socket.SHUT_WR)
        got = one.recv(200)
    except OSError: got = b""
    answered.setdefault(name, []).append(got[:20].decode("latin-1"))
for family, address in ((socket.AF_INET, "198.18.0.1"), (socket.AF_INET6, "fd62:6c61:7374::1")):
    for port in [*range(1, 200), 443, 853, 1080, 2375, 3128, 4222, 7080, 8080, 8443, 49152]:
        for what in says if port in (1080, 3128) else says[:1]:
            with socket.socket(family, socket.SOCK_STREAM) as one:
                one.settimeout(5)
                try: one.connect((address, port))
                except OSError: refused += 1; continue
                tell(f"tcp {port}", one, what)
# Sockets by name: the daemon's, and whatever lies about; and those that have none but a number.
for path in {place, "/run/blastbox.sock", *glob.glob("/run/**/*", recursive=True), *glob.glob("/tmp/**/*", recursive=True)}:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        try: one.connect(path)
        except OSError: continue
        tell(f"unix {path}", one, ask)
listed = open("/proc/net/unix").read().splitlines()[1:] if os.path.exists("/proc/net/unix") else []
for line in listed:
    name = line.split()[7:]
    if name and name[0].startswith("@"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            try: one.connect("\0" + name[0][1:])
            except OSError: continue
            tell("abstract", one, ask)
# Descriptors of every process that shows them.
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if int(path.split("/")[4]) > 2 and stat.S_ISSOCK(os.stat(path).st_mode): answered.setdefault("descriptor", []).append(path)
    except OSError: pass
    try:
        if os.readlink(path).endswith("tun"): answered.setdefault("tun", []).append(path)
    except OSError: pass
try: socket.getaddrinfo("evil.test", 443); found = True
except socket.gaierror: found = False
print(json.dumps([answered, refused > 300, found]))
"#;

fn nothing_that_a_box_can_reach_changes_its_rules(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let network = "allow = [{ host = \"a.example.com\" }]\nlimits = { connections_per_second = 100000 }";
    let Some(id) = made(caller, &daemon, network) else { return };
    let rules = || daemon.ask(["net", "rules", &id, "--json"]);
    let before = rules();
    let place = daemon.socket().display().to_string();
    let ended = daemon.blastbox(["exec", &id, "--", "/usr/bin/python3", "-c", WIDEN, &id, &place]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let seen: Value = serde_json::from_str(&ended.text()).unwrap();
    let names: Vec<&String> = seen[0].as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| ["tcp 1080", "tcp 3128"].contains(&name.as_str())), "{seen}");
    assert!(names.len() == 2 && seen[1] == true && seen[2] == false, "{seen}");
    let answers = seen[0].as_object().unwrap().values().flat_map(|all| all.as_array().unwrap());
    assert!(!answers.clone().any(|said| said.as_str().unwrap().contains(" 200")), "{seen}");
    assert_eq!(rules(), before);
    // Whoever looks after boxes hears of it.
    let alerts = || daemon.ask(["events", "--alerts", "--json"]);
    assert!(wait_until(|| alerts().contains("\"denied_network\"")), "{}", alerts());
    daemon.stop();
    assert!(!ledger(caller).contains("\"rules_changed\""));
}
