//! Ways round a name that a box with network may try: aliases of the resolver's, its own hosts file, other ways to write an address, a name that
//! is encrypted, a resolver under an allowed wildcard. Each on a small internet, at both ends.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::internet::{Internet, PUBLIC, RESOLVER};
use blastbox_tests::{Boxed, Caller, both_ways};
use serde_json::{Value, json};

both_ways!(
    an_alias_leads_only_where_an_address_may,
    however_an_address_is_written_it_is_no_way_round,
    what_a_box_believes_of_names_changes_nothing,
    an_encrypted_name_in_tls_is_refused_or_left_unread,
    bandwidth_bytes_of_a_host_and_new_connections_are_limited_at_both_ends,
    a_public_resolver_is_not_opened_by_a_wildcard_around_it,
);

/// `tried(function, …)`: what it returned, or the name of the errno.
const TRIED: &str = r#"
import errno, json, os, socket, ssl, subprocess
def tried(what, *arguments):
    try: return what(*arguments)
    except socket.gaierror: return "no such name"
    except socket.timeout: return "silence"
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def talk(host, port):
    with socket.create_connection((host, port), timeout=20) as one:
        one.sendall(b"hello")
        return one.recv(5).decode()
"#;

fn tried(internet: &Internet, caller: &Caller, allow: &[&str], code: &str) -> (Value, Boxed) {
    let options: Vec<&str> = allow.iter().flat_map(|rule| ["--allow", rule]).collect();
    let boxed = internet.python(caller, &options, &format!("{TRIED}\n{code}"));
    assert_eq!(boxed.receipt.exit_code, 0, "{}\n{:?}", boxed.stderr, boxed.receipt.reason);
    (serde_json::from_str(&boxed.stdout).unwrap(), boxed)
}

fn reasons<'b>(boxed: &'b Boxed, target: &str) -> Vec<&'b str> {
    let lines = boxed.receipt.network.denied.iter().filter(|line| line.target == target);
    lines.map(|line| line.reason.as_str()).collect()
}

fn an_alias_leads_only_where_an_address_may(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.alias("a.example.com", "edge.example.net");
    internet.alias("edge.example.net", "node.example.net");
    internet.name("node.example.net", &[&[PUBLIC]]);
    internet.alias("b.example.com", "c.example.net");
    internet.alias("c.example.net", "private.example.net");
    internet.name("private.example.net", &[&["10.9.9.9", "fd00:9::9"]]);
    internet.alias("d.example.com", "metadata.example.net");
    internet.name("metadata.example.net", &[&["169.254.169.254"]]);
    internet.echo(80);
    let names = ["a.example.com", "b.example.com", "d.example.com", "edge.example.net", "node.example.net"];
    let code = format!("print(json.dumps([tried(talk, name, 80) for name in {}]))", json!(names));
    let allow = ["a.example.com:80", "b.example.com:80", "d.example.com:80"];
    let (seen, boxed) = tried(&internet, caller, &allow, &code);
    let (refused, none) = ("ECONNREFUSED", "no such name");
    assert_eq!(seen, json!(["hello", refused, refused, none, none]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:80")]);
    assert_eq!(reasons(&boxed, "b.example.com"), ["forbidden-address"]);
    assert_eq!(reasons(&boxed, "d.example.com"), ["metadata-address"]);
}

/// The C library reads the first of these as addresses, without asking anybody; a resolver of a proxy might read them, too.
fn however_an_address_is_written_it_is_no_way_round(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(80);
    let forms = [
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "169.254.43518",
        "0x0a.9.0x909",
        "10.591113",
        "::ffff:10.9.9.9",
        "::ffff:a9fe:a9fe",
        "64:ff9b::a09:909",
        "2002:a09:909::1",
    ];
    let code = format!(
        r#"
def connect(authority):
    with socket.create_connection(("198.18.0.1", 3128), timeout=20) as one:
        one.sendall(f"CONNECT {{authority}} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return one.recv(4096).split(b" ")[1].decode()
def socks(name):
    with socket.create_connection(("198.18.0.1", 1080), timeout=20) as one:
        one.sendall(b"\x05\x01\x00")
        one.recv(2)
        one.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + b"\x00\x50")
        return one.recv(10)[1]
forms = {}
print(json.dumps([[tried(talk, form, 80) for form in forms],
    [tried(connect, f"[{{form}}]:80" if ":" in form else f"{{form}}:80") for form in forms], [tried(socks, form) for form in forms]]))"#,
        json!(forms)
    );
    let (seen, _) = tried(&internet, caller, &["echo.example.com:80"], &code);
    let all = |answer: Value| vec![answer; forms.len()];
    assert_eq!(seen[1], json!(all(json!("403"))));
    assert_eq!(seen[2], json!(all(json!(2))));
    for (form, answer) in forms.iter().zip(seen[0].as_array().unwrap()) {
        assert!(["ECONNREFUSED", "ENETUNREACH"].contains(&answer.as_str().unwrap()), "{form}: {answer}");
    }
    assert_eq!(internet.visits(), [""; 0]);
    assert_eq!(internet.questions(), [""; 0]);
}

/// A hosts file is the box's own idea of where a name is (`--resolve` is curl's form of one), and so is another resolver: the packets say where
/// they go, and that is what is decided.
fn what_a_box_believes_of_names_changes_nothing(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.name("evil.test", &[&[PUBLIC]]);
    internet.echo(80);
    let code = format!(
        r#"
def curl(address):
    words = ["curl", "-s", "-m", "20", "--noproxy", "*", "--resolve", f"echo.example.com:80:{{address}}", "http://echo.example.com/"]
    return subprocess.run(words, capture_output=True).returncode
with open("/tmp/aliases", "w") as aliases: aliases.write("echo evil.test\n")
alias = "import socket\ntry: socket.getaddrinfo('echo', 80); print('found')\nexcept socket.gaierror: print('no such name')"
environment = dict(os.environ, HOSTALIASES="/tmp/aliases", RES_OPTIONS="ndots:0")
asked = subprocess.run(["/usr/bin/python3", "-c", alias], env=environment, capture_output=True, text=True).stdout.strip()
found = os.path.exists("/usr/bin/curl")
print(json.dumps([[curl(address) for address in ("{PUBLIC}", "10.9.9.9", "169.254.169.254", "[fd00:9::9]", "{RESOLVER}")] if found else "no curl",
    asked, tried(open, "/etc/hosts", "a") , tried(open, "/etc/resolv.conf", "a")]))"#
    );
    let (seen, _) = tried(&internet, caller, &["echo.example.com:80"], &code);
    // Exit code 7: it could not connect.
    assert!(seen[0] == json!([7, 7, 7, 7, 7]) || seen[0] == json!("no curl"), "{seen}");
    assert_eq!(seen[1], "no such name");
    assert!(
        [&seen[2], &seen[3]].iter().all(|denied| ["EROFS", "EACCES"].contains(&denied.as_str().unwrap())),
        "{seen}"
    );
    assert_eq!(internet.visits(), [""; 0]);
    assert_eq!(internet.questions(), [""; 0]);
}

/// The outer name is allowed; the inner one, which the server would read, is anybody's.
fn an_encrypted_name_in_tls_is_refused_or_left_unread(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("a.example.com", &[&[PUBLIC]]);
    internet.echo(443);
    let code = r#"
def hello(more):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="a.example.com")
    try: one.do_handshake()
    except ssl.SSLWantReadError: pass
    record = outgoing.read()
    body = bytearray(record[5:])
    at = 38
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at:at + 2], "big")
    at += 1 + body[at]
    body[at:at + 2] = (int.from_bytes(body[at:at + 2], "big") + len(more)).to_bytes(2, "big")
    body += more
    body[1:4] = (len(body) - 4).to_bytes(3, "big")
    return record[:3] + len(body).to_bytes(2, "big") + bytes(body)
def said(text):
    with socket.create_connection(("a.example.com", 443), timeout=20) as one:
        one.sendall(text)
        got = one.recv(65536)
        return "carried" if len(got) > 10 and got == text[:len(got)] else got.hex()
# An extension that nobody knows, and the one of encrypted hellos: outer, a suite, a number, a key, what is encrypted.
encrypted = bytes.fromhex("0000010001070020") + os.urandom(32) + bytes.fromhex("0040") + os.urandom(64)
unknown, known = bytes.fromhex("5a5b0000"), bytes.fromhex("fe0d") + len(encrypted).to_bytes(2, "big") + encrypted
print(json.dumps([tried(said, hello(unknown)), tried(said, hello(known))]))"#;
    let (seen, boxed) = tried(&internet, caller, &["a.example.com"], code);
    // A fatal alert, "access denied".
    assert_eq!(seen, json!(["carried", "15030300020231"]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:443")]);
    assert_eq!(reasons(&boxed, "a.example.com"), ["tls-name-encrypted"]);
    // Where TLS is read, the gateway has no key for what is encrypted: it answers the open hello, calls the server by that name, and
    // refuses the one that is open and another's.
    let rule = "allow = [{ host = \"a.example.com\", tls = \"inspect\" }]";
    let code = format!("{}\n{INSPECTED}", code.rsplit_once('\n').unwrap().0);
    let boxed = internet
        .python(caller, &with(caller, rule).each_ref().map(String::as_str), &format!("{TRIED}\n{code}"))
        .fine();
    // A hello of the server's; nothing.
    assert_eq!(boxed.stdout.trim(), r#"["16", "16", ""]"#);
    assert_eq!(reasons(&boxed, "a.example.com"), ["tls-name-mismatch"]);
    assert_eq!(internet.visits().len(), 1);
}

/// The last line of the script above, for a gateway that answers itself.
const INSPECTED: &str = r#"
def first(text):
    with socket.create_connection(("a.example.com", 443), timeout=20) as one:
        one.sendall(text)
        try: return one.recv(65536)[:1].hex()
        except ConnectionResetError: return ""
print(json.dumps([first(hello(unknown)), first(hello(known)), first(hello(known).replace(b"a.example.com", b"b.example.com"))]))"#;

const ACCEPT: &str = "\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \
    \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"";

/// The options of a box with these words in its network's section.
fn with(caller: &Caller, network: &str) -> [String; 4] {
    let policy =
        format!("threat = \"medium\"\naccept = [{ACCEPT}]\n[network]\nmode = \"allow\"\n{network}\n");
    let policy = caller.file("policy.toml", policy).to_str().unwrap().to_owned();
    ["--policy".to_owned(), policy, "--timeout".to_owned(), "50s".to_owned()]
}

/// What the box saw, and what reached the servers.
fn bandwidth_bytes_of_a_host_and_new_connections_are_limited_at_both_ends(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    for name in ["one.example.com", "other.example.com"] {
        internet.name(name, &[&[PUBLIC]]);
    }
    internet.echo(7);
    let rule = "allow = [{ host = \"*.example.com\", ports = [7], protocol = \"tcp\" }]";
    let run = |limits: &str, code: &str| {
        let options = with(caller, &format!("{rule}\nlimits = {{ {limits} }}"));
        let boxed = internet
            .python(caller, &options.each_ref().map(String::as_str), &format!("{TRIED}\n{EXCHANGE}\n{code}"))
            .fine();
        (serde_json::from_str::<Value>(&boxed.stdout).unwrap(), boxed)
    };
    // A second's worth at once, and no more than that in each second: both ways together, but for the last pieces, which nobody waits for.
    let code = "begun = time.monotonic(); got = exchange('one.example.com', 500000); print(json.dumps([got, time.monotonic() - begun]))";
    let (seen, _) = run("bandwidth = \"400KiB\"", code);
    assert!(seen[0] == json!(500_000) && seen[1].as_f64().unwrap() >= 0.8, "{seen}");
    // One host has used up its bytes, and another has not.
    let code = "print(json.dumps([exchange('one.example.com', 10000), exchange('one.example.com', 1000000) < 100000, \
        tried(exchange, 'one.example.com', 5), exchange('other.example.com', 10000)]))";
    let (seen, boxed) = run("bytes_per_host = \"64KiB\"", code);
    assert_eq!(seen, json!([10_000, true, "ECONNREFUSED", 10_000]));
    assert_eq!(reasons(&boxed, "one.example.com"), ["host-byte-limit"]);
    assert_eq!(reasons(&boxed, "other.example.com"), [""; 0]);
    // As many at once as a second has, and then as many as come with time.
    let before = internet.visits().len();
    let code = "begun = time.monotonic(); made = sum(tried(exchange, 'one.example.com', 5) == 5 for _ in range(200)); \
        print(json.dumps([made, time.monotonic() - begun]))";
    let (seen, boxed) = run("connections_per_second = 10, questions_per_second = 100000", code);
    let (made, took) = (seen[0].as_u64().unwrap(), seen[1].as_f64().unwrap());
    let visits = internet.visits().len() - before;
    assert!(made >= 10 && u64::try_from(visits).unwrap() == made, "{made} {visits}");
    let most = 11.0 + took * 10.0;
    assert!((visits as f64) <= most, "{visits} in {took} s");
    // The whole storm may have taken so long that nothing was too much.
    assert!(
        visits == 200 || reasons(&boxed, "one.example.com") == ["rate-limit"],
        "{:?}",
        boxed.receipt.network
    );
}

/// `exchange(host, length)`: how many of so many bytes came back, written and read at the same time.
const EXCHANGE: &str = r#"
import threading, time
def exchange(host, length):
    with socket.create_connection((host, 7), timeout=40) as one:
        def write():
            try: one.sendall(b"a" * length)
            except OSError: pass
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        got = 0
        try:
            while got < length:
                more = len(one.recv(65536))
                if not more: break
                got += more
        except OSError: pass
        return got
"#;

/// Nobody reads what passes on such a connection: questions would be told from nothing else. By every door.
fn a_public_resolver_is_not_opened_by_a_wildcard_around_it(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("dns.quad9.net", &[&[PUBLIC]]);
    internet.name("www.quad9.net", &[&[PUBLIC]]);
    internet.echo(80);
    let code = r#"
def connect(authority):
    with socket.create_connection(("198.18.0.1", 3128), timeout=20) as one:
        one.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return one.recv(4096).split(b" ")[1].decode()
def socks(name):
    with socket.create_connection(("198.18.0.1", 1080), timeout=20) as one:
        one.sendall(b"\x05\x01\x00")
        one.recv(2)
        one.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + b"\x00\x50")
        return one.recv(10)[1]
print(json.dumps([[tried(talk, name, 80), tried(connect, name + ":80"), tried(socks, name)] for name in ("dns.quad9.net", "www.quad9.net")]))"#;
    let (seen, boxed) = tried(&internet, caller, &["*.quad9.net:80"], code);
    assert_eq!(seen, json!([["no such name", "403", 2], ["hello", "200", 0]]));
    // As a question, and as a connection by a proxy.
    assert_eq!(reasons(&boxed, "dns.quad9.net"), ["resolver-not-allowed"; 2]);
    assert_eq!(internet.visits(), vec![format!("{PUBLIC}:80"); 3]);
    assert!(!internet.questions().iter().any(|name| name == "dns.quad9.net"));
    // By its own name it opens with the word for it alone.
    let ended = internet.blastbox(caller, &["run", "--allow", "dns.quad9.net", "--", "true"]).end();
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(ended.err.contains("resolver = \"dangerously-allowed\""), "{}", ended.err);
    let policy = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \
        \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n[network]\nmode = \"allow\"\n\
        allow = [{ host = \"dns.quad9.net\", ports = [80], protocol = \"tcp\", resolver = \"dangerously-allowed\" }]\n";
    let policy = caller.file("policy.toml", policy);
    let words = ["--policy", policy.to_str().unwrap()];
    let boxed = internet.python(caller, &words, &format!("{TRIED}\nprint(talk('dns.quad9.net', 80))")).fine();
    assert_eq!(boxed.stdout, "hello\n");
}
