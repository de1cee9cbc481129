//! What a hostile program of the box tries on the way that the kernel carries. Each is seen at both ends: what it got, and who came to the
//! servers. Nothing of it depends on rights: nobody in a box has any over its network.
#![expect(clippy::indexing_slicing, reason = "a test that cannot go on must fail at once")]

use serde_json::json;

use super::{COMMON, PUBLIC, seen, with_echo};
use blastbox_tests::{Caller, both_ways};

both_ways!(
    the_gateways_ear_is_out_of_reach,
    for_root_of_the_box_too,
    an_opening_packet_is_not_stolen,
    a_decision_is_for_one_connection_alone,
    data_in_an_opening_packet_is_decided_first,
    without_a_loopback_a_foreign_source_opens_none,
);

const TRIES: &str = r#"
import errno
FREEBIND, FREEBIND6, BINDTODEVICE, MARK, RCVBUFFORCE, SNDBUFFORCE = 15, 78, 25, 36, 33, 32
def tried(what, *words):
    try: what(*words)
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
    return "done"
def stream(family=socket.AF_INET):
    one = socket.socket(family, socket.SOCK_STREAM)
    one.settimeout(3)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
    if family == socket.AF_INET6: one.setsockopt(socket.IPPROTO_IPV6, FREEBIND6, 1)
    return one
"#;

fn tries(code: &str) -> String {
    format!("{TRIES}\n{code}")
}

/// Knocks at the ear, binds in its place, and asks for the rights that would lay another way.
const EAR: &str = r#"
V4, V6 = socket.AF_INET, socket.AF_INET6
HERE6, THERE6 = "fd62:6c61:7374::2", "fd62:6c61:7374::1"
def connect(family, at, device=None):
    one = stream(family)
    if device: one.setsockopt(socket.SOL_SOCKET, BINDTODEVICE, device)
    one.connect(at)
def bind(family, at):
    one = stream(family)
    one.bind(at)
    one.listen()
def option(level, name): stream().setsockopt(level, name, 0x6262)
def write(name):
    with open(f"/proc/sys/net/ipv4/{name}", "w") as file: file.write("4096 131072 33554432")
one = reach(7)
reached = [tried(connect, *words) for words in [
    (V4, ("127.0.0.1", 1)), (V4, ("198.18.0.2", 1)), (V4, ("198.18.0.1", 1)), (V4, ("198.18.0.1", 1), b"lo"),
    (V6, ("::1", 1)), (V6, (HERE6, 1)), (V6, (THERE6, 1)), (V6, (THERE6, 1), b"lo")]]
taken = [tried(bind, *words) for words in [
    (V4, ("0.0.0.0", 1)), (V4, ("198.18.0.1", 1)), (V6, ("::", 1)), (V6, (THERE6, 1))]]
rights = [tried(option, *words) for words in [
    (socket.SOL_SOCKET, MARK), (socket.SOL_SOCKET, RCVBUFFORCE), (socket.SOL_SOCKET, SNDBUFFORCE), (0, 19), (41, 75)]]
rights += [tried(socket.socket, 16, 3, protocol) for protocol in (0, 4, 12)] + [tried(socket.socket, 2, 3, 6), tried(socket.socket, 17, 3, 0)]
rights += [tried(write, name) for name in ("tcp_rmem", "tcp_wmem", "ip_forward")]
print(json.dumps([reached, taken, rights, echoed(one, 10)] if carried(one) else "not carried"))
"#;

/// Neither is it reached, nor taken in its place, nor are its rights to be had.
fn the_gateways_ear_is_out_of_reach(caller: &Caller) {
    ear_is_out_of_reach(caller, &["--loopback"], &tries(EAR));
}

/// The network belongs to nobody in the box, its root included.
fn for_root_of_the_box_too(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let code = json!(format!("{COMMON}\n{TRIES}\nassert os.getuid() == 0\n{EAR}"));
    let sudo = format!("import subprocess\nsubprocess.run([\"sudo\", \"python3\", \"-c\", {code}])");
    ear_is_out_of_reach(caller, &["--loopback", "--sudo"], &sudo);
}

fn ear_is_out_of_reach(caller: &Caller, options: &[&str], code: &str) {
    let Some(internet) = with_echo(caller) else { return };
    let options = [options, &["--allow", "echo.example.com:7"]].concat();
    let Some((seen, _)) = seen(&internet, caller, &options, code) else { return };
    for list in 0..3 {
        assert!(seen[list].as_array().unwrap().iter().all(|word| *word != json!("done")), "{seen}");
    }
    assert_eq!(seen[0][0], json!("ECONNREFUSED"), "as on every host where nobody listens: {seen}");
    assert_eq!(seen[3], json!(true));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7")]);
}

/// A listener at the target's own address, and a socket that stands where the gateway's would: what was let in comes to neither.
fn an_opening_packet_is_not_stolen(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = tries(
        r#"
one = reach(7)
at4, at6 = one.getpeername(), reach(7, socket.AF_INET6).getpeername()[:2]
traps = []
for family, at in ((socket.AF_INET, ("198.18.0.2", 0)), (socket.AF_INET, at4), (socket.AF_INET6, at6)):
    trap = stream(family)
    traps.append([tried(trap.bind, (at[0], 7)), tried(trap.listen), trap])
through = [echoed(reach(7), 1000), echoed(reach(7, socket.AF_INET6), 1000)]
for _, _, trap in traps: trap.setblocking(False)
caught = [tried(trap.accept) for _, _, trap in traps]
# Where the gateway's socket will stand, as far as the kernel lets a stranger's address call.
def usurp(family, at, home):
    for _, _, trap in traps: trap.close()
    victim, thief = stream(family), stream(family)
    victim.bind((home, 6000))
    thief.setblocking(False)
    bound = tried(thief.bind, (at[0], 7))
    tried(thief.connect, (home, 6000))
    outcome = tried(victim.connect, at)
    if outcome == "done":
        victim.sendall(b"mine")
        return victim.recv(4) == b"mine" and tried(thief.recv, 1) != "done"
    return tried(thief.recv, 1) != "done"
usurped = [usurp(socket.AF_INET, at4, "198.18.0.2"), usurp(socket.AF_INET6, at6, "fd62:6c61:7374::2")]
print(json.dumps([through, caught, usurped] if carried(one) else "not carried"))"#,
    );
    for loopback in [&["--loopback"][..], &[]] {
        let options = [loopback, &["--allow", "echo.example.com:7"]].concat();
        let Some((seen, _)) = seen(&internet, caller, &options, &code) else { return };
        assert_eq!(seen[0], json!([true, true]), "{seen}");
        assert!(seen[1].as_array().unwrap().iter().all(|word| *word != json!("done")), "{seen}");
        assert_eq!(seen[2], json!([true, true]), "{seen}");
    }
    assert!(internet.visits().iter().all(|visit| *visit == format!("{PUBLIC}:7")), "{:?}", internet.visits());
}

/// Two hundred at once from the same few ports, to what is allowed and what is not: each comes to where it wanted or nowhere. A source route
/// over what is allowed leads no further.
fn a_decision_is_for_one_connection_alone(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    internet.echo(8);
    internet.echo(9);
    let code = tries(
        r#"
first = reach(7)
at = first.getpeername()[0]
def visit(home, port):
    try:
        one = stream()
        one.settimeout(20)
        one.bind(("0.0.0.0", home))
        one.connect((at, port))
        return echoed(one, 10 if port == 7 else 100) and "through"
    except ConnectionRefusedError: return "refused"
    except OSError as error: return str(error)
found = {7: [], 8: [], 9: []}
def visitor(port):
    for home in range(20000, 20030): found[port].append(visit(home, port))
threads = [threading.Thread(target=visitor, args=(port,)) for port in found]
for thread in threads: thread.start()
for thread in threads: thread.join()
def routed(hop, port):
    one = stream()
    one.setsockopt(socket.IPPROTO_IP, 4, b"\x83\x07\x04" + socket.inet_aton(hop) + b"\0")
    one.connect(("10.9.9.9", port))
detours = [tried(routed, at, 9), tried(routed, at, 7)]
print(json.dumps([{p: sorted(set(w)) for p, w in found.items()}, detours] if carried(first) else "not carried"))"#,
    );
    let options = ["--allow", "echo.example.com:7", "--allow", "echo.example.com:8"];
    let Some((seen, boxed)) = seen(&internet, caller, &options, &code) else { return };
    assert_eq!(seen[0], json!({"7": ["through"], "8": ["through"], "9": ["refused"]}));
    assert!(seen[1].as_array().unwrap().iter().all(|word| *word != json!("done")), "{seen}");
    let count =
        |port: u16| internet.visits().iter().filter(|visit| **visit == format!("{PUBLIC}:{port}")).count();
    assert_eq!((count(8), count(9)), (30, 0));
    let sent: Vec<(u16, u64)> =
        boxed.receipt.network.allowed.iter().map(|line| (line.port, line.sent_bytes)).collect();
    assert_eq!(sent, [(7, 300), (8, 3000)]);
    assert!(internet.visits().iter().all(|visit| visit.starts_with(PUBLIC)), "{:?}", internet.visits());
}

/// TCP Fast Open: what travels with the opening packet is neither lost nor let out before the decision.
fn data_in_an_opening_packet_is_decided_first(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    internet.echo(9);
    let code = tries(
        r#"
first = reach(7)
def early(port, family=socket.AF_INET):
    one = stream(family)
    tried(one.setsockopt, 6, 34, 1)
    one.sendto(b"e" * 1000, 0x20000000, (first.getpeername()[0], port))
    got = b""
    while len(got) < 1000: got += one.recv(1000)
    return got == b"e" * 1000
def refused(port):
    try: early(port)
    except ConnectionRefusedError: return "refused"
print(json.dumps([early(7), refused(9)] if carried(first) else "not carried"))"#,
    );
    let Some((seen, boxed)) = seen(&internet, caller, &["--allow", "echo.example.com:7"], &code) else {
        return;
    };
    assert_eq!(seen, json!([true, "refused"]));
    let sent: Vec<u64> = boxed.receipt.network.allowed.iter().map(|line| line.sent_bytes).collect();
    assert_eq!(sent, [1000]);
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7"), format!("{PUBLIC}:7")]);
}

/// IPv6 lets everybody send from addresses that are nobody's: with them a box without a loopback could talk to itself.
fn without_a_loopback_a_foreign_source_opens_none(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = tries(
        r#"
one = reach(7)
def own(family, home, source):
    listener, caller = stream(family), stream(family)
    listener.bind((home, 5000))
    listener.listen()
    tried(caller.bind, (source, 5001))
    outcome = tried(caller.connect, (home, 5000))
    listener.setblocking(False)
    return [outcome, tried(listener.accept)]
found = [own(socket.AF_INET, "198.18.0.2", one.getpeername()[0]), own(socket.AF_INET6, "fd62:6c61:7374::2", "2a00:9::77"),
         own(socket.AF_INET6, "fd62:6c61:7374::2", "::")]
print(json.dumps([sum(found, []), echoed(one, 10)] if carried(one) else "not carried"))"#,
    );
    let Some((seen, _)) = seen(&internet, caller, &["--allow", "echo.example.com:7"], &code) else { return };
    assert!(seen[0].as_array().unwrap().iter().all(|word| *word != json!("done")), "{seen}");
    assert_eq!(seen[1], json!(true));
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7")]);
}
