//! What the kernel carries once a box's gateway has let it in. Whether it does is seen in the box's own table of connections, where both
//! ends of such a one stand; on a kernel that has no such way these tests count as skipped, and `egress.rs` holds there as everywhere.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

mod attacks;
mod bound;
mod death;
mod doctor;
mod urgent;

use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Boxed, Caller, Who, both_ways};
use serde_json::{Value, json};

both_ways!(
    a_connection_stays_in_the_kernel_and_is_counted,
    the_target_itself_refuses,
    a_program_of_the_box_listens_on_the_same_port,
    nobody_comes_in_who_was_not_let_in,
    a_kernel_without_packet_rules_gives_the_same_network,
);

/// Starts the rest of its words where nobody gets a socket to the kernel's packet rules, as on a kernel that has none.
const WITHOUT_RULES: &str = r#"
import ctypes, os, platform, struct, sys
call = {"x86_64": 41, "aarch64": 198}[platform.machine()]
step = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
steps = [step(0x20, 0, 0, 0), step(0x15, 0, 5, call), step(0x20, 0, 0, 16), step(0x15, 0, 3, 16),
         step(0x20, 0, 0, 32), step(0x15, 0, 1, 12), step(0x06, 0, 0, 0x50000 | 93), step(0x06, 0, 0, 0x7fff0000)]
held = ctypes.create_string_buffer(b"".join(steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held)))
assert ctypes.CDLL(None).prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

pub(crate) const COMMON: &str = r#"
import json, os, socket, struct, threading
def reach(port, family=socket.AF_INET):
    kind, _, _, _, at = socket.getaddrinfo("echo.example.com", port, family, socket.SOCK_STREAM)[0]
    one = socket.socket(kind, socket.SOCK_STREAM)
    one.settimeout(20)
    one.connect(at)
    return one
def echoed(one, length):
    piece, got = os.urandom(length), []
    sender = threading.Thread(target=lambda: one.sendall(piece))
    sender.start()
    while sum(map(len, got)) < length:
        more = one.recv(1 << 20)
        if not more: break
        got.append(more)
    sender.join()
    return b"".join(got) == piece
def carried(one):
    "Whether the other end stands in this table too."
    (address, port), (_, own) = one.getpeername()[:2], one.getsockname()[:2]
    number = "%08X" % struct.unpack("=I", socket.inet_aton(address))
    with open("/proc/self/net/tcp") as table:
        return any(line.split()[1] == f"{number}:{port:04X}" and line.split()[2].endswith(f":{own:04X}")
                   for line in list(table)[1:])
"#;

/// What the code prints, and the box. `None`: this kernel has no such way, which was said.
fn seen(internet: &Internet, caller: &Caller, options: &[&str], code: &str) -> Option<(Value, Boxed)> {
    let boxed = internet.python(caller, options, &format!("{COMMON}\n{code}"));
    assert_eq!(boxed.receipt.exit_code, 0, "{}\n{:?}", boxed.stderr, boxed.receipt.reason);
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    if seen == json!("not carried") {
        caller.skip("this kernel has no short way: packet rules (nf_tables with tproxy) are missing");
        return None;
    }
    Some((seen, boxed))
}

fn with_echo(caller: &Caller) -> Option<Internet> {
    let internet = Internet::build(caller)?;
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.echo(7);
    Some(internet)
}

fn a_connection_stays_in_the_kernel_and_is_counted(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    // Both families of the box, and more than a pipe holds.
    let code = r#"
one, other = reach(7), reach(7, socket.AF_INET6)
if not carried(one): print(json.dumps("not carried"))
else: print(json.dumps([echoed(one, 8_000_000), echoed(other, 3_000_000), echoed(one, 3)]))"#;
    let Some((seen, boxed)) = seen(&internet, caller, &["--allow", "echo.example.com:7"], code) else {
        return;
    };
    assert_eq!(seen, json!([true, true, true]));
    let allowed = &boxed.receipt.network.allowed;
    let counted: Vec<(u64, u64)> =
        allowed.iter().map(|line| (line.sent_bytes, line.received_bytes)).collect();
    assert_eq!(counted, [(11_000_003, 11_000_003)]);
    assert!(!boxed.receipt.network.by_packets);
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7"), format!("{PUBLIC}:7")]);
}

/// The handshake waits for that of the target: nothing looks connected that is not.
fn the_target_itself_refuses(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = r#"
one = reach(7)
def refused(port):
    try: reach(port)
    except ConnectionRefusedError: return "refused"
    return "connected"
print(json.dumps([refused(8), refused(9)] if carried(one) else "not carried"))"#;
    let options = ["--allow", "echo.example.com:7", "--allow", "echo.example.com:8"];
    let Some((seen, _)) = seen(&internet, caller, &options, code) else { return };
    assert_eq!(seen, json!(["refused", "refused"]));
}

fn a_program_of_the_box_listens_on_the_same_port(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = r#"
def served(before):
    listener = socket.create_server(("0.0.0.0", 7007))
    one = socket.create_connection(("127.0.0.1", 7007), timeout=20)
    far, _ = listener.accept()
    one.sendall(b"own")
    heard = far.recv(3) == b"own"
    return heard and echoed(before, 100_000)
open_before = reach(7007)
print(json.dumps([served(open_before), echoed(reach(7007), 1000)] if carried(open_before) else "not carried"))"#;
    internet.echo(7007);
    let options = ["--loopback", "--allow", "echo.example.com:7007"];
    let Some((seen, _)) = seen(&internet, caller, &options, code) else { return };
    assert_eq!(seen, json!([true, true]));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7007"), format!("{PUBLIC}:7007")]);
}

/// The gateway's own socket is in the box's namespace: whoever knocks at it directly is reset, and carried nowhere.
fn nobody_comes_in_who_was_not_let_in(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = r#"
def knock(address, device=None):
    one = socket.socket()
    one.settimeout(3)
    try:
        if device: one.setsockopt(socket.SOL_SOCKET, 25, device)
        one.connect(address)
        one.sendall(b"hello")
        return "heard" if one.recv(5) else "closed"
    except OSError: return "refused"
one = reach(7)
at = one.getpeername()
tries = [(("127.0.0.1", 1),), (("198.18.0.2", 1),), (at, b"lo"), (("93.184.216.34", 7), b"lo"), (("93.184.216.34", 7),)]
print(json.dumps([knock(*words) for words in tries] + [echoed(one, 10)] if carried(one) else "not carried"))"#;
    let options = ["--loopback", "--allow", "echo.example.com:7"];
    let Some((seen, _)) = seen(&internet, caller, &options, code) else { return };
    let found = seen.as_array().unwrap();
    assert!(found.iter().all(|word| *word != json!("heard")), "{seen}");
    assert_eq!(found.last(), Some(&json!(true)));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7")]);
}

/// What the gateway then carries itself, packet by packet, it decides and counts in the same way.
fn a_kernel_without_packet_rules_gives_the_same_network(caller: &Caller) {
    if !matches!(caller.who(), Who::Root) {
        return caller.skip("an ordinary user could not start setuid programs behind such a filter");
    }
    let Some(internet) = with_echo(caller) else { return };
    let script = caller.file("without_rules.py", WITHOUT_RULES);
    let code = r#"
one = reach(7)
def refused(port):
    try: reach(port)
    except ConnectionRefusedError: return True
print(json.dumps([carried(one), echoed(one, 3_000_000), refused(8), refused(9)]))"#;
    let under = ["/usr/bin/python3", script.to_str().unwrap()];
    let words = [
        "run",
        "--json",
        "--lang",
        "python",
        "--allow",
        "echo.example.com:7",
        "--allow",
        "echo.example.com:8",
    ];
    let start = internet.blastbox_under(caller, &under, &words);
    let boxed = start.input(format!("{COMMON}\n{code}")).end().boxed();
    assert_eq!(boxed.receipt.exit_code, 0, "{}\n{:?}", boxed.stderr, boxed.receipt.reason);
    let seen: Value = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(seen, json!([false, true, true, true]));
    assert!(boxed.receipt.network.by_packets, "its receipt says so");
    let allowed = &boxed.receipt.network.allowed;
    let counted: Vec<(u64, u64)> =
        allowed.iter().map(|line| (line.sent_bytes, line.received_bytes)).collect();
    assert_eq!(counted, [(3_000_000, 3_000_000)]);
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7")]);
}
