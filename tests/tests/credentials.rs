//! The credentials boundary: nothing that the caller knows is known in the box.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::path::Path;

use blastbox_tests::{Caller, Terminal, both_ways};
use serde_json::json;

both_ways!(
    the_environment_is_exactly_what_is_documented,
    a_variable_that_is_given_arrives_and_nothing_else_does,
    a_terminal_adds_its_kind_and_nothing_else,
    secrets_of_the_callers_environment_are_nowhere_in_the_box,
    a_key_of_the_callers_keyring_is_out_of_reach,
    agents_and_sockets_of_the_callers_session_are_out_of_reach,
    the_receipt_names_no_variable,
    a_bound_secret_is_never_in_the_box_and_its_stand_in_goes_nowhere_else,
    a_secret_that_cannot_be_had_means_no_box,
);

const SECRET: &str = "hunter2-of-the-caller";

const DOCUMENTED: [(&str, &str); 4] = [
    ("HOME", "/home/user"),
    ("LANG", "C.UTF-8"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("USER", "user"),
];

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn documented() -> Vec<String> {
    DOCUMENTED.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn the_environment_is_exactly_what_is_documented(caller: &Caller) {
    let boxed = caller.run(&[], &["env"]).fine();
    assert_eq!(sorted(&boxed.stdout), documented());
}

fn a_variable_that_is_given_arrives_and_nothing_else_does(caller: &Caller) {
    let boxed = caller.run(&["--env", "GIVEN=a=b c", "--env", "LANG=C"], &["env"]).fine();
    let mut expected: Vec<String> =
        documented().into_iter().filter(|line| !line.starts_with("LANG")).collect();
    expected.extend(["GIVEN=a=b c".to_owned(), "LANG=C".to_owned()]);
    expected.sort_unstable();
    assert_eq!(sorted(&boxed.stdout), expected);
    // A bare name takes nothing from the caller: it is an error.
    let ended = caller.blastbox(["run", "--env", "SECRET", "--", "env"]).env("SECRET", SECRET).end();
    assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
    assert!(!ended.err.contains(SECRET));
}

fn a_terminal_adds_its_kind_and_nothing_else(caller: &Caller) {
    let Some(mut terminal) =
        Terminal::start(caller, 24, 80, &["run", "-q", "-t", "--", "sh", "-c", "env | sort; echo end"])
    else {
        return caller.skip("no /usr/bin/setsid (apt-get install util-linux)");
    };
    for line in documented() {
        if line.starts_with("USER") {
            terminal.expect("TERM=xterm\r\n");
        }
        terminal.expect(&format!("{line}\r\n"));
    }
    terminal.expect("end\r\n");
    assert_eq!(terminal.end().0, 0);
}

fn secrets_of_the_callers_environment_are_nowhere_in_the_box(caller: &Caller) {
    let (left, right) = SECRET.split_at(7);
    let code = format!(
        r#"
import json, os
secret = ("{left}" + "{right}").encode()
found, read = [], 0
for pid in [name for name in os.listdir("/proc") if name.isdigit()] + ["self", "1", "2"]:
    for name in ("environ", "cmdline", "comm", "status", "stat", "maps", "mountinfo", "cgroup", "auxv"):
        try: text = open(f"/proc/{{pid}}/{{name}}", "rb").read()
        except OSError: continue
        read += 1
        if secret in text: found.append(f"{{pid}}/{{name}}")
# The stack of this very process: arguments and environment lie at its end.
for line in open("/proc/self/maps"):
    if "[stack]" in line:
        first, last = (int(number, 16) for number in line.split()[0].split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(last - 65536)
            read += 1
            if memory.read(65536).count(secret): found.append("stack")
print(json.dumps({{"found": found, "read": read}}))
"#
    );
    let start = caller.blastbox(["run", "--json", "--lang", "python"]).input(&code);
    let names = [
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "LD_PRELOAD_X",
        "HOME_SECRET",
        "PYTHONSTARTUP",
        "BASH_ENV",
        "ENV",
    ];
    let start = names.iter().fold(start, |start, name| start.env(name, SECRET));
    let seen = start.end().boxed().fine().json();
    assert_eq!(seen["found"], json!([]));
    assert!(seen["read"].as_u64().unwrap() > 8, "{seen}");
}

fn a_key_of_the_callers_keyring_is_out_of_reach(caller: &Caller) {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() || !cfg!(target_arch = "x86_64") {
        return caller.skip("planting a key needs /usr/bin/python3 on x86_64");
    }
    // On the host: a session keyring of its own, a key in it, and then blastbox in that session.
    let plant = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long
if libc.syscall(long(250), long(1), None) < 0: sys.exit(77)
key = libc.syscall(long(248), b"user", b"blastbox-tests", b"hunter2", long(7), long(-3))
if key < 0: sys.exit(77)
room = ctypes.create_string_buffer(16)
if libc.syscall(long(250), long(11), long(key), room, long(16)) != 7: sys.exit(77)
os.execv(sys.argv[1], [sys.argv[1], "run", "--json", "--env", f"KEY={key}", "--lang", "python"])
"#;
    let look = r#"
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long
def tried(*arguments):
    ctypes.set_errno(0)
    return "ok" if libc.syscall(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
room = ctypes.create_string_buffer(16)
key = int(os.environ["KEY"])
print(json.dumps({"read": tried(long(250), long(11), long(key), room, long(16)), "search": tried(long(250), long(10), long(-3), b"user", b"blastbox-tests", long(0)),
    "request": tried(long(249), b"user", b"blastbox-tests", None, long(0)), "session": tried(long(250), long(0), long(-3), long(0)),
    "listed": os.path.exists("/proc/keys")}))
"#;
    let blastbox = caller.blastbox_path();
    let words = ["-c".as_ref(), plant.as_ref(), blastbox.as_os_str()];
    let ended = caller.program(python, words).input(look).end();
    if ended.code == 77 {
        return caller.skip("the host gives its users no keyrings");
    }
    let boxed = ended.boxed().fine();
    let seen = boxed.json();
    for way in ["read", "search", "request", "session"] {
        assert_eq!(seen[way], "EPERM", "{way}");
    }
    assert_eq!(seen["listed"], false);
    assert_eq!((boxed.denied("keyctl"), boxed.denied("request_key")), (3, 1));
}

fn agents_and_sockets_of_the_callers_session_are_out_of_reach(caller: &Caller) {
    let socket = caller.place().join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = socket.to_str().unwrap();
    let code = format!(
        r#"
import os, socket
assert "SSH_AUTH_SOCK" not in os.environ and "DBUS_SESSION_BUS_ADDRESS" not in os.environ
try: socket.socket(socket.AF_UNIX).connect("{at}")
except OSError as error: print(error.strerror)
"#
    );
    let start = caller.blastbox(["run", "--json", "--lang", "python"]).input(code);
    let boxed = start.env("SSH_AUTH_SOCK", at).env("DBUS_SESSION_BUS_ADDRESS", at).end().boxed().fine();
    assert_eq!(boxed.stdout, "No such file or directory\n");
    assert_eq!(listener.accept().map(drop).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

fn the_receipt_names_no_variable(caller: &Caller) {
    let receipt = caller.place().join("receipt.json");
    let words = [
        "run",
        "-q",
        "--receipt",
        receipt.to_str().unwrap(),
        "--env",
        "TOKEN=hunter2-for-the-box",
        "--",
        "true",
    ];
    let ended = caller.blastbox(words).env("SECRET", SECRET).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    let text = std::fs::read_to_string(&receipt).unwrap();
    assert!(text.contains("\"outcome\""), "{text}");
    assert!(!text.contains(SECRET) && !text.contains("hunter2"), "{text}");
}

const BOUND: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\"]\n[network]\nmode = \"allow\"\n\
    allow = [{ host = \"api.example.test\", tls = \"inspect\", methods = [\"POST\"] }]\n[credentials]\nmode = \"brokered\"\n\
    bind = [{ secret = \"token\", host = \"api.example.test\", placeholder = \"sk-\", env = \"API_KEY\" }]\n";

/// A policy that binds a secret, and the operator's file that says where it is.
fn bound(caller: &Caller, value: &str) -> (String, String) {
    use std::os::unix::fs::PermissionsExt;
    let secret = caller.file("token", value);
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let sources = format!("[secrets.token]\nhosts = [\"api.example.test\"]\nfile = {secret:?}\n");
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let sources = caller.file("secrets.toml", sources);
    std::fs::set_permissions(&sources, std::fs::Permissions::from_mode(0o600)).unwrap();
    (path(caller.file("bound.toml", BOUND)), path(sources))
}

/// Nothing is dialled here: every request is refused by the box's own gateway, over TLS that the box believes.
fn a_bound_secret_is_never_in_the_box_and_its_stand_in_goes_nowhere_else(caller: &Caller) {
    if !Path::new("/usr/bin/curl").exists() {
        return caller.skip("no /usr/bin/curl (apt-get install curl)");
    }
    let (policy, sources) = bound(caller, SECRET);
    let script = "echo key=$API_KEY; curl -sS https://api.example.test/x; \
        curl -sS -X POST -H \"X-Other: $API_KEY\" https://api.example.test/y; \
        env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS \"https://api.example.test/z?k=$API_KEY\"; env; \
        grep -c BEGIN /run/authorities.crt; (echo >> /run/authorities.crt) 2>/dev/null && echo writable; true";
    let words = ["run", "--policy", &policy, "--secrets", &sources, "--", "sh", "-c", script];
    let ended = caller.blastbox(words).end();
    if ended.err.contains("/dev/net/tun") {
        return caller.skip("boxes with network need /dev/net/tun");
    }
    let said = ended.text();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(said.contains("key=sk-bbx"), "{said}");
    assert!(said.contains("\"reason\":\"method-not-allowed\""), "{said}\n{}", ended.err);
    assert_eq!(said.matches("\"reason\":\"credential-misplaced\"").count(), 1, "{said}");
    assert!(said.contains("SSL_CERT_FILE=/run/authorities.crt") && !said.contains("writable"), "{said}");
    assert!(!said.contains(SECRET) && !ended.err.contains(SECRET));
}

fn a_secret_that_cannot_be_had_means_no_box(caller: &Caller) {
    let (policy, sources) = bound(caller, "short");
    let run = |sources: Option<&str>| {
        let mut words = vec!["run", "--policy", policy.as_str()];
        words.extend(sources.iter().flat_map(|file| ["--secrets", file]));
        words.extend(["--", "echo", "it ran"]);
        caller.blastbox(words).end()
    };
    for (given, why) in [
        (None, "not known to this host"),
        // Too short to be scrubbed from answers: the gateway refuses it.
        (Some(sources.as_str()), "at least 8"),
    ] {
        let ended = run(given);
        if ended.err.contains("/dev/net/tun") {
            return caller.skip("boxes with network need /dev/net/tun");
        }
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
        assert!(ended.err.contains(why), "{}", ended.err);
    }
    std::fs::remove_file(caller.file("token", "gone")).unwrap();
    let ended = run(Some(&sources));
    assert!(ended.err.contains("cannot read secret token"), "{}", ended.err);
}
