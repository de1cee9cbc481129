//! The wire of a machine's card is made in the host's network namespace and held by whoever took QEMU over in another one.
//! Runs as whoever runs the tests; needs namespaces, as boxes do.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]
#![expect(
    clippy::disallowed_methods,
    reason = "programs of the host, to stand in for whoever took QEMU over"
)]

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};

use blastbox_isolation::Gateway;
use blastbox_sys::channel;

/// Sends to a name in every way there is, from a network namespace of its own and without Landlock, over what it inherits.
const TAKEN_OVER: &str = r#"
import os, socket, sys
wire, name = socket.socket(fileno=0), b"\0" + sys.argv[1].encode()
if os.readlink("/proc/self/ns/net") == sys.argv[2]: sys.exit("the namespace is the first one")
def tried(way):
    try: way()
    except OSError: pass
tried(lambda: wire.sendto(b"sendto", name))
with open("/dev/null") as file:
    tried(lambda: wire.sendmsg([b"sendmsg"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, file.fileno().to_bytes(4, sys.byteorder))], 0, name))
tried(lambda: (wire.connect(name), wire.send(b"connect")))
"#;

/// What comes to an abstract name of this namespace when somebody in another one holds this.
fn reached_over(wire: OwnedFd, name: &str) -> Vec<String> {
    let ear = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    ear.set_nonblocking(true).unwrap();
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    let ended = Command::new("unshare")
        .args(["--user", "--net", "python3", "-c", TAKEN_OVER, name])
        .arg(here)
        .stdin(Stdio::from(wire))
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let mut heard = Vec::new();
    let mut buffer = [0; 16];
    while let Ok(length) = ear.recv(&mut buffer) {
        heard.push(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned());
    }
    heard
}

#[test]
fn whoever_holds_the_machines_end_reaches_no_abstract_name_of_the_host() {
    let allowed = Command::new("unshare").args(["--user", "--net", "true"]).status();
    if !allowed.is_ok_and(|ended| ended.success()) {
        writeln!(std::io::stderr(), "skipped: this user can make no network namespace").unwrap();
        return;
    }
    let name = |which: &str| format!("blastbox-test-{which}-{}", std::process::id());
    // The same attempt over datagrams succeeds: that is what the wire is not made of.
    let (theirs, _ours) = UnixDatagram::pair().unwrap();
    let control = reached_over(theirs.into(), &name("control"));
    assert_eq!(control, ["sendto", "sendmsg", "connect"]);
    let (gateway, line) = channel::pair().unwrap();
    let machines = Gateway::lay_wire(&line).unwrap();
    let (_, mut gateways) = channel::receive(&gateway, &mut [0; 16]).unwrap().unwrap();
    for (which, end) in [("machine", machines), ("gateway", gateways.pop().unwrap())] {
        assert_eq!(reached_over(end, &name(which)), Vec::<String>::new(), "{which}");
    }
}
