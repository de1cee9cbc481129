//! The daemon's own walls, on the real program: what the kernel says of it, and that a forbidden thing really fails.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "only tests; one that cannot work must fail at once"
)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use blastbox_tests::{Caller, Place, Served, both_ways, wait_until};

both_ways!(
    every_thread_but_the_one_that_starts_programs_is_confined,
    a_running_daemon_says_which_of_its_walls_hold,
    a_file_outside_its_place_cannot_be_read_by_it,
    a_warden_that_dies_is_replaced_all_the_same,
    behind_its_walls_it_sees_the_host_as_it_is,
    behind_its_walls_it_begins_sessions_of_mcp,
);

/// Name of each thread, and the fields of its status.
fn threads(pid: u32) -> Vec<(String, BTreeMap<String, String>)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("list threads");
    let status = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("status")).ok()?;
        let fields = text.lines().filter_map(|line| line.split_once(":\t"));
        let fields: BTreeMap<String, String> =
            fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        Some((fields.get("Name")?.clone(), fields))
    };
    tasks.flatten().filter_map(status).collect()
}

fn every_thread_but_the_one_that_starts_programs_is_confined(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    assert_eq!(daemon.sh(&id, "echo works"), "works");
    let threads = threads(daemon.id());
    assert!(threads.len() > 2, "{threads:?}");
    for (name, fields) in threads {
        let of = |field: &str| fields.get(field).map_or("", String::as_str);
        if name == "outside" {
            continue;
        }
        assert_eq!((of("Seccomp"), of("NoNewPrivs")), ("2", "1"), "{name}");
        let kept = if caller.is_root() { (1 << 2) | (1 << 10) } else { 0 };
        for set in ["CapEff", "CapPrm", "CapInh"] {
            assert_eq!(u64::from_str_radix(of(set), 16), Ok(kept), "{name} {set}");
        }
        assert_eq!(u64::from_str_radix(of("CapAmb"), 16), Ok(0), "{name}");
    }
    // Not dumpable: what the kernel shows of its memory belongs to root, whoever the daemon is.
    let owner = std::fs::metadata(format!("/proc/{}/mem", daemon.id())).expect("look at it");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
    assert_eq!(daemon.stop().code, 0);
}

fn a_running_daemon_says_which_of_its_walls_hold(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let shown: serde_json::Value =
        serde_json::from_str(&daemon.ask(["inspect", "--json"])).expect("a document");
    let walls = &shown["walls"];
    assert_eq!(shown["pid"], daemon.id(), "{shown}");
    assert_eq!(
        (&walls["seccomp"], &walls["no_new_privs"], &walls["dumpable"]),
        (&true.into(), &true.into(), &false.into())
    );
    assert_eq!(walls["open_threads"], serde_json::json!(["outside"]), "{shown}");
    let words = daemon.ask(["inspect"]);
    assert!(words.contains("a filter of system calls") && words.contains("not dumpable"), "{words}");
    // As the doctor says it, of this daemon and of none.
    let said = daemon.blastbox(["doctor", "--json"]).end().text();
    let findings: Vec<serde_json::Value> = serde_json::from_str(&said).expect("findings");
    let own =
        |findings: &[serde_json::Value]| findings.iter().find(|f| f["code"] == "daemon_confined").cloned();
    let own_words = own(&findings).expect("a line about the daemon");
    assert_eq!(
        own_words["state"] == "good",
        shown["missing"] == serde_json::json!([]),
        "{own_words} {shown}"
    );
    let ended = daemon.stop();
    assert_eq!(ended.code, 0);
    let nobody = caller.blastbox(["doctor", "--json", "--socket", "/nonexistent/s"]).end().text();
    assert_eq!(own(&serde_json::from_str::<Vec<serde_json::Value>>(&nobody).expect("findings")), None);
    if ended.err.contains("no Landlock") {
        return caller.skip("this kernel has no Landlock");
    }
    assert_eq!((&walls["landlock"], &shown["missing"]), (&true.into(), &serde_json::json!([])), "{shown}");
}

fn a_file_outside_its_place_cannot_be_read_by_it(caller: &Caller) {
    let python = std::path::Path::new("/usr/bin/python3");
    if !python.exists() {
        return caller.skip("there is no python3 to send a key with");
    }
    let daemon = Served::start(caller, &[]);
    let (state, elsewhere) = (caller.place().join("state"), Place::new());
    let words = ["key", "create", "one", "--state-dir"].map(str::to_owned);
    assert_eq!(caller.blastbox(words.into_iter().chain([state.display().to_string()])).end().code, 0);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1])\n\
        s.sendall(b'GET /v1/boxes HTTP/1.1\\r\\nHost: x\\r\\nX-API-Key: bbx_nonsense\\r\\nConnection: close\\r\\n\\r\\n')\n\
        print(s.recv(4096).split(b' ')[1].decode())";
    let socket = daemon.socket().display().to_string();
    let status = || caller.program(python, ["-c", script, &socket]).end().text().trim().to_owned();
    // With a key, the daemon reads its list: here it does not know this one.
    let inside = status();
    // The same list elsewhere, where everybody may read it, behind a link in the daemon's own directory.
    let (keys, moved) = (state.join("keys.json"), elsewhere.join("keys.json"));
    std::fs::copy(&keys, &moved).expect("copy the list");
    std::fs::set_permissions(&moved, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("open it");
    std::fs::remove_file(&keys).expect("take the list away");
    std::os::unix::fs::symlink(&moved, &keys).expect("make a link");
    let outside = status();
    let ended = daemon.stop();
    assert_eq!((ended.code, inside.as_str()), (0, "401"));
    if ended.err.contains("no Landlock") {
        return caller.skip("this kernel has no Landlock");
    }
    assert_eq!(outside, "500", "it cannot be read, though its permissions would allow it");
}

fn a_warden_that_dies_is_replaced_all_the_same(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let warden = blastbox_tests::census::child_of(daemon.id()).expect("a warden");
    let pid = i32::try_from(warden).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill the warden");
    // Its boxes go with it, and the next one makes boxes again.
    assert!(wait_until(|| daemon.blastbox(["create"]).end().code == 0));
    assert!(wait_until(|| !daemon.ask(["ps"]).contains(&id)));
    assert_eq!(daemon.stop().code, 0);
}

fn behind_its_walls_it_sees_the_host_as_it_is(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let shown: serde_json::Value =
        serde_json::from_str(&daemon.ask(["inspect", "--json", &id])).expect("a document");
    let kept: Vec<String> =
        serde_json::from_value(shown.get("gaps").cloned().unwrap_or_default()).expect("a list of gaps");
    let receipt = caller.run(&[], &["true"]).receipt;
    let alone: Vec<String> = receipt.gaps.iter().map(|gap| gap.code.to_string()).collect();
    assert_eq!(kept, alone);
    daemon.stop();
}

/// The names of sessions are random, and a library takes the randomness from a file.
fn behind_its_walls_it_begins_sessions_of_mcp(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
    let asked = format!(
        "POST /mcp HTTP/1.1\r\nhost: blastbox\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n{hello}",
        hello.len()
    );
    let mut line = UnixStream::connect(daemon.socket()).expect("its socket");
    line.set_read_timeout(Some(Duration::from_secs(60))).expect("a bound against hangs");
    line.write_all(asked.as_bytes()).expect("ask");
    let mut head = String::new();
    let mut lines = BufReader::new(line).lines().map_while(Result::ok);
    for text in lines.by_ref().take_while(|text| !text.is_empty()) {
        head.push_str(&text.to_lowercase());
        head.push('\n');
    }
    assert!(head.starts_with("http/1.1 200") && head.contains("mcp-session-id: "), "{head}");
    drop(lines);
    assert_eq!(daemon.stop().code, 0);
}
