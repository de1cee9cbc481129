//! Slowness as an attack, of a program in the box and of the server that it speaks with: what has no end is ended, what is merely slow is
//! served, and nobody else waits meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use blastbox_tests::internet::{Internet, PUBLIC, Visitor};
use blastbox_tests::{Caller, both_ways, wait_until};
use serde_json::json;

use super::MOST_MEMORY;
use super::watched::{Watched, reasons};

both_ways!(
    a_program_that_drips_is_ended_or_served_and_keeps_nobody_waiting,
    a_server_that_drips_or_reads_nothing_costs_its_own_connection_alone,
);

/// Between two bytes of a server that drips.
const DRIP: Duration = Duration::from_millis(40);

fn serve(visitor: &mut Visitor<'_>) {
    while let Some(head) = visitor.head() {
        let Some(body) = visitor.body(&head) else { return };
        let said = if body.is_empty() { "served".to_owned() } else { format!("took {}", body.len()) };
        visitor.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len()).as_bytes());
    }
}

/// A byte now and then: of a greeting, of a wish at the gateway's own door, of a head, of a body.
fn a_program_that_drips_is_ended_or_served_and_keeps_nobody_waiting(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("api.example.com", &[&[PUBLIC]]);
    if !internet.secure_server(caller, &["api.example.com"], serve) {
        return;
    }
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
                  [network.limits]\nflows = 64\nconnections_per_second = 100000\nquestions_per_second = 100000\n";
    let code = r#"
import select
host = "api.example.com"
def plain(to, port): return socket.create_connection((to, port), timeout=40)
def hello():
    "A whole greeting, as the library makes it."
    out = ssl.MemoryBIO()
    try: ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=host).do_handshake()
    except ssl.SSLWantReadError: return out.read()
pad = b"a" * 4000
# Each of these would go on for ever, and is ended by the gateway.
endless = [(plain(host, 443), hello()) for _ in range(8)]
endless += [(plain("198.18.0.1", 3128), b"CONNECT api.example.com:443 HTTP/1.1\r\nX: " + pad) for _ in range(8)]
endless += [(plain("198.18.0.1", 1080), bytes([5, 255]) + bytes(255)) for _ in range(8)]
# These have an end, which comes late.
head, body = tls(host), tls(host)
body.sendall(b"POST /slow-body HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1000\r\n\r\n")
late = [(head, b"GET /slow-head HTTP/1.1\r\nHost: api.example.com\r\nX: " + pad), (body, b"b" * 1000)]
at, asked, served, ended, begun = 0, 0, 0, set(), time.monotonic()
while len(ended) < len(endless) and time.monotonic() - begun < 55:
    for number, (one, text) in enumerate(endless):
        if number in ended: continue
        try:
            one.sendall(text[at:at + 1])
            if select.select([one], [], [], 0)[0] and not one.recv(100): ended.add(number)
        except OSError: ended.add(number)
    for one, text in late: one.sendall(text[at:at + 1])
    asked, served = asked + 1, served + (get(host)[1] == b"served")
    at += 1
    time.sleep(0.1)
tell(len(ended) == len(endless), asked == served, at < 250)
wait()
head.sendall(late[0][1][at:] + b"\r\n\r\n")
body.sendall(late[1][1][at:])
def last(one):
    got = b""
    while b"\r\n\r\n" not in got or not got.endswith((b"served", b"took 1000")):
        more = one.recv(4096)
        if not more: break
        got += more
    return got.split(b"\r\n\r\n")[-1].decode()
tell(last(head), last(body))
for one, _ in endless + late: one.close()
wait()
"#;
    let mut watched = Watched::start(&internet, caller, policy, &[], code);
    assert_eq!(watched.says(caller), json!([true, true, true]));
    assert!(watched.gateway("VmHWM") < MOST_MEMORY, "{}", watched.gateway("VmHWM"));
    // A head that has no end yet is nobody's; of the body, what came has been passed on.
    let came = |path: &str| internet.requests().iter().any(|head| head.contains(path));
    assert!(!came("/slow-head") && came("/slow-body"), "{:?}", internet.requests());
    watched.go_on();
    assert_eq!(watched.says(caller), json!(["served", "took 1000"]));
    assert!(wait_until(|| watched.descriptors() < 40), "{} descriptors are left", watched.descriptors());
    watched.go_on();
    let receipt = watched.end();
    assert_eq!(reasons(&receipt, "api.example.com"), ["timeout"]);
}

/// TLS that never begins or never ends, heads and bodies byte by byte, uploads that nobody reads.
fn a_server_that_drips_or_reads_nothing_costs_its_own_connection_alone(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    for name in ["slow.example.com", "mute.example.com", "endless.example.com"] {
        internet.name(name, &[&[PUBLIC]]);
    }
    let (ended, drained) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let told = |word: &'static str| {
        let ended = Arc::clone(&ended);
        move || ended.lock().unwrap().push(word)
    };
    let (mute, endless) = (told("mute"), told("endless"));
    internet.server(8443, move |mut visitor| {
        use std::io::Read as _;
        while visitor.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {}
        mute();
    });
    internet.server(8444, move |mut visitor| {
        use std::io::Write as _;
        // A message of 16 KiB is announced, and never whole.
        let mut next = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc".iter().copied().chain(std::iter::repeat(0));
        while next.next().is_some_and(|byte| visitor.write_all(&[byte]).is_ok()) {
            sleep(DRIP);
        }
        endless();
    });
    let (head, body, deaf, go) = (told("head"), told("body"), told("deaf"), Arc::clone(&drained));
    let served = internet.secure_server(caller, &["slow.example.com"], move |visitor: &mut Visitor<'_>| {
        let Some(request) = visitor.head() else { return };
        let mut drip = |first: &str| {
            visitor.say(first.as_bytes());
            while visitor.try_say(b"d").is_ok() {
                sleep(DRIP);
            }
        };
        if request.starts_with("GET /head ") {
            drip("HTTP/1.1 200 OK\r\nX: ");
            head();
        } else if request.starts_with("GET /body ") {
            drip("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            body();
        } else if request.starts_with("POST /deaf ") {
            while !go.load(Ordering::Relaxed) {
                sleep(DRIP);
            }
            while !visitor.some().is_empty() {}
            deaf();
        } else {
            visitor.say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved");
        }
    });
    if !served {
        return;
    }
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"slow.example.com\", tls = \"inspect\" },\n\
                  { host = \"mute.example.com\", ports = [8443], tls = \"inspect\" },\n\
                  { host = \"endless.example.com\", ports = [8444], tls = \"inspect\" }]\n\
                  [network.limits]\nconnections_per_second = 100000\nquestions_per_second = 100000\n";
    let code = r#"
import select
def begin(host, first, port=443):
    plain = socket.create_connection((host, port), timeout=55)
    one = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    one.sendall(f"{first} HTTP/1.1\r\nHost: {host}:{port}\r\n".encode())
    return one
slow = "slow.example.com"
stuck = [begin("mute.example.com", "GET /", 8443), begin("endless.example.com", "GET /", 8444)]
for one in stuck: one.sendall(b"\r\n")
head, body, deaf = begin(slow, "GET /head"), begin(slow, "GET /body"), begin(slow, "POST /deaf")
for one in (head, body): one.sendall(b"\r\n")
deaf.sendall(b"Content-Length: 268435456\r\n\r\n")
# What nobody takes stays here, after what has room on the way.
deaf.settimeout(1)
sent = 0
try:
    while sent < 268435456: sent += deaf.send(bytes(65536))
except TimeoutError: pass
# A body comes as it is said; of a head nothing before it is whole.
got = b""
while got.count(b"d") < 20: got += body.recv(4096)
silent = not select.select([head], [], [], 0)[0]
tell(sent < 268435456, silent, get(slow)[1].decode())
wait()
def refusal(one):
    got = b""
    while True:
        more = one.recv(65536)
        if not more: return "closed"
        got += more
        if got.endswith(b"}") or got.endswith(b"}\n"): return json.loads(got.split(b"\r\n\r\n")[1])["reason"]
tell(*[refusal(one) for one in stuck])
for one in (head, body, deaf): one.close()
tell(get(slow)[1].decode())
wait()
"#;
    let mut watched = Watched::start(&internet, caller, policy, &[], code);
    assert_eq!(watched.says(caller), json!([true, true, "served"]));
    assert!(watched.gateway("VmHWM") < MOST_MEMORY, "{}", watched.gateway("VmHWM"));
    watched.go_on();
    assert_eq!(watched.says(caller), json!(["timeout", "timeout"]));
    assert_eq!(watched.says(caller), json!(["served"]));
    drained.store(true, Ordering::Relaxed);
    // At the other end each of them is over, too.
    let all = ["body", "deaf", "endless", "head", "mute"];
    let over = || {
        let mut over = ended.lock().unwrap().clone();
        over.sort_unstable();
        over
    };
    assert!(wait_until(|| over() == all), "{:?}", over());
    watched.go_on();
    watched.end();
}
