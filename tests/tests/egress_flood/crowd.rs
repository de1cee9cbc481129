//! Ten thousand connections at the same time.

use std::sync::{Mutex, PoisonError};

use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Caller, both_ways, text, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::MOST_MEMORY;
use super::watched::{ACCEPT, Watched, reasons};

both_ways!(
    ten_thousand_connections_at_once_are_held_and_the_next_is_refused,
    more_connections_than_there_are_descriptors_for_are_refused_before_there_is_a_box,
);

const CROWD: u64 = 10_000;
/// Tried beyond the limit.
const MORE: u64 = 128;
/// What a gateway needs beside two for each connection.
const BESIDE: u64 = 256;

/// Both bodies of the crowd are servers of this one process too: as many descriptors again.
static ONE_CROWD: Mutex<()> = Mutex::new(());

fn ten_thousand_connections_at_once_are_held_and_the_next_is_refused(caller: &Caller) {
    let _alone = ONE_CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    // The server's ends of all of them are in this process.
    let most = getrlimit(Resource::Nofile).maximum;
    let flows = most.map_or(CROWD, |most| CROWD.min(most.saturating_sub(BESIDE) / 2));
    if flows < 9_000 {
        return caller.skip("fewer than 18,256 descriptors may be open here (ulimit -Hn)");
    }
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.crowded_echo(7);
    let policy = format!(
        "[network]\nmode = \"allow\"\nallow = [{{ host = \"echo.example.com\", ports = [7], protocol = \"tcp\" }}]\n\
         [network.limits]\nflows = {flows}\nconnections_per_second = 100000\n"
    );
    let tries = CROWD + MORE;
    let code = r#"
at = socket.getaddrinfo("echo.example.com", 7, socket.AF_INET)[0][4]
def one_more(): return connected(at)
def answered(some):
    for one in some: one.sendall(b"hello")
    return sum(one.recv(5) == b"hello" for one in some)
first = one_more()
tell(answered([first]))
wait()
held, refused = [first], 0
for _ in range(TRIES - 1):
    try: held.append(one_more())
    except ConnectionRefusedError: refused += 1
tell(len(held), refused)
tell(answered(held))
wait()
# Half of them go, and the others hear nothing of it; there is room again.
for one in held[1::2]: one.close()
del held[1::2]
tell(answered(held), answered([again(one_more)]))
for one in held[1:]: one.close()
wait()
tell(answered([first]))
"#;
    let mut watched =
        Watched::start(&internet, caller, &policy, &[], &code.replace("TRIES", &tries.to_string()));
    assert_eq!(watched.says(caller), json!([1]));
    let few = watched.descriptors();
    watched.go_on();
    assert_eq!(watched.says(caller), json!([flows, tries - flows]));
    assert_eq!(watched.says(caller), json!([flows]));
    let (held, memory) = (watched.descriptors(), watched.gateway("VmHWM"));
    // Those that were refused have reached nobody.
    assert_eq!(u64::try_from(internet.visits().len()).unwrap(), flows);
    watched.go_on();
    let half = flows.div_ceil(2);
    assert_eq!(watched.says(caller), json!([half, 1]));
    assert!(
        wait_until(|| watched.descriptors() <= few + 8),
        "{} descriptors are left",
        watched.descriptors()
    );
    watched.go_on();
    assert_eq!(watched.says(caller), json!([1]), "the first connection of all goes on");
    let receipt = watched.end();
    let each = if receipt.network.by_packets { 1 } else { 2 };
    assert!(held >= usize::try_from(flows).unwrap() * each, "{held}");
    // Where the gateway carries packets itself, their buffers come on top.
    assert!(receipt.network.by_packets || memory < MOST_MEMORY, "{memory}");
    assert_eq!(reasons(&receipt, "echo.example.com"), ["flow-limit"]);
    let made: Vec<u64> = receipt.network.allowed.iter().map(|line| line.connections).collect();
    assert_eq!(made, [flows + 1]);
}

/// Let in, some of them could be carried by nobody.
fn more_connections_than_there_are_descriptors_for_are_refused_before_there_is_a_box(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let policy = |flows: u32| {
        let text = "[network]\nmode = \"allow\"\nallow = [{ host = \"echo.example.com\", ports = [7], protocol = \"tcp\" }]\n";
        caller.file("policy.toml", format!("{ACCEPT}{text}[network.limits]\nflows = {flows}\n"))
    };
    let under = ["/usr/bin/prlimit", "--nofile=1024:1024"];
    let run = |flows| {
        let policy = policy(flows);
        let words = ["run", "--policy", text(&policy), "--", "/bin/echo", "ran"];
        internet.blastbox_under(caller, &under, &words).end()
    };
    let refused = run(4096);
    assert_eq!((refused.code, refused.out.as_slice()), (125, &b""[..]), "{}", refused.err);
    assert!(refused.err.contains("network.limits.flows = 4096 takes "), "{}", refused.err);
    assert!(refused.err.contains("a process may have 1024 here; write "), "{}", refused.err);
    let ran = run(256);
    assert_eq!((ran.code, ran.out.as_slice()), (0, &b"ran\n"[..]), "{}", ran.err);
}
