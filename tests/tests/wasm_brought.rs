//! Modules and components that callers bring to a daemon, over its API and with `blastbox module`, and to `blastbox mcp`.
//!
//! Without `make wasm` they are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "mcp/client.rs"]
#[expect(dead_code, reason = "these tests need little of it")]
mod client;
#[path = "wasm/components.rs"]
mod components;
#[path = "wasm/modules.rs"]
#[expect(dead_code, reason = "these tests need few of them")]
mod modules;

use std::path::{Path, PathBuf};

use blastbox_tests::census::{family, lives};
use blastbox_tests::spoken::{self, field};
use blastbox_tests::{Caller, Held, Served, Start, both_ways, daemon, processes_naming, suites, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

both_ways!(
    a_module_that_is_brought_runs_in_boxes_that_name_it_until_it_is_taken_away,
    its_work_is_counted_where_a_policy_wants_that,
    a_component_that_is_brought_calls_functions_of_the_caller,
    what_cannot_be_a_guest_is_refused_by_name_and_leaves_nothing,
    no_tenant_has_more_of_them_than_it_may_nor_sees_anothers,
    a_daemon_that_was_killed_leaves_modules_whole_and_nothing_half_made,
    a_daemon_that_ends_does_not_wait_for_a_compiler_and_leaves_none,
    one_that_runs_in_no_box_is_told_why,
    an_agents_boxes_have_the_program_that_whoever_started_the_server_brought,
);

macro_rules! needs {
    ($found:expr) => {
        match $found {
            Some(found) => found,
            None => return,
        }
    };
}

/// Whether all that modules and components need is built.
fn built(caller: &Caller) -> Option<()> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    let has = |name: &str| shelf.join(name).is_file();
    if has("blastbox-wasm") && has("blastbox-wasm-component") && has("blastbox-wasm-compile") {
        return Some(());
    }
    caller.skip("the tier wasm is not built: `make wasm` builds it");
    None
}

fn brought(caller: &Caller, name: &str, bytes: &[u8]) -> String {
    caller.file(&format!("{name}.wasm"), bytes).to_str().unwrap().to_owned()
}

/// Where the modules of whoever sits at the socket lie.
fn place(caller: &Caller) -> PathBuf {
    caller.place().join("state/modules/local")
}

fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const CREATE: [&str; 4] = ["create", "--tier", "wasm", "--image"];

fn create(daemon: &Served<'_>, image: &str) -> String {
    daemon.ask(CREATE.iter().copied().chain([image]))
}

fn a_module_that_is_brought_runs_in_boxes_that_name_it_until_it_is_taken_away(caller: &Caller) {
    needs!(built(caller));
    let daemon = Served::start(caller, &[]);
    let add = |bytes: &[u8]| daemon.ask(["module", "add", &brought(caller, "hello", bytes)]);
    assert_eq!(add(&modules::hello("first\n")), "module:hello");
    let (status, listed) = daemon.request("GET", "/v1/modules", &Value::Null);
    let card = &listed["modules"][0];
    assert_eq!((status, &card["name"], &card["form"]), (200, &json!("hello"), &json!("module")));
    let bytes = modules::hello("first\n").len();
    assert_eq!(card["bytes"], bytes, "{card}");
    let digest = card["digest"].as_str().unwrap().to_owned();

    let exec = |id: &str, words: &[&str]| daemon.blastbox(["exec", id, "--"].iter().chain(words)).end();
    let first = create(&daemon, "module:hello");
    assert_eq!(exec(&first, &["hello.wasm"]).text(), "first\n");
    let (_, shown) = daemon.request("GET", &format!("/v1/boxes/{first}"), &Value::Null);
    assert_eq!((&shown["tier"], &shown["image"]), (&json!("wasm"), &json!(format!("module:hello@{digest}"))));
    let run = json!({ "box": { "tier": "wasm", "image": "module:hello" }, "command": ["hello.wasm"] });
    let (status, ran) = daemon.request("POST", "/v1/run", &run);
    assert_eq!((status, &ran["stdout"]["text"]), (200, &json!("first\n")), "{ran}");
    assert_eq!(ran["receipt"]["image"], format!("module:hello@{digest}"));

    // Another one in its place: boxes that were there go on with theirs.
    add(&modules::hello("second\n"));
    assert_eq!(exec(&create(&daemon, "module:hello"), &["hello.wasm"]).text(), "second\n");
    assert_eq!(exec(&first, &["hello.wasm"]).text(), "first\n");
    assert_eq!(names(&place(caller)), ["hello"]);
    assert!(daemon.ask(["module", "ls"]).contains("hello   module"), "{}", daemon.ask(["module", "ls"]));

    daemon.ask(["module", "rm", "hello"]);
    assert_eq!(exec(&first, &["hello.wasm"]).text(), "first\n");
    let refused = daemon.blastbox(CREATE.iter().copied().chain(["module:hello"])).end();
    assert!(refused.code == 125 && refused.err.contains("there is no module \"hello\""), "{}", refused.err);
    assert!(refused.err.contains("blastbox module add"), "{}", refused.err);
    let again = daemon.blastbox(["module", "rm", "hello"]).end();
    assert!(again.code == 125 && again.err.contains("no such module"), "{}", again.err);
    assert_eq!(daemon.request("GET", "/v1/modules", &Value::Null), (200, json!({ "modules": [] })));
    daemon.stop();
    let ledger = caller.place().join("state/ledger").display().to_string();
    let shown = caller.blastbox(["audit", "show", &ledger, "--json"]).end().text();
    let times = |said: &str| shown.matches(&format!("\"kind\":\"{said}\"")).count();
    assert_eq!((times("module_brought"), times("module_removed")), (2, 1), "{shown}");
    assert!(shown.contains(&digest), "{shown}");
}

fn its_work_is_counted_where_a_policy_wants_that(caller: &Caller) {
    needs!(built(caller));
    let daemon = Served::start(caller, &[]);
    daemon.ask(["module", "add", &brought(caller, "hello", &modules::hello("counted\n"))]);
    daemon.ask(["module", "add", &brought(caller, "x", &modules::endless()), "--name", "endless"]);
    let run = |name: &str| {
        let limits = json!({ "fuel": 1_000_000 });
        let new = json!({ "tier": "wasm", "image": format!("module:{name}"), "limits": limits });
        let run = json!({ "box": new, "command": [format!("{name}.wasm")] });
        let (status, ran) = daemon.request("POST", "/v1/run", &run);
        assert_eq!(status, 200, "{ran}");
        ran
    };
    // Its code for this is made now, and lies beside the other.
    for _ in 0..2 {
        let ran = run("hello");
        assert_eq!(ran["stdout"]["text"], "counted\n", "{ran}");
        assert!(ran["receipt"]["usage"]["command_fuel"].as_u64().is_some_and(|fuel| fuel > 0), "{ran}");
    }
    assert_eq!(run("endless")["receipt"]["outcome"], "fuel_spent");
    assert_eq!(names(&place(caller).join("hello")).len(), 3);
    daemon.stop();
}

fn a_component_that_is_brought_calls_functions_of_the_caller(caller: &Caller) {
    needs!(built(caller));
    let daemon = Served::start(caller, &[]);
    let tool = brought(caller, "tool", &components::calling(Some("add"), "[1,2]"));
    daemon.ask(["module", "add", &tool]);
    let (_, listed) = daemon.request("GET", "/v1/modules", &Value::Null);
    assert_eq!(listed["modules"][0]["form"], "component");
    let id = create(&daemon, "module:tool");
    let execs = format!("/v1/boxes/{id}/execs");
    let (status, begun) =
        daemon.request("POST", &execs, &json!({ "command": ["tool.wasm"], "tools": ["add", "say"] }));
    assert_eq!(status, 201, "{begun}");
    let calls = format!("{execs}/{}/calls", begun["exec"]);
    let (_, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!(open, json!({ "calls": [{ "call": 1, "tool": "add", "input": [1, 2] }] }));
    assert_eq!(daemon.request("POST", &format!("{calls}/1"), &json!({ "result": 3 })).0, 204);
    let (_, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!(open, json!({ "calls": [{ "call": 2, "tool": "say", "input": 3 }] }));
    daemon.stop();
}

fn what_cannot_be_a_guest_is_refused_by_name_and_leaves_nothing(caller: &Caller) {
    needs!(built(caller));
    let config = caller.file("daemon.toml", "[modules]\nlargest = \"1MiB\"\n");
    let daemon = Served::start(caller, &["--config", config.to_str().unwrap()]);
    let environment = "wasi:cli/environment@0.2.0";
    let cases = [
        ("nothing", Vec::new(), "wasm_invalid"),
        ("broken", b"\0asm\x01\0\0\0garbage".to_vec(), "wasm_invalid"),
        ("text", b"print('hello')".to_vec(), "wasm_invalid"),
        ("library", modules::library(), "wasm_no_start"),
        ("wants", modules::wants("env", "system"), "wasm_import_unknown"),
        (
            "newer",
            components::passing("wasi:cli/environment@0.3.0", "wasi:cli/run@0.3.0"),
            "wasm_component_newer",
        ),
        ("no-run", components::passing(environment, "some:tool/thing"), "wasm_no_run"),
        ("large", vec![0; (1 << 20) + 1], "a module has at most 1048576 bytes here"),
    ];
    for (name, bytes, why) in cases {
        let refused = daemon.blastbox(["module", "add", "--json", &brought(caller, name, &bytes)]).end();
        assert_eq!(refused.code, 125, "{name}: {}", refused.err);
        assert!(refused.err.contains(why), "{name}: {}", refused.err);
    }
    for name in [".new-1", "a.b", "a%2fb", "%2e%2e", &"x".repeat(81)] {
        let (status, answer) = daemon.request("PUT", &format!("/v1/modules/{name}"), &Value::Null);
        assert_eq!((status, &answer["error"]["code"]), (422, &json!("bad_field")), "{name}: {answer}");
    }
    assert_eq!(names(&place(caller)), <[&str; 0]>::default());
    daemon.stop();
}

fn no_tenant_has_more_of_them_than_it_may_nor_sees_anothers(caller: &Caller) {
    needs!(built(caller));
    let other = suites::Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    let daemon = suites::Daemon::start_with(caller, "[modules]\ncount = 1\ndisk = \"1MiB\"\n");
    let ask = |key: &str, what: &str, body: &[u8]| {
        let head = format!("{what} HTTP/1.1\r\nX-API-KEY: {key}\r\nContent-Length: {}", body.len());
        spoken::ask(&daemon, &head, body)
    };
    let hello = modules::hello("one\n");
    let put = ask(&daemon.key, "PUT /v1/modules/tool", &hello);
    assert!(put.starts_with("HTTP/1.1 201"), "{put}");
    assert_eq!(field(&put, "name"), "tool");
    let second = ask(&daemon.key, "PUT /v1/modules/second", &hello);
    assert!(second.starts_with("HTTP/1.1 429") && field(&second, "code") == "modules_full", "{second}");
    // The same again is no more than it was.
    assert!(ask(&daemon.key, "PUT /v1/modules/tool", &hello).starts_with("HTTP/1.1 201"));
    let long = vec![0; 1100 << 10];
    let large = ask(&other, "PUT /v1/modules/large", &long);
    assert!(large.starts_with("HTTP/1.1 429") && field(&large, "code") == "modules_full", "{large}");

    // What is said to be longer than any is not waited for.
    let announced =
        format!("PUT /v1/modules/large HTTP/1.1\r\nX-API-KEY: {other}\r\nContent-Length: {}", 1_u64 << 40);
    let longer = spoken::ask(&daemon, &announced, b"");
    assert!(longer.starts_with("HTTP/1.1 413") && field(&longer, "code") == "wasm_too_large", "{longer}");

    assert!(ask(&other, "GET /v1/modules", b"").ends_with("{\"modules\":[]}"));
    let new = json!({ "tier": "wasm", "image": "module:tool" });
    let run = json!({ "box": new, "command": ["tool.wasm"] }).to_string();
    let foreign = ask(&other, "POST /v1/run", run.as_bytes());
    assert!(foreign.starts_with("HTTP/1.1 422") && field(&foreign, "code") == "module_unknown", "{foreign}");
    assert!(!foreign.contains("it has"), "{foreign}");
    assert!(ask(&other, "DELETE /v1/modules/tool", b"").starts_with("HTTP/1.1 404"));
    // Each has its own of a name.
    assert!(ask(&other, "PUT /v1/modules/tool", &modules::hello("two\n")).starts_with("HTTP/1.1 201"));
    for (key, said) in [(&daemon.key, "one\n"), (&other, "two\n")] {
        let ran = ask(key, "POST /v1/run", run.as_bytes());
        assert!(ran.contains(&format!("\"text\":{}", json!(said))), "{ran}");
    }
}

/// A daemon that is not waited for at its end.
fn serve(caller: &Caller) -> Held {
    let (socket, state) = (caller.place().join("api.sock"), caller.place().join("state"));
    let (socket, state) = (socket.display().to_string(), state.display().to_string());
    let words = ["serve", "--quiet", "--socket", &socket, "--state-dir", &state];
    let mut held = caller.blastbox(words).start();
    let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    assert!(wait_until(|| held.is_over() || answers()) && !held.is_over());
    held
}

fn at<'a>(caller: &'a Caller, words: &[&str]) -> Start<'a> {
    let socket = caller.place().join("api.sock").display().to_string();
    caller.blastbox(words).env("BLASTBOX_SOCKET", &socket)
}

fn a_daemon_that_was_killed_leaves_modules_whole_and_nothing_half_made(caller: &Caller) {
    needs!(built(caller));
    let mut held = serve(caller);
    let hello = brought(caller, "hello", &modules::hello("still there\n"));
    assert_eq!(at(caller, &["module", "add", &hello]).end().code, 0);
    held.signal(Signal::KILL);
    assert!(wait_until(|| held.is_over()));
    // What one that was killed in the middle would leave, and what somebody has changed.
    let home = place(caller);
    std::fs::create_dir(home.join(".new-3")).unwrap();
    caller.own(&home.join(".new-3"));
    std::fs::write(home.join(".new-3/brought.wasm"), b"half").unwrap();
    let key = names(&home.join("hello")).into_iter().find(|name| !name.ends_with(".wasm")).unwrap();
    let code = home.join("hello").join(key).join("hello.cwasm");
    let mut bytes = std::fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&code).unwrap();
    std::fs::write(&code, &bytes).unwrap();
    caller.own(&code);

    let mut held = serve(caller);
    assert_eq!(names(&home), ["hello"]);
    let created = at(caller, &[&CREATE[..], &["module:hello"]].concat()).end();
    assert_eq!(created.code, 0, "{}", created.err);
    let id = created.text().trim().to_owned();
    assert_eq!(at(caller, &["exec", &id, "--", "hello.wasm"]).end().text(), "still there\n");
    assert_ne!(std::fs::read(&code).unwrap(), bytes, "what was changed is never run: it was compiled again");
    // Nor is what was brought another by now.
    held.signal(Signal::KILL);
    assert!(wait_until(|| held.is_over()));
    let file = names(&home.join("hello")).into_iter().find(|name| name.ends_with(".wasm")).unwrap();
    std::fs::write(home.join("hello").join(file), modules::hello("another\n")).unwrap();
    let held = serve(caller);
    let refused = at(caller, &[&CREATE[..], &["module:hello"]].concat()).end();
    assert!(refused.code == 125 && refused.err.contains("was changed on the disk"), "{}", refused.err);
    held.signal(Signal::TERM);
    held.end();
}

fn a_daemon_that_ends_does_not_wait_for_a_compiler_and_leaves_none(caller: &Caller) {
    needs!(built(caller));
    let held = serve(caller);
    let large = brought(caller, "large", &modules::large(200_000));
    let adding = at(caller, &["module", "add", &large]).start();
    let home = place(caller).display().to_string();
    // The one that writes, the one that it has started, and the one within, which looks into the module.
    let mut both = Vec::new();
    let begun = wait_until(|| {
        both = processes_naming(&home).first().map(|writer| family(*writer)).unwrap_or_default();
        both.len() == 3
    });
    assert!(begun, "nothing is compiled: {both:?}");
    // The one that looks into it has no power over the host, before it has read it.
    let looks = both.iter().find(|one| both.iter().all(|other| other.parent != one.pid)).unwrap().pid;
    let mut status = String::new();
    let is_nobody = wait_until(|| {
        status = std::fs::read_to_string(format!("/proc/{looks}/status")).unwrap_or_default();
        let of = |field: &str| status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        let none = |field: &str| of(field) == Some("0000000000000000");
        let is_other = |field: &str| of(field).is_some_and(|ids| ids.split('\t').all(|id| id != "0"));
        let users = ["Uid", "Gid"].into_iter().all(is_other);
        ["CapPrm", "CapEff", "CapAmb"].into_iter().all(none)
            && (of("NoNewPrivs"), of("Seccomp")) == (Some("1"), Some("2"))
            && users
    });
    assert!(is_nobody, "{status}");
    // Nobody else but root may look.
    if rustix::process::geteuid().is_root() {
        for kind in ["mnt", "pid", "net", "ipc", "uts", "cgroup"] {
            let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).unwrap();
            assert_ne!(of("self"), of(&looks.to_string()), "{kind}");
        }
        assert_eq!(std::fs::read_dir(format!("/proc/{looks}/root")).unwrap().count(), 0, "a file");
        assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    }
    // From here on it takes for ever, however fast this host is.
    for compiler in &both {
        daemon::signal(compiler.pid, Signal::STOP);
    }
    held.signal(Signal::TERM);
    let ended = held.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(wait_until(|| !both.iter().any(lives)), "a compiler lives on");
    let refused = adding.end();
    assert!(refused.code == 125 && refused.err.contains("stopping"), "{}", refused.err);
    // What is half made goes with the next start.
    let held = serve(caller);
    assert_eq!(names(&place(caller)), <[&str; 0]>::default());
    held.signal(Signal::TERM);
    held.end();
}

fn one_that_runs_in_no_box_is_told_why(caller: &Caller) {
    needs!(built(caller));
    let daemon = Served::start(caller, &[]);
    daemon.ask(["module", "add", &brought(caller, "hello", &modules::hello("here\n"))]);
    let refused = |words: &[&str]| {
        let ended = daemon.blastbox(["create"].iter().chain(words)).end();
        assert_eq!(ended.code, 125, "{}", ended.err);
        ended.err
    };
    let jail = refused(&["--tier", "jail", "--accept", "shared-kernel", "--image", "module:hello"]);
    assert!(jail.contains("hello is a WebAssembly module") && jail.contains("use --tier wasm"), "{jail}");
    // Before anything is compiled for it: not even its name is looked up.
    let none = refused(&["--tier", "jail", "--accept", "shared-kernel", "--image", "module:none"]);
    assert!(none.contains("none is a WebAssembly module"), "{none}");
    let other = refused(&["--tier", "wasm", "--image", "module:other"]);
    assert!(other.contains("there is no module \"other\" of this tenant; it has hello"), "{other}");
    daemon.stop();
    let config = caller.file("daemon.toml", "[modules]\nenabled = false\n");
    let daemon = Served::start(caller, &["--config", config.to_str().unwrap()]);
    let off = daemon.blastbox(["module", "ls"]).end();
    assert!(off.code == 125 && off.err.contains("modules are off here"), "{}", off.err);
    daemon.stop();
}

fn an_agents_boxes_have_the_program_that_whoever_started_the_server_brought(caller: &Caller) {
    needs!(built(caller));
    let hello = brought(caller, "hello", &modules::hello("for an agent\n"));
    let mut client = client::Client::start(caller, &["--tier", "wasm", "--image", &hello]);
    // It is what it was when the server began.
    std::fs::remove_file(&hello).unwrap();
    for _ in 0..2 {
        assert_eq!(
            client.done("run_command", json!({ "command": ["hello.wasm"] }))["stdout"],
            "for an agent\n"
        );
    }
    let told = client.done("start_box", json!({}));
    assert!(told["image"].as_str().is_some_and(|image| image.starts_with("module:hello@sha256:")), "{told}");
    assert_eq!(client.end(), 0);
}
