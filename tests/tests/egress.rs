//! Boxes with network: what a rule allows is reached, and nothing else, however it is asked for. Each test has a small
//! internet of its own and looks at both ends: what the box saw, and who came to the servers.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::census::{Process, family, lives};
use blastbox_tests::internet::{FORBIDDEN, HOST, Internet, PUBLIC, RESOLVER};
use blastbox_tests::{Caller, both_ways, wait_until};
use serde_json::json;

both_ways!(
    an_allowed_host_is_reached_and_everything_is_told,
    names_that_no_rule_allows_do_not_exist_and_nobody_is_asked,
    no_name_leads_to_a_forbidden_address,
    an_address_is_no_way_round_a_name,
    an_answer_that_changes_changes_nothing,
    other_resolvers_are_not_reached,
    the_name_in_tls_must_be_the_name_that_was_connected_to,
    quic_is_refused_at_once_and_other_datagrams_vanish,
    a_proxy_leads_into_the_same_decision,
    connections_are_limited_and_given_back,
    bytes_are_limited,
    without_its_gateway_a_box_has_no_network,
    a_gateway_is_an_ordinary_user_without_rights_whoever_has_started_it,
    nothing_is_left_of_a_box_with_network,
);

/// `tried(function, …)`: what it returned, or the name of the errno.
const TRIED: &str = r#"
import errno, json, os, socket, ssl, struct, sys, time
def tried(what, *arguments):
    try: return what(*arguments)
    except socket.gaierror as error: return "no such name"
    except socket.timeout: return "silence"
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def talk(host, port, text=b"hello", family=0):
    for kind, _, _, _, at in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM):
        with socket.socket(kind, socket.SOCK_STREAM) as one:
            one.settimeout(20)
            try: one.connect(at)
            except OSError as error: last = error; continue
            one.sendall(text)
            got = b""
            while len(got) < len(text):
                more = one.recv(65536)
                if not more: break
                got += more
            return got.decode("latin-1")
    raise last
"#;

fn tried(
    internet: &Internet,
    caller: &Caller,
    options: &[&str],
    code: &str,
) -> (serde_json::Value, blastbox_tests::Boxed) {
    let boxed = internet.python(caller, options, &format!("{TRIED}\n{code}"));
    assert_eq!(boxed.receipt.exit_code, 0, "{}\n{:?}", boxed.stderr, boxed.receipt.reason);
    (serde_json::from_str(&boxed.stdout).unwrap(), boxed)
}

/// The reasons for which the box was kept from a target.
fn reasons(boxed: &blastbox_tests::Boxed, target: &str) -> Vec<String> {
    let lines = boxed.receipt.network.denied.iter().filter(|line| line.target == target);
    lines.map(|line| line.reason.clone()).collect()
}

fn an_allowed_host_is_reached_and_everything_is_told(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    let code = "print(json.dumps([tried(talk, 'echo.example.com', 7, b'a'*100000, f)[:3] for f in (socket.AF_INET, socket.AF_INET6)] \
                + [tried(talk, 'echo.example.com', 8), tried(talk, 'ECHO.example.com.', 7)]))";
    let (seen, boxed) = tried(&internet, caller, &["--allow", "echo.example.com:7"], code);
    assert_eq!(seen, json!(["aaa", "aaa", "ECONNREFUSED", "hello"]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7"), format!("{PUBLIC}:7"), format!("{PUBLIC}:7")]);
    let allowed = &boxed.receipt.network.allowed;
    assert_eq!(allowed.len(), 1, "{allowed:?}");
    assert_eq!((allowed[0].connections, allowed[0].rule.as_str()), (3, "echo.example.com"));
    assert_eq!((allowed[0].sent_bytes, allowed[0].received_bytes), (200_005, 200_005));
    assert_eq!(reasons(&boxed, "echo.example.com"), ["port-not-allowed"]);
    assert!(!boxed.receipt.network.gateway_lost);
}

fn names_that_no_rule_allows_do_not_exist_and_nobody_is_asked(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let strangers = [
        "api.github.com.evil.test",
        "xapi.github.com",
        "github.com",
        "example.org",
        "badexample.org",
        "secret-data.evil.test",
        "xn--pi-fka.github.com.evil.test",
    ];
    for name in strangers {
        internet.name(name, &[&[PUBLIC]]);
    }
    internet.echo(443);
    let code = format!("print(json.dumps([tried(talk, name, 443) for name in {}]))", json!(strangers));
    let options = ["--allow", "api.github.com", "--allow", "*.example.org"];
    let (seen, boxed) = tried(&internet, caller, &options, &code);
    assert_eq!(seen, json!(vec!["no such name"; strangers.len()]));
    assert_eq!(internet.questions(), [""; 0]);
    assert_eq!(internet.visits(), [""; 0]);
    assert_eq!(reasons(&boxed, "secret-data.evil.test"), ["host-not-allowed"]);
}

fn no_name_leads_to_a_forbidden_address(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let tricks = [
        "169.254.169.254",
        "10.9.9.9",
        "100.64.9.9",
        "fd00:9::9",
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "::ffff:10.9.9.9",
        "::ffff:169.254.169.254",
        "64:ff9b::a09:909",
        "2002:a09:909::1",
        "::a09:909",
        "fe80::1",
        "224.0.0.1",
        HOST,
        "198.18.0.1",
        "2a00:9::2",
    ];
    let mut options = Vec::new();
    let mut names = Vec::new();
    for (number, address) in tricks.iter().enumerate() {
        names.push(format!("t{number}.example.com"));
        internet.name(&names[number], &[&[*address]]);
    }
    for name in &names {
        options.extend(["--allow".to_owned(), format!("{name}:80")]);
    }
    internet.echo(80);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let code = format!("print(json.dumps([tried(talk, name, 80) for name in {}]))", json!(names));
    let (seen, boxed) = tried(&internet, caller, &options, &code);
    assert_eq!(seen, json!(vec!["ECONNREFUSED"; tricks.len()]));
    assert_eq!(internet.visits(), [""; 0]);
    for (name, address) in names.iter().zip(tricks) {
        let expected = match address {
            "169.254.169.254" | "::ffff:169.254.169.254" => "metadata-address",
            HOST | "2a00:9::2" => "own-address",
            _ => "forbidden-address",
        };
        assert_eq!(reasons(&boxed, name), [expected], "{address}");
    }
}

fn an_address_is_no_way_round_a_name(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(80);
    let raw: Vec<&str> = FORBIDDEN
        .into_iter()
        .chain([PUBLIC, RESOLVER, HOST, "2a00:9::1", "198.18.0.1", "198.18.77.77"])
        .collect();
    let code = format!("print(json.dumps([tried(talk, address, 80) for address in {}]))", json!(raw));
    let (seen, _) = tried(&internet, caller, &["--allow", "echo.example.com:80"], &code);
    assert_eq!(seen, json!(vec!["ECONNREFUSED"; raw.len()]));
    assert_eq!(internet.visits(), [""; 0]);
}

fn an_answer_that_changes_changes_nothing(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("rebind.example.com", &[&[PUBLIC], &["10.9.9.9"], &["169.254.169.254"], &[PUBLIC]]);
    internet.echo(80);
    let code = "print(json.dumps([tried(talk, 'rebind.example.com', 80, b'hello', socket.AF_INET) for _ in range(4)]))";
    let (seen, _) = tried(&internet, caller, &["--allow", "rebind.example.com:80"], code);
    assert_eq!(seen, json!(["hello", "ECONNREFUSED", "ECONNREFUSED", "hello"]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:80"), format!("{PUBLIC}:80")]);
}

fn other_resolvers_are_not_reached(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.echo(853);
    internet.ear(853);
    let code = format!(
        r#"
question = bytes.fromhex("abcd01000001000000000000") + b"\x04data\x04evil\x04test\x00" + bytes.fromhex("00010001")
def ask(at, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(20)
        one.connect((at, port))
        one.send(question)
        return one.recv(512)[3] & 15
print(json.dumps([tried(ask, "{RESOLVER}", 53), tried(ask, "{RESOLVER}", 853), tried(talk, "{RESOLVER}", 53),
                  tried(talk, "{RESOLVER}", 853), tried(ask, "198.18.0.1", 53)]))"#
    );
    let (seen, boxed) = tried(&internet, caller, &["--allow", "echo.example.com:80"], &code);
    let refused = "ECONNREFUSED";
    assert_eq!(seen, json!([refused, refused, refused, refused, 3]));
    assert_eq!(internet.questions(), [""; 0]);
    assert_eq!(internet.visits(), [""; 0]);
    assert_eq!(reasons(&boxed, RESOLVER), ["resolver-not-allowed", "resolver-not-allowed"]);
}

fn the_name_in_tls_must_be_the_name_that_was_connected_to(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("a.example.com", &[&[PUBLIC]]);
    internet.name("b.example.com", &[&[PUBLIC]]);
    internet.echo(443);
    let code = r#"
def hello(name):
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try: one.do_handshake()
    except ssl.SSLWantReadError: pass
    return outgoing.read()
def said(host, text):
    with socket.create_connection((host, 443), timeout=20) as one:
        one.sendall(text)
        got = one.recv(65536)
        return "carried" if got == text[:len(got)] and len(got) > 10 else got.hex()
whole = hello("a.example.com")
def slowly(host):
    with socket.create_connection((host, 443), timeout=20) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in whole: one.sendall(bytes([byte]))
        return "carried" if one.recv(65536)[:5] == whole[:5] else "another"
print(json.dumps([tried(said, "a.example.com", whole), tried(slowly, "a.example.com"),
                  tried(said, "a.example.com", hello("b.example.com")), tried(said, "a.example.com", hello("evil.test")),
                  tried(said, "a.example.com", hello(None)), tried(said, "a.example.com", b"GET / HTTP/1.1\r\n\r\n")]))"#;
    let options = ["--allow", "a.example.com", "--allow", "b.example.com"];
    let (seen, boxed) = tried(&internet, caller, &options, code);
    // A fatal alert, "access denied"; what is not TLS at all is reset.
    let alert = "15030300020231";
    assert_eq!(seen, json!(["carried", "carried", alert, alert, alert, "ECONNRESET"]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:443"), format!("{PUBLIC}:443")]);
    let mut why = reasons(&boxed, "a.example.com");
    why.sort();
    assert_eq!(why, ["not-tls", "tls-name-mismatch", "tls-name-missing"]);
}

fn quic_is_refused_at_once_and_other_datagrams_vanish(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("a.example.com", &[&[PUBLIC]]);
    for port in [443, 5000] {
        internet.ear(port);
    }
    let code = r#"
def send(at, port, wait, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.settimeout(wait)
        one.connect((at, port))
        one.send(b"out")
        return one.recv(512)
print(json.dumps([tried(send, "a.example.com", 443, 20), tried(send, "a.example.com", 443, 20, socket.AF_INET6), tried(send, "a.example.com", 5000, 0.2)]))"#;
    let (seen, boxed) = tried(&internet, caller, &["--allow", "a.example.com"], code);
    assert_eq!(seen, json!(["ECONNREFUSED", "ECONNREFUSED", "silence"]));
    assert_eq!(internet.visits(), [""; 0]);
    let mut why = reasons(&boxed, "a.example.com");
    why.sort();
    assert_eq!(why, ["quic-not-allowed", "transport-not-allowed"]);
}

fn a_proxy_leads_into_the_same_decision(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.name("private.example.com", &[&["10.9.9.9"]]);
    internet.echo(7);
    let code = r#"
def connect(authority):
    with socket.create_connection(("198.18.0.1", 3128), timeout=20) as one:
        one.sendall(b"CONNECT " + authority + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            more = one.recv(4096)
            if not more: return head.decode()
            head += more
        if not head.startswith(b"HTTP/1.1 200"): return head.split(b" ")[1].decode()
        one.sendall(b"through")
        return one.recv(100).decode()
def socks(name, port):
    with socket.create_connection(("198.18.0.1", 1080), timeout=20) as one:
        one.sendall(b"\x05\x01\x00")
        assert one.recv(2) == b"\x05\x00"
        one.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack("!H", port))
        answer = one.recv(10)
        if answer[1]: return answer[1]
        one.sendall(b"through")
        return one.recv(100).decode()
print(json.dumps([tried(connect, a) for a in (b"echo.example.com:7", b"ECHO.example.com:7", b"echo.example.com:8",
        b"evil.test:7", b"echo.example.com@evil.test:7", b"10.9.9.9:7", b"0x0a090909:7", b"echo.example.com%00.evil.test:7")]
    + [tried(socks, *a) for a in ((b"echo.example.com", 7), (b"evil.test", 7), (b"echo.example.com\0.evil.test", 7), (b"10.9.9.9", 7))]))"#;
    let options = ["--allow", "echo.example.com:7", "--allow", "private.example.com:7"];
    let (seen, _) = tried(&internet, caller, &options, code);
    assert_eq!(
        seen,
        json!(["through", "through", "403", "403", "403", "403", "403", "403", "through", 2, 2, 2])
    );
    assert_eq!(internet.visits(), vec![format!("{PUBLIC}:7"); 3]);
}

fn connections_are_limited_and_given_back(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    let policy = caller.file(
        "policy.toml",
        "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \
         \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n\
         [network]\nmode = \"allow\"\nallow = [{ host = \"echo.example.com\", ports = [7], protocol = \"tcp\" }]\n\
         [network.limits]\nflows = 16\nconnections_per_second = 100000\n[files]\nopen_files = 2048\n",
    );
    let code = r#"
at = socket.getaddrinfo("echo.example.com", 7, socket.AF_INET)[0][4]
def storm(times):
    held, refused = [], 0
    for _ in range(times):
        one = socket.socket()
        one.settimeout(20)
        try: one.connect(at); held.append(one)
        except ConnectionRefusedError: refused += 1; one.close()
    return held, refused
held, refused = storm(10000)
print(json.dumps([len(held), refused, [tried(one.sendall, b"x") for one in held] == [None] * len(held)]), file=sys.stderr)
first = [len(held), refused]
for one in held: one.close()
for _ in range(2000):
    again = tried(talk, "echo.example.com", 7)
    if again == "hello": break
    time.sleep(0.01)
print(json.dumps(first + [again]))"#;
    let options = ["--policy", policy.to_str().unwrap(), "--timeout", "50s"];
    let (seen, boxed) = tried(&internet, caller, &options, code);
    assert_eq!(seen, json!([16, 9984, "hello"]));
    assert_eq!(reasons(&boxed, "echo.example.com"), ["flow-limit"]);
    assert!(!boxed.receipt.network.gateway_lost);
}

fn bytes_are_limited(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    let policy = caller.file(
        "policy.toml",
        "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \
         \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n\
         [network]\nmode = \"allow\"\nallow = [{ host = \"echo.example.com\", ports = [7], protocol = \"tcp\" }]\n\
         [network.limits]\nbytes = \"64KiB\"\n",
    );
    let code = "
first = tried(talk, 'echo.example.com', 7, b'a'*10000)
second = tried(talk, 'echo.example.com', 7, b'a'*1000000)
print(json.dumps([len(first), len(second) < 100000, tried(talk, 'echo.example.com', 7)]))";
    let (seen, boxed) = tried(&internet, caller, &["--policy", policy.to_str().unwrap()], code);
    assert_eq!(seen, json!([10000, true, "ECONNREFUSED"]));
    assert_eq!(reasons(&boxed, "echo.example.com"), ["byte-limit"]);
}

fn without_its_gateway_a_box_has_no_network(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    let code = r#"
print(tried(talk, "echo.example.com", 7), flush=True)
sys.stdin.readline()
print(tried(talk, "echo.example.com", 7), flush=True)"#;
    let script = caller.file("code.py", format!("{TRIED}\n{code}"));
    let workspace = script.parent().unwrap().to_str().unwrap();
    let receipt = caller.place().join("receipt.json");
    let words = [
        "run",
        "-i",
        "--profile",
        "medium",
        "--workspace",
        &format!("{workspace}:ro"),
        "--allow",
        "echo.example.com:7",
        "--accept",
        "shared-uid",
        "--accept",
        "no-memory-limit",
        "--accept",
        "no-cpu-limit",
        "--accept",
        "no-pids-limit",
        "--accept",
        "shared-kernel",
        "--accept",
        "host-image",
        "--accept",
        "swap-unlimited",
        "--receipt",
        receipt.to_str().unwrap(),
        "--",
        "/usr/bin/python3",
        "/workspace/code.py",
    ];
    // The line that lets the box go on comes only when its gateway is dead.
    let (reader, writer) = std::io::pipe().unwrap();
    let (out_reader, out) = std::io::pipe().unwrap();
    let null = std::fs::File::create("/dev/null").unwrap();
    let held = internet.blastbox(caller, &words).start_with([reader.into(), out.into(), null.into()]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out_reader));
    assert_eq!(lines.next().unwrap().unwrap(), "hello");
    let mut gateway = None;
    assert!(wait_until(|| {
        gateway = named(held.id(), "blastbox-egress");
        gateway.is_some()
    }));
    let gateway = gateway.unwrap();
    kill(&gateway);
    assert!(wait_until(|| !lives(&gateway)));
    std::io::Write::write_all(&mut { writer }, b"\n").unwrap();
    let after = lines.next().unwrap().unwrap();
    assert!(["no such name", "ENETUNREACH", "EHOSTUNREACH"].contains(&after.as_str()), "{after}");
    assert_eq!(held.end().code, 0);
    let receipt: blastbox_wire::receipt::Receipt =
        serde_json::from_slice(&std::fs::read(receipt).unwrap()).unwrap();
    assert!(receipt.network.gateway_lost);
    assert_eq!(internet.visits().len(), 1);
}

fn named(of: u32, name: &str) -> Option<Process> {
    family(of).into_iter().find(|process| process.name == name)
}

fn kill(process: &Process) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(process.pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// What the kernel says of it, from outside.
fn a_gateway_is_an_ordinary_user_without_rights_whoever_has_started_it(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let words = ["run", "--timeout", "40s", "--allow", "echo.example.com:7", "--", "/bin/sleep", "30"];
    let held = internet.blastbox(caller, &words).start();
    let mut gateway = None;
    assert!(wait_until(|| {
        gateway = named(held.id(), "blastbox-egress");
        gateway.is_some() && named(held.id(), "sleep").is_some()
    }));
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.unwrap().pid)).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(field("Uid").iter().all(|uid| uid != "0"), "{status}");
    for rights in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(rights), ["0000000000000000"], "{rights}: {status}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp")), (vec!["1".into()], vec!["2".into()]), "{status}");
    held.signal(rustix::process::Signal::TERM);
    held.end();
}

/// Whoever is killed: everybody else goes too, the gateway among them.
fn nothing_is_left_of_a_box_with_network(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    for victim in ["nobody", "blastbox", "blastbox-warden", "blastbox-egress", "blastbox-agent"] {
        let words = [
            "run",
            "--timeout",
            "40s",
            "--allow",
            "echo.example.com:7",
            "--",
            "/bin/sh",
            "-c",
            "exec sleep 30",
        ];
        let held = internet.blastbox(caller, &words).start();
        let mut seen = Vec::new();
        assert!(wait_until(|| {
            seen = family(held.id());
            seen.iter().any(|process| process.name == "sleep")
        }));
        assert!(seen.iter().any(|process| process.name == "blastbox-egress"), "{seen:?}");
        if let Some(process) = seen.iter().find(|process| process.name == victim) {
            kill(process);
        } else {
            assert_eq!(victim, "nobody");
        }
        // Without its gateway the box goes on, and its owner ends it.
        if ["nobody", "blastbox-egress"].contains(&victim) {
            held.signal(rustix::process::Signal::TERM);
        }
        held.end();
        let left = || seen.iter().filter(|process| lives(process)).cloned().collect::<Vec<_>>();
        assert!(wait_until(|| left().is_empty()), "{victim} was killed, and left: {:?}", left());
    }
}
