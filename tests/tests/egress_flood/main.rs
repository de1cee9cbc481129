//! More than anybody needs, from inside a box: connections that say next to nothing, answers that would unfold to a hundred times
//! their size, ten thousand connections one after another and at the same time. The limits answer, the gateway stays small, and afterwards
//! it serves as before.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

mod crowd;
mod reflected;
mod remembered;
mod slow;
mod watched;

use std::path::Path;

use blastbox_tests::internet::{Internet, PUBLIC, Visitor};
use blastbox_tests::{Caller, both_ways, text};
use serde_json::json;

use watched::{Watched, private_file, reasons};

both_ways!(
    connections_that_say_next_to_nothing_do_not_keep_others_out,
    an_answer_that_unfolds_passes_as_it_is_or_not_at_all,
    ten_thousand_connections_leave_the_gateway_as_small_as_it_was,
);

/// What a gateway may have in memory at most, whatever its box does here. An idle one has a tenth.
pub(crate) const MOST_MEMORY: u64 = 96 << 20;
/// Half a greeting of TLS, half a head, a body that never comes, half a request to the proxy.
fn connections_that_say_next_to_nothing_do_not_keep_others_out(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("api.example.com", &[&[PUBLIC]]);
    let served = internet.secure_server(caller, &["api.example.com"], |visitor: &mut Visitor<'_>| {
        while let Some(head) = visitor.head() {
            if visitor.body(&head).is_none() {
                return;
            }
            visitor.say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved");
        }
    });
    if !served {
        return;
    }
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
                  [network.limits]\nflows = 64\nconnections_per_second = 100000\nquestions_per_second = 100000\n";
    let code = r#"
host, held = "api.example.com", []
for number in range(15):
    greeting = socket.create_connection((host, 443), timeout=40)
    greeting.sendall(bytes.fromhex("1603010200010001fc0303"))
    head = tls(host)
    head.sendall(b"GET /half HTTP/1.1\r\nHost: api.exa")
    body = tls(host)
    body.sendall(b"POST /slow HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1000000\r\n\r\n" + b"x" * number)
    proxy = socket.create_connection(("198.18.0.1", 3128), timeout=40)
    proxy.sendall(b"CONNECT api.exam")
    held += [greeting, head, body, proxy]
tell(get(host)[1].decode())
for one in held[1::4] + held[2::4]: one.sendall(b"m")
# As many more as there may be, and then no more.
refused = 0
for _ in range(100):
    try: held.append(socket.create_connection((host, 443), timeout=40))
    except ConnectionRefusedError: refused += 1
tell(refused > 0)
wait()
for one in held: one.close()
tell(again(lambda: get(host)[1].decode()))
"#;
    let mut watched = Watched::start(&internet, caller, policy, &[], code);
    assert_eq!(watched.says(caller), json!(["served"]));
    assert_eq!(watched.says(caller), json!([true]));
    assert!(watched.gateway("VmHWM") < MOST_MEMORY, "{}", watched.gateway("VmHWM"));
    // Half a request is nobody's: the server heard of whole heads only.
    let requests = internet.requests();
    assert!(!requests.iter().any(|head| head.starts_with("GET /half")), "{requests:?}");
    watched.go_on();
    assert_eq!(watched.says(caller), json!(["served"]));
    let receipt = watched.end();
    assert!(reasons(&receipt, "api.example.com").contains(&"flow-limit"), "{:?}", receipt.network.denied);
}

fn an_answer_that_unfolds_passes_as_it_is_or_not_at_all(caller: &Caller) {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() {
        return caller.skip("no /usr/bin/python3 (apt-get install python3)");
    }
    let fold = "import sys, zlib\nc = zlib.compressobj(9, zlib.DEFLATED, 31)\no = sys.stdout.buffer\n\
                for _ in range(128): o.write(c.compress(bytes(1 << 20)))\no.write(c.flush())";
    let bomb = caller.program(python, ["-c", fold]).end().out;
    let length = bomb.len();
    assert!(length > 1000 && length < 1 << 20, "{length}");
    let Some(internet) = Internet::build(caller) else { return };
    let names = ["open.example.com", "bound.example.com"];
    for name in names {
        internet.name(name, &[&[PUBLIC]]);
    }
    let served = internet.secure_server(caller, &names, move |visitor: &mut Visitor<'_>| {
        while let Some(head) = visitor.head() {
            let Some(body) = visitor.body(&head) else { return };
            if head.starts_with("POST ") {
                let said = format!("{}", body.len());
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", said.len());
                visitor.say(format!("{head}{said}").as_bytes());
            } else {
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
                visitor.say(&[head.as_bytes(), &bomb].concat());
            }
        }
    });
    if !served {
        return;
    }
    let secret = private_file(caller, "token", "a-token-of-ordinary-length");
    let sources = format!("[secrets.token]\nhosts = [\"bound.example.com\"]\nfile = {secret:?}\n");
    let sources = private_file(caller, "secrets.toml", &sources);
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"open.example.com\", tls = \"inspect\" }, \
                  { host = \"bound.example.com\", tls = \"inspect\" }]\n[credentials]\nmode = \"brokered\"\n\
                  bind = [{ secret = \"token\", host = \"bound.example.com\" }]\n";
    let code = r#"
head, body = get("open.example.com", more="Accept-Encoding: gzip\r\n")
tell("content-encoding: gzip" in head, len(body))
# Where answers are searched for a secret, nobody unfolds one to look.
head, refusal = get("bound.example.com", more="Accept-Encoding: gzip\r\n")
tell(head.split(" ")[1], len(refusal) < 2000, json.loads(refusal)["reason"])
with tls("open.example.com") as one:
    one.sendall(b"POST / HTTP/1.1\r\nHost: open.example.com\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    got = b""
    while not got.endswith(str(len(body)).encode()):
        more = one.recv(65536)
        if not more: break
        got += more
tell(int(got.split(b"\r\n\r\n")[1]))
wait()
"#;
    let mut watched = Watched::start(&internet, caller, policy, &["--secrets", text(&sources)], code);
    assert_eq!(watched.says(caller), json!([true, length]));
    assert_eq!(watched.says(caller), json!(["502", true, "broken-upstream"]));
    assert_eq!(watched.says(caller), json!([length]));
    assert!(watched.gateway("VmHWM") < MOST_MEMORY, "{}", watched.gateway("VmHWM"));
    watched.go_on();
    watched.end();
}

fn ten_thousand_connections_leave_the_gateway_as_small_as_it_was(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"echo.example.com\", ports = [7], protocol = \"tcp\" }]\n\
                  [network.limits]\nflows = 256\nconnections_per_second = 100000\n";
    let code = r#"
at = socket.getaddrinfo("echo.example.com", 7, socket.AF_INET)[0][4]
def one_more(): return connected(at)
def batch(size):
    held = [again(one_more) for _ in range(size)]
    for one in held: one.sendall(b"hello")
    heard = sum(one.recv(5) == b"hello" for one in held)
    for one in held: one.close()
    return heard
tell(batch(200))
wait()
tell(sum(batch(200) for _ in range(49)))
# All that may be open at once, and not one more.
held, refused = [], 0
while len(held) < 256: held.append(again(one_more))
for _ in range(300):
    try: held.append(one_more())
    except ConnectionRefusedError: refused += 1
tell(len(held), refused)
wait()
for one in held: one.close()
tell(again(lambda: batch(1)))
"#;
    let mut watched = Watched::start(&internet, caller, policy, &[], code);
    assert_eq!(watched.says(caller), json!([200]));
    let before = watched.gateway("VmRSS");
    watched.go_on();
    assert_eq!(watched.says(caller), json!([9800]));
    assert_eq!(watched.says(caller), json!([256, 300]));
    let (after, ever) = (watched.gateway("VmRSS"), watched.gateway("VmHWM"));
    assert!(ever < MOST_MEMORY && after < before + (16 << 20), "{before} {after} {ever}");
    watched.go_on();
    assert_eq!(watched.says(caller), json!([1]));
    let receipt = watched.end();
    assert_eq!(reasons(&receipt, "echo.example.com"), ["flow-limit"]);
    let visits = internet.visits();
    assert!(
        visits.len() >= 10_000 && visits.iter().all(|to| *to == format!("{PUBLIC}:7")),
        "{}",
        visits.len()
    );
}
