//! What is left of connections that the kernel carries when the gateway that let them in is killed.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};

use blastbox_tests::census::{Process, family, lives};
use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Caller, both_ways, wait_until};

use super::COMMON;

both_ways!(a_gateway_that_dies_takes_open_connections_with_it);

/// What the box says of itself: while its gateway lives, and, after a line that comes only when it is dead, of what it then finds.
const CODE: &str = r#"
import sys
one, other = reach(7), reach(7)
at = one.getpeername()
one.sendall(b"before")
heard = one.recv(6)
print("not carried" if not carried(one) else heard.decode(), flush=True)
sys.stdin.readline()
def fate(open_one):
    open_one.settimeout(2)
    try:
        for _ in range(3):
            open_one.sendall(b"after")
            if open_one.recv(6): return "answered"
        return "ended"
    except TimeoutError: return "stalled"
    except OSError: return "ended"
def fresh(*option):
    fresh_one = socket.socket()
    fresh_one.settimeout(2)
    try:
        if option: fresh_one.setsockopt(*option)
        fresh_one.connect(at)
        fresh_one.sendall(b"after")
        return "answered" if fresh_one.recv(6) else "ended"
    except OSError: return "refused"
print(json.dumps([[fate(one), fate(other)], [fresh(), fresh(socket.SOL_SOCKET, 25, b"lo")]]), flush=True)
"#;

/// The kernel carries on by itself only what has somebody at its other end: with the gateway go its sockets, and nothing that the box says
/// afterwards reaches anybody.
fn a_gateway_that_dies_takes_open_connections_with_it(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    let (heard, visits): (Arc<Mutex<Vec<u8>>>, Arc<Mutex<usize>>) = Default::default();
    let (all, count) = (Arc::clone(&heard), Arc::clone(&visits));
    internet.server(7, move |mut stream| {
        *count.lock().unwrap() += 1;
        let mut piece = [0; 64];
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            let said = piece.get(..length).unwrap();
            all.lock().unwrap().extend_from_slice(said);
            // The gateway may be gone.
            stream.write_all(said).ok();
        }
    });
    let script = caller.file("code.py", format!("{COMMON}\n{CODE}"));
    let workspace = format!("{}:ro", script.parent().unwrap().to_str().unwrap());
    let mut words = vec!["run", "-i", "--profile", "medium", "--workspace", &workspace, "--timeout", "120s"];
    let gaps =
        "shared-uid no-memory-limit no-cpu-limit no-pids-limit shared-kernel host-image swap-unlimited";
    words.extend(gaps.split(' ').flat_map(|gap| ["--accept", gap]));
    words.extend(["--allow", "echo.example.com:7", "--", "/usr/bin/python3", "/workspace/code.py"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (out_reader, out) = std::io::pipe().unwrap();
    let err = caller.file("err", "");
    let errors = std::fs::File::create(&err).unwrap();
    let held = internet.blastbox(caller, &words).start_with([reader.into(), out.into(), errors.into()]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out_reader));
    let said = lines.next().and_then(Result::ok).unwrap_or_default();
    if said == "not carried" {
        return caller.skip("this kernel has no short way");
    }
    assert_eq!(said, "before", "{}", std::fs::read_to_string(err).unwrap());
    let gateway = gateway_of(held.id());
    let pid = rustix::process::Pid::from_raw(i32::try_from(gateway.pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(wait_until(|| !lives(&gateway)));
    writer.write_all(b"\n").unwrap();
    let (open, fresh): ([String; 2], [String; 2]) =
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    for fate in open {
        assert!(["ended", "stalled"].contains(&fate.as_str()), "{fate}");
    }
    assert_eq!(fresh, ["refused", "refused"]);
    assert_eq!(held.end().code, 0);
    assert_eq!(*heard.lock().unwrap(), b"before", "nothing that was said afterwards got out");
    assert_eq!(*visits.lock().unwrap(), 2, "nobody was dialled afterwards");
}

fn gateway_of(box_: u32) -> Process {
    let mut gateway = None;
    assert!(wait_until(|| {
        gateway = family(box_).into_iter().find(|process| process.name == "blastbox-egress");
        gateway.is_some()
    }));
    gateway.unwrap()
}
