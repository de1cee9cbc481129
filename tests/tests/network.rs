//! The network boundary: nothing can be reached from a box, neither the host nor another box.
//!
//! Inside boxes, addresses outside are tried too (a metadata service, a test network that nobody routes): a box has no
//! interface that they could leave by. The test itself only ever listens, on loopback.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use blastbox_tests::{Caller, both_ways, wait_until};
use serde_json::json;

both_ways!(
    there_is_no_interface_that_is_up,
    nothing_outside_can_be_reached_by_tcp,
    nothing_outside_can_be_reached_by_udp,
    a_datagram_to_no_address_is_dropped,
    neither_ping_nor_raw_packets_leave,
    names_are_not_resolved_outside_the_box,
    an_abstract_socket_of_the_host_is_not_there,
    an_abstract_socket_of_the_boxs_own_works,
    two_boxes_cannot_reach_each_other,
    with_a_loopback_of_its_own_a_box_reaches_itself,
    with_a_loopback_of_its_own_a_box_does_not_reach_the_host,
    two_boxes_with_loopbacks_cannot_reach_each_other,
    the_tables_of_the_network_tell_nothing_of_the_host,
);

/// `tried(function, …)`: "ok", or the name of the errno.
const TRIED: &str = r#"
import errno, json, os, socket, sys, time
def tried(what, *arguments):
    try: what(*arguments); return "ok"
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def connect(family, kind, at):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(at)
def send(family, at):
    with socket.socket(family, socket.SOCK_DGRAM) as one: one.sendto(b"out", at)
IP, IP6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
"#;

fn tried(caller: &Caller, options: &[&str], code: &str) -> serde_json::Value {
    caller.python(options, &format!("{TRIED}\n{code}")).fine().json()
}

/// Listeners on the host's loopback that notice whoever comes.
struct Ears {
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
}

impl Ears {
    fn open() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp6 = TcpListener::bind("[::1]:0").ok();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        tcp6.iter().for_each(|tcp6| tcp6.set_nonblocking(true).unwrap());
        udp.set_nonblocking(true).unwrap();
        Self { tcp, tcp6, udp }
    }

    fn ports(&self) -> [u16; 3] {
        let tcp = self.tcp.local_addr().unwrap().port();
        let tcp6 = self.tcp6.as_ref().map_or(1, |tcp6| tcp6.local_addr().unwrap().port());
        [tcp, tcp6, self.udp.local_addr().unwrap().port()]
    }

    #[track_caller]
    fn heard_nothing(&self) {
        assert_eq!(self.tcp.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
        if let Some(tcp6) = &self.tcp6 {
            assert_eq!(tcp6.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        assert_eq!(self.udp.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

fn all_refused(seen: &serde_json::Value) {
    for (what, answer) in seen.as_object().unwrap() {
        assert_ne!(answer, "ok", "{what}");
        assert_ne!(answer, "timed out", "{what}: it went somewhere");
    }
}

fn there_is_no_interface_that_is_up(caller: &Caller) {
    let code = r#"
names = [line.split(":")[0].strip() for line in open("/proc/self/net/dev") if ":" in line]
print(json.dumps({"names": names, "routes": [line for line in open("/proc/self/net/route") if not line.startswith("Iface")],
    "bind": tried(lambda: socket.socket(IP, UDP).connect(("127.0.0.1", 9)))}))
"#;
    let seen = tried(caller, &[], code);
    assert!(seen["names"] == json!(["lo"]) || seen["names"] == json!([]), "{seen}");
    assert_eq!(seen["routes"], json!([]));
    assert_eq!(seen["bind"], "ENETUNREACH", "even its own loopback is down");
}

fn nothing_outside_can_be_reached_by_tcp(caller: &Caller) {
    let ears = Ears::open();
    let [tcp, tcp6, _] = ears.ports();
    let code = format!(
        r#"
print(json.dumps({{"loopback": tried(connect, IP, TCP, ("127.0.0.1", {tcp})), "other name": tried(connect, IP, TCP, ("127.1.2.3", {tcp})),
    "any": tried(connect, IP, TCP, ("0.0.0.0", {tcp})), "loopback 6": tried(connect, IP6, TCP, ("::1", {tcp6})),
    "mapped": tried(connect, IP6, TCP, ("::ffff:127.0.0.1", {tcp})), "metadata": tried(connect, IP, TCP, ("169.254.169.254", 80)),
    "outside": tried(connect, IP, TCP, ("192.0.2.1", 443)), "outside 6": tried(connect, IP6, TCP, ("2001:db8::1", 443))}}))
"#
    );
    all_refused(&tried(caller, &[], &code));
    ears.heard_nothing();
}

fn nothing_outside_can_be_reached_by_udp(caller: &Caller) {
    let ears = Ears::open();
    let [_, _, udp] = ears.ports();
    let code = format!(
        r#"
print(json.dumps({{"loopback": tried(send, IP, ("127.0.0.1", {udp})), "mapped": tried(send, IP6, ("::ffff:127.0.0.1", {udp})), "metadata": tried(send, IP, ("169.254.169.254", 53)),
    "name server": tried(send, IP, ("192.0.2.1", 53)), "multicast": tried(send, IP, ("224.0.0.251", 5353)),
    "outside 6": tried(send, IP6, ("2001:db8::1", 53))}}))
"#
    );
    all_refused(&tried(caller, &[], &code));
    ears.heard_nothing();
}

fn a_datagram_to_no_address_is_dropped(caller: &Caller) {
    let ears = Ears::open();
    let [_, _, udp] = ears.ports();
    // The kernel takes 0.0.0.0 for loopback without asking whether that is up, and then drops what was sent. Were it
    // up, boxes that share an empty network would hear each other: Landlock does not see UDP.
    let code = format!(
        r#"
own = socket.socket(IP, UDP); own.bind(("0.0.0.0", 7009)); own.setblocking(False)
answers = [tried(send, IP, ("0.0.0.0", port)) for port in (7009, {udp})]
time.sleep(0.05)
print(json.dumps(tried(own.recv, 9)))
"#
    );
    assert_eq!(tried(caller, &[], &code), "EAGAIN");
    assert_eq!(tried(caller, &["--loopback"], &code), "ok", "the same code hears itself where it may");
    ears.heard_nothing();
}

fn neither_ping_nor_raw_packets_leave(caller: &Caller) {
    let code = r#"
def ping(kind, protocol, at):
    with socket.socket(IP, kind, protocol) as one: one.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (at, 0))
print(json.dumps({"ping": tried(ping, UDP, 1, "127.0.0.1"), "ping outside": tried(ping, UDP, 1, "192.0.2.1"),
    "raw": tried(ping, socket.SOCK_RAW, 1, "127.0.0.1"), "raw any": tried(ping, socket.SOCK_RAW, 255, "127.0.0.1"),
    "packet": tried(socket.socket, 17, socket.SOCK_RAW, 0x300)}))
"#;
    all_refused(&tried(caller, &[], code));
}

fn names_are_not_resolved_outside_the_box(caller: &Caller) {
    let code = r#"
def resolve(name): socket.getaddrinfo(name, 80)
def answer(name):
    try: resolve(name); return "ok"
    except socket.gaierror as error: return "no"
print(json.dumps({"outside": answer("blastbox.test"), "own": answer("localhost"), "servers": [line for line in
    open("/etc/resolv.conf") if line.startswith("nameserver")]}))
"#;
    let seen = tried(caller, &[], code);
    assert_eq!(seen, json!({"outside": "no", "own": "ok", "servers": []}));
}

fn abstract_name(kind: &str) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("blastbox-tests-{kind}-{}-{at}", std::process::id())
}

fn an_abstract_socket_of_the_host_is_not_there(caller: &Caller) {
    let name = abstract_name("host");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let datagrams = SocketAddr::from_abstract_name(format!("{name}-datagrams")).unwrap();
    let datagrams = UnixDatagram::bind_addr(&datagrams).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let code = format!(
        r#"
print(json.dumps({{"stream": tried(connect, socket.AF_UNIX, TCP, "\0{name}"), "datagram": tried(send, socket.AF_UNIX, "\0{name}-datagrams"),
    "listed": "yes" if "{name}" in open("/proc/self/net/unix").read() else "no"}}))
"#
    );
    for options in [&[][..], &["--loopback"]] {
        let seen = tried(caller, options, &code);
        assert_eq!(seen, json!({"stream": "ECONNREFUSED", "datagram": "ECONNREFUSED", "listed": "no"}));
        assert_eq!(listener.accept().map(drop).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(datagrams.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

fn an_abstract_socket_of_the_boxs_own_works(caller: &Caller) {
    let code = r#"
server = socket.socket(socket.AF_UNIX); server.bind("\0own"); server.listen()
if os.fork() == 0:
    with socket.socket(socket.AF_UNIX) as client: client.connect("\0own"); client.send(b"hello")
    os._exit(0)
print(json.dumps(server.accept()[0].recv(9).decode()))
"#;
    assert_eq!(tried(caller, &[], code), "hello");
}

/// A box that listens everywhere it can until its input ends, and says what came.
fn listen(name: &str) -> String {
    format!(
        r#"{TRIED}
import select
def listener(family, kind, at):
    one = socket.socket(family, kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(at)
    if kind == TCP: one.listen()
    ears.append(one)
ears = []
answers = [tried(listener, *at) for at in ((socket.AF_UNIX, TCP, "\0{name}"), (socket.AF_UNIX, UDP, "\0{name}-d"),
    (IP, TCP, ("127.0.0.1", 7007)), (IP, UDP, ("127.0.0.1", 7007)), (IP, TCP, ("0.0.0.0", 7008)), (IP, UDP, ("0.0.0.0", 7008)))]
sys.stderr.write("listening\n"); sys.stderr.flush()
deadline = time.monotonic() + 50
heard = []
while not heard and time.monotonic() < deadline:
    heard = select.select(ears + [0], [], [], 1)[0]
print(json.dumps({{"heard": [one for one in heard if one != 0] != [], "listening": answers}}))
"#
    )
}

const KNOCK: &str = r#"
print(json.dumps([tried(connect, socket.AF_UNIX, TCP, "\0NAME"), tried(send, socket.AF_UNIX, "\0NAME-d"),
    tried(connect, IP, TCP, ("127.0.0.1", 7007)), tried(send, IP, ("127.0.0.1", 7007)),
    tried(connect, IP, TCP, ("127.0.0.1", 7008)), tried(connect, IP, TCP, ("0.0.0.0", 7008)),
    open("/proc/self/net/unix").read().count("NAME"), open("/proc/self/net/tcp").read().count(":1B5F")]))
"#;

/// One box listens, another one knocks: `as_user` both have the same uid on the host.
fn knock(caller: &Caller, options: &[&str]) {
    let name = abstract_name("box");
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (heard, said) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let code = listen(&name);
    let program = ["--", "python3", "-c", &code];
    let words = ["run", "-q", "-i"].iter().chain(options).chain(&program);
    let errors = caller.place().join("errors");
    let error_file = std::fs::File::create(&errors).unwrap();
    let held = caller.blastbox(words).start_with([reader, said, error_file.into()]);
    let listening = wait_until(|| std::fs::read_to_string(&errors).unwrap().contains("listening"));
    assert!(listening, "{}", std::fs::read_to_string(&errors).unwrap());
    let seen = tried(caller, options, &KNOCK.replace("NAME", &name));
    drop(writer);
    let ended = held.end();
    assert_eq!(ended.code, 0, "{}", std::fs::read_to_string(&errors).unwrap());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::fs::File::from(heard), &mut text).unwrap();
    let listener: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(listener["listening"][0], "ok", "it listened: {listener}");
    assert_eq!(listener["heard"], false, "{listener} {seen}");
    let answers = seen.as_array().unwrap();
    for (number, answer) in answers.iter().take(6).enumerate() {
        // With a loopback, a datagram to it is sent, to nobody.
        let sent = number == 3 && options.contains(&"--loopback");
        assert!(sent || answer != "ok", "{seen}");
    }
    assert_eq!(&answers[6..], [json!(0), json!(0)], "nor is it listed");
}

fn two_boxes_cannot_reach_each_other(caller: &Caller) {
    knock(caller, &[]);
}

fn two_boxes_with_loopbacks_cannot_reach_each_other(caller: &Caller) {
    knock(caller, &["--loopback"]);
}

fn with_a_loopback_of_its_own_a_box_reaches_itself(caller: &Caller) {
    let code = r#"
server = socket.socket(IP, TCP); server.bind(("127.0.0.1", 8080)); server.listen()
other = socket.socket(IP, UDP); other.bind(("127.0.0.1", 8080))
if os.fork() == 0:
    with socket.create_connection(("localhost", 8080)) as client: client.send(b"tcp")
    send(IP, ("127.0.0.1", 8080))
    os._exit(0)
print(json.dumps([server.accept()[0].recv(9).decode(), other.recv(9).decode()]))
"#;
    assert_eq!(tried(caller, &["--loopback"], code), json!(["tcp", "out"]));
    let without = caller.python(&[], &format!("{TRIED}\n{code}"));
    assert_ne!(without.receipt.exit_code, 0, "without the switch there is none");
}

fn with_a_loopback_of_its_own_a_box_does_not_reach_the_host(caller: &Caller) {
    let ears = Ears::open();
    let [tcp, tcp6, udp] = ears.ports();
    let code = format!(
        r#"
print(json.dumps({{"loopback": tried(connect, IP, TCP, ("127.0.0.1", {tcp})), "loopback 6": tried(connect, IP6, TCP, ("::1", {tcp6})),
    "metadata": tried(connect, IP, TCP, ("169.254.169.254", 80)), "outside": tried(connect, IP, TCP, ("192.0.2.1", 443)),
    "outside udp": tried(send, IP, ("192.0.2.1", 53))}}))
send(IP, ("127.0.0.1", {udp}))
"#
    );
    all_refused(&tried(caller, &["--loopback"], &code));
    ears.heard_nothing();
}

fn the_tables_of_the_network_tell_nothing_of_the_host(caller: &Caller) {
    let ears = Ears::open();
    let [tcp, _, _] = ears.ports();
    let code = format!(
        r#"
tables = {{name: open("/proc/self/net/" + name).read() for name in ("tcp", "udp", "unix", "arp", "route") if os.path.exists("/proc/self/net/" + name)}}
print(json.dumps({{"port": any(f":{tcp:04X}" in text for text in tables.values()), "lines": sum(text.count("\n") - 1 for text in tables.values())}}))
"#
    );
    let seen = tried(caller, &[], &code);
    assert_eq!(seen["port"], false);
    assert!(seen["lines"].as_i64().unwrap() < 8, "{seen}: a host has more sockets than that");
}
