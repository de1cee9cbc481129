//! What a program in a box may try once it speaks HTTP with its gateway: requests that can be read in two ways, names of other
//! hosts, odd HTTP/2, connections that are to become something else. From inside the box, with bytes of its own; at both ends.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_tests::internet::{Flaw, Internet, PUBLIC, Visitor};
use blastbox_tests::{Boxed, Caller, both_ways, text};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

both_ways!(
    a_request_that_can_be_read_in_two_ways_reaches_nobody,
    odd_http2_reaches_nobody_and_the_next_connection_is_served,
    a_connection_becomes_a_websocket_only_where_the_rule_says_so,
    a_server_whose_certificate_does_not_hold_gets_nothing_and_the_record_says_why,
);

const RULES: &str = r#"
 { host = "api.example.com", tls = "inspect", methods = ["GET", "POST"], paths = ["/ok/*"] },
 { host = "other.example.com", tls = "inspect" },
 { host = "ws.example.com", tls = "inspect", protocol = "ws" },
"#;
const ACCEPT: &str = "\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \
    \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"";
const NAMES: [&str; 3] = ["api.example.com", "other.example.com", "ws.example.com"];

/// `tls(…)`: a connection that believes the box's authority; `raw(…)`: all that comes back for some bytes.
const SPEAK: &str = r#"
import json, os, socket, ssl, struct
def tls(host="api.example.com", alpn="http/1.1"):
    context = ssl.create_default_context()
    context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection((host, 443), timeout=40), server_hostname=host)
def rest(one):
    got = b""
    try:
        while True:
            more = one.recv(65536)
            if not more: break
            got += more
    except OSError: pass
    return got
def raw(text, host="api.example.com"):
    with tls(host) as one:
        one.sendall(text)
        return rest(one).decode("latin-1")
"#;

/// A server that serves whatever reaches it, and would serve what was smuggled to it, too.
fn serve(visitor: &mut Visitor<'_>) {
    while let Some(head) = visitor.head() {
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            let key = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("sec-websocket-key").then_some(value)
            });
            let hash =
                Sha1::digest(format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key.unwrap_or_default()));
            visitor.say(
                format!(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: {}\r\n\r\n",
                    STANDARD.encode(hash)
                )
                .as_bytes(),
            );
            loop {
                match visitor.some() {
                    end if end.is_empty() => return,
                    bytes => visitor.say(&bytes),
                }
            }
        }
        if visitor.body(&head).is_none() {
            return;
        }
        visitor.say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved");
    }
}

fn tried(caller: &Caller, code: &str) -> Option<(Value, Boxed, Internet)> {
    let internet = Internet::build(caller)?;
    for name in NAMES {
        internet.name(name, &[&[PUBLIC]]);
    }
    if !internet.secure_server(caller, &NAMES, serve) {
        return None;
    }
    let policy = format!(
        "threat = \"medium\"\naccept = [{ACCEPT}]\n[network]\nmode = \"allow\"\nallow = [{RULES}]\n\
         [network.limits]\nconnections_per_second = 100000\n"
    );
    let policy = caller.file("policy.toml", policy);
    let options = ["--policy", text(&policy), "--timeout", "50s"];
    let boxed = internet.python(caller, &options, &format!("{SPEAK}\n{code}"));
    assert_eq!(boxed.receipt.exit_code, 0, "{}\n{:?}", boxed.stderr, boxed.receipt.reason);
    assert!(!boxed.receipt.network.gateway_lost);
    Some((serde_json::from_str(&boxed.stdout).unwrap(), boxed, internet))
}

fn reasons<'b>(boxed: &'b Boxed, target: &str) -> Vec<&'b str> {
    let lines = boxed.receipt.network.denied.iter().filter(|line| line.target == target);
    lines.map(|line| line.reason.as_str()).collect()
}

/// What reached the server is what the rules allow, whole and under its own name.
fn only_what_is_allowed(internet: &Internet) {
    for head in internet.requests() {
        let fine = (head.starts_with("GET /ok/") || head.starts_with("POST /ok/"))
            && !["secret", "evil", "other.example"]
                .iter()
                .any(|word| head.to_ascii_lowercase().contains(word));
        assert!(fine, "{head}");
    }
}

fn a_request_that_can_be_read_in_two_ways_reaches_nobody(caller: &Caller) {
    let code = r#"
hidden = b"GET /secret HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
head = b"POST /ok/x HTTP/1.1\r\nHost: api.example.com\r\n"
chunked = b"Transfer-Encoding: chunked\r\n"
two_ways = [
    b"Content-Length: 5\r\n" + chunked + b"\r\n0\r\n\r\n" + hidden,
    chunked + b"Content-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
    b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden,
    b"Content-Length: 0, %d\r\n\r\n" % len(hidden) + hidden,
    b"Content-Length: +5\r\n\r\nhello" + hidden,
    b"Content-Length: 0x5\r\n\r\nhello" + hidden,
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden,
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
    chunked + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden,
    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden,
    b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
    b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
    b"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
    b"X: a\x00b\r\n\r\n" + hidden,
    b"Host: evil.test\r\n\r\n" + hidden,
    chunked + b"\r\n5\nhello\r\n0\r\n\r\n" + hidden,
    chunked + b"\r\n0x5\r\nhello\r\n0\r\n\r\n" + hidden,
    chunked + b"\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n" + hidden,
]
# Nothing of it is served: neither the request nor what hides in it.
refused = [raw(head + more) for more in two_ways]
def ask(line, *more): return raw(b"\r\n".join((line, *more, b"Connection: close", b"", b"")))
mismatched = [ask(b"GET /ok/x HTTP/1.1", b"Host: " + host) for host in
    (b"evil.test", b"other.example.com", b"api.example.com.evil.test", b"api.example.com@evil.test", b"api.example.com:8443")]
mismatched.append(ask(b"GET https://evil.test/ok/x HTTP/1.1", b"Host: api.example.com"))
elsewhere = [ask(b"GET " + path + b" HTTP/1.1", b"Host: api.example.com") for path in
    (b"/secret", b"/ok/../secret", b"/ok/%2e%2e/secret", b"/ok/..;/secret", b"/ok%2f..%2fsecret", b"//secret", b"/ok/x/%252e%252e/%252e%252e/secret")]
# What is a body stays one, and of two requests in one breath each is judged.
body = raw(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(hidden) + hidden)
both = raw(b"GET /ok/first HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /secret HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
print(json.dumps([[a.split(" ")[1:2] for a in refused], [[a.split(" ")[1:2], "authority-mismatch" in a] for a in mismatched],
    [[a.split(" ")[1:2], "path-not-allowed" in a] for a in elsewhere], body.endswith("served"), [both.count("HTTP/1.1 200 "), both.count("HTTP/1.1 403 ")],
    sum("served" in a for a in refused + mismatched + elsewhere), ask(b"GET /ok/last HTTP/1.1", b"Host: api.example.com").endswith("served")]))"#;
    let Some((seen, boxed, internet)) = tried(caller, code) else { return };
    let of = |list: &Value, each: Value| {
        assert!(list.as_array().unwrap().iter().all(|one| *one == each), "{list}")
    };
    of(&seen[0], json!(["400"]));
    of(&seen[1], json!([["403"], true]));
    of(&seen[2], json!([["403"], true]));
    assert_eq!(json!([seen[3], seen[4], seen[5], seen[6]]), json!([true, [1, 1], 0, true]));
    only_what_is_allowed(&internet);
    let lines: Vec<String> =
        internet.requests().iter().map(|head| head.split(" HTTP").next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["POST /ok/x", "GET /ok/first", "GET /ok/last"]);
    let mut why = reasons(&boxed, "api.example.com");
    why.sort_unstable();
    assert_eq!(why, ["authority-mismatch", "bad-request", "path-not-allowed"]);
}

/// Frames by hand, headers as literals: no library that would refuse to send them.
const FRAMES: &str = r#"
def number(n, bits):
    most = (1 << bits) - 1
    if n < most: return bytes([n])
    n -= most
    out = bytes([most])
    while n >= 128: out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n])
def block(fields): return b"".join(b"\0" + b"".join(number(len(part), 7) + part for part in field) for field in fields)
def frame(kind, flags, stream, payload=b""): return struct.pack("!I", len(payload))[1:] + bytes([kind, flags]) + struct.pack("!I", stream) + payload
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, END_HEADERS = 1, 4
def asking(path=b"/ok/x", method=b"GET", authority=b"api.example.com", scheme=b"https", more=()):
    return [(b":method", method), (b":scheme", scheme), (b":authority", authority), (b":path", path), *more]
def opened():
    one = tls(alpn="h2")
    assert one.selected_alpn_protocol() == "h2"
    one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return one
def exactly(one, length):
    got = b""
    while len(got) < length:
        more = one.recv(length - len(got))
        if not more: raise ConnectionResetError
        got += more
    return got
def answer(one, stream=1):
    "What came of a stream: its body, `reset`, or the end of its connection."
    body = b""
    try:
        while True:
            length, kind, flags, number = struct.unpack("!IBBI", b"\0" + exactly(one, 9))
            payload = exactly(one, length)
            if kind == SETTINGS and not flags & 1: one.sendall(frame(SETTINGS, 1, 0))
            if kind == PING and not flags & 1: one.sendall(frame(PING, 1, 0, payload))
            if kind == GOAWAY: return "ended"
            if number != stream: continue
            if kind == RESET: return "reset"
            if kind == DATA: body += payload
            if kind in (DATA, HEADERS) and flags & END_STREAM: return body.decode()
    except socket.timeout: return "silence"
    except OSError: return "ended"
def said(*frames):
    with opened() as one:
        try: one.sendall(b"".join(frames))
        except socket.timeout: return "silence"
        except OSError: pass
        return answer(one)
def get(fields): return said(frame(HEADERS, END_STREAM | END_HEADERS, 1, block(fields)))
def post(fields, *data):
    body = [frame(DATA, END_STREAM if last == len(data) - 1 else 0, 1, part) for last, part in enumerate(data)]
    return said(frame(HEADERS, END_HEADERS, 1, block(fields)), *body)
"#;

fn odd_http2_reaches_nobody_and_the_next_connection_is_served(caller: &Caller) {
    let code = r#"
first = get(asking())
hidden = b"GET /secret HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
named = [get(asking(authority=name)) for name in (b"evil.test", b"other.example.com", b"api.example.com.evil.test", b"api.example.com@evil.test", b"api.example.com:8443")]
named += [get(asking(scheme=b"http")), get(asking(more=[(b"host", b"evil.test")])), get(asking(path=b"/secret")), get(asking(path=b"/ok/../secret"))]
odd = [
    get(asking(path=b"/ok/x HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /secret")),
    get(asking(path=b"")),
    get(asking(method=b"GET /secret HTTP/1.1\r\nX:")),
    get(asking(more=[(b"x", b"a\r\nTransfer-Encoding: chunked")])),
    get(asking(more=[(b"x\r\ny: z", b"a")])),
    get(asking(more=[(b"X-Capital", b"a")])),
    get(asking(more=[(b":path", b"/secret")])),
    get(asking(more=[(b"x", b"a"), (b":authority", b"evil.test")])),
    get(asking(more=[(b"connection", b"keep-alive")])),
    get(asking(more=[(b"transfer-encoding", b"chunked")])),
    get(asking(more=[(b"upgrade", b"websocket"), (b"connection", b"upgrade")])),
    get(asking(method=b"CONNECT")),
    get(asking(method=b"CONNECT", more=[(b":protocol", b"websocket")])),
    get([field for field in asking() if field[0] != b":path"]),
    said(frame(HEADERS, END_STREAM | END_HEADERS, 2, block(asking()))),
    said(frame(DATA, END_STREAM, 1, hidden)),
    said(frame(CONTINUATION, END_HEADERS, 1, block(asking()))),
]
long = block(asking(more=[(b"x-%d" % n, b"y" * 4000) for n in range(500)]))
pieces = [long[at:at + 16000] for at in range(0, len(long), 16000)]
odd.append(said(frame(HEADERS, END_STREAM, 1, pieces[0]), *(frame(CONTINUATION, 0, 1, piece) for piece in pieces[1:]), frame(CONTINUATION, END_HEADERS, 1)))
odd.append(said(frame(HEADERS, END_STREAM, 1, block(asking())), *(frame(CONTINUATION, 0, 1) for _ in range(20000)), frame(CONTINUATION, END_HEADERS, 1)))
# A length that lies, more nothing than anybody needs, and streams that are taken back: whatever becomes of them.
length = lambda n: [(b"content-length", b"%d" % n)]
post(asking(method=b"POST", more=length(0)), hidden)
post(asking(method=b"POST", more=length(3)), b"abc" + hidden)
post(asking(method=b"POST", more=length(1000)), hidden)
post(asking(method=b"POST"), *[b""] * 20000, b"end")
said(*(frame(HEADERS, END_STREAM | END_HEADERS, n, block(asking(path=b"/ok/reset"))) + frame(RESET, 0, n, struct.pack("!I", 8)) for n in range(1, 4001, 2)))
said(*(frame(PING, 0, 0, b"12345678") for _ in range(5000)), frame(HEADERS, END_STREAM | END_HEADERS, 1, block(asking())))
print(json.dumps([first, ["served" in a for a in named], odd, get(asking(path=b"/ok/last"))]))"#;
    let Some((seen, boxed, internet)) = tried(caller, &format!("{FRAMES}\n{code}")) else { return };
    assert_eq!((&seen[0], &seen[3]), (&json!("served"), &json!("served")));
    assert!(seen[1].as_array().unwrap().iter().all(|served| *served == json!(false)), "{seen}");
    let nothing = |answer: &Value| {
        let answer = answer.as_str().unwrap();
        ["", "reset", "ended"].contains(&answer) || answer.contains("\"reason\"")
    };
    assert!(seen[2].as_array().unwrap().iter().all(nothing), "{}", seen[2]);
    only_what_is_allowed(&internet);
    let why = reasons(&boxed, "api.example.com");
    assert!(why.contains(&"authority-mismatch") && why.contains(&"path-not-allowed"), "{why:?}");
}

fn a_connection_becomes_a_websocket_only_where_the_rule_says_so(caller: &Caller) {
    let code = r#"
def upgrade(host, kind, more=b""):
    one = tls(host)
    one.sendall(b"GET /ok/chat HTTP/1.1\r\nHost: " + host.encode() + b"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: " + kind +
        b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + more + b"\r\n")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = one.recv(1)
        if not byte: break
        head += byte
    return one, head.decode("latin-1")
one, head = upgrade("ws.example.com", b"websocket")
echoed = []
# A masked frame of text, bytes that look like a request, and more than a packet.
for message in (b"\x81\x85\x01\x02\x03\x04" + bytes(a ^ b for a, b in zip(b"hello", b"\x01\x02\x03\x04\x01")), b"GET /secret HTTP/1.1\nHost: evil\n\n", os.urandom(100000)):
    one.sendall(message)
    back = b""
    while len(back) < len(message):
        more = one.recv(65536)
        if not more: break
        back += more
    echoed.append(back == message)
one.close()
denied = []
for host, kind in (("api.example.com", b"websocket"), ("other.example.com", b"websocket"), ("ws.example.com", b"TLS/1.3"), ("ws.example.com", b"websocket, h2c")):
    one, answer = upgrade(host, kind, b"Content-Length: 0\r\n")
    denied.append([answer.split(" ")[1], one.recv(65536).count(b"upgrade-not-allowed")])
    one.close()
# A server need not agree to this one, and never hears of it.
one, plain = upgrade("api.example.com", b"h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n")
one.close()
print(json.dumps([head.split(" ")[1], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, echoed, denied, plain.split(" ")[1]]))"#;
    let Some((seen, boxed, internet)) = tried(caller, code) else { return };
    let refused = json!(["403", 1]);
    assert_eq!(seen, json!(["101", true, [true, true, true], [refused, refused, refused, refused], "200"]));
    let requests = internet.requests();
    let upgrades = |head: &&String| head.to_ascii_lowercase().contains("upgrade");
    assert_eq!((requests.len(), requests.iter().filter(upgrades).count()), (2, 1), "{requests:?}");
    assert!(requests[0].contains("ws.example.com"), "{requests:?}");
    for target in NAMES {
        assert_eq!(reasons(&boxed, target), ["upgrade-not-allowed"], "{target}");
    }
}

/// What the gateway read is not sent on to somebody who only might be who was asked for, least of all a secret.
fn a_server_whose_certificate_does_not_hold_gets_nothing_and_the_record_says_why(caller: &Caller) {
    use std::os::unix::fs::PermissionsExt as _;
    const FLAWS: [(&str, Flaw, &str); 3] = [
        ("expired.example.com", Flaw::Expired, "certificate-expired"),
        ("unknown.example.com", Flaw::UnknownIssuer, "certificate-issuer-unknown"),
        ("other.example.com", Flaw::OtherName, "certificate-name-mismatch"),
    ];
    let Some(internet) = Internet::build(caller) else { return };
    for (name, ..) in FLAWS {
        internet.name(name, &[&[PUBLIC]]);
    }
    if !internet.impostor(caller, &FLAWS.map(|(name, flaw, _)| (name, flaw)), serve) {
        return;
    }
    let private = |path: std::path::PathBuf| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let token = private(caller.file("token", "a-secret-for-nobody-0123456789"));
    let hosts = FLAWS.map(|(name, ..)| name);
    let sources = private(
        caller.file("secrets.toml", format!("[secrets.token]\nhosts = {hosts:?}\nfile = {token:?}\n")),
    );
    let each = |line: &dyn Fn(&str) -> String| hosts.map(line).concat();
    let policy = format!(
        "threat = \"medium\"\naccept = [{ACCEPT}]\n[network]\nmode = \"allow\"\nallow = [{}]\n\
         [credentials]\nmode = \"brokered\"\nbind = [{}]\n",
        each(&|host| format!("{{ host = \"{host}\", tls = \"inspect\" }}, ")),
        each(&|host| format!("{{ secret = \"token\", host = \"{host}\" }}, ")),
    );
    let policy = caller.file("policy.toml", policy);
    let code = format!(
        "import urllib.error, urllib.request\ndef ask(host):\n    try: return urllib.request.urlopen('https://' + host + '/').read().decode()\n    \
         except urllib.error.HTTPError as error: return [error.code, json.loads(error.read())['reason']]\n\
         print(json.dumps([ask(host) for host in {hosts:?}]))"
    );
    let options = ["--policy", text(&policy), "--secrets", text(&sources), "--timeout", "50s"];
    let boxed = internet.python(caller, &options, &format!("{SPEAK}\n{code}")).fine();
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(seen, json!(FLAWS.map(|(_, _, why)| json!([502, why]))));
    for (name, _, why) in FLAWS {
        assert_eq!(reasons(&boxed, name), [why]);
    }
    assert_eq!(internet.requests(), [""; 0]);
}
