//! Functions of the caller that a module calls by the import `blastbox.call_tool`: compiled as every module of a caller is, and run by
//! the built worker.
//!
//! Without `make wasm` these tests are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "wasm/modules.rs"]
#[expect(dead_code, reason = "these tests need few of them")]
mod modules;

use std::path::{Path, PathBuf};

use blastbox_tests::{Boxed, Caller, Served, both_ways};
use modules::{ANSWER, Asks, asks};
use serde_json::{Value, json};

both_ways!(
    a_module_calls_a_function_and_goes_on_with_what_it_gives,
    what_cannot_be_asked_or_has_no_room_is_told_to_the_module,
    no_address_of_a_module_leads_out_of_its_memory_and_nobody_is_asked,
    what_is_said_to_a_function_is_work_of_the_module,
    the_owner_of_a_box_answers_its_module_and_the_ledger_has_the_call,
);

const SAME: &str = "same=cat";
/// Where name and input lie.
const NAME: u32 = 64;
const INPUT: u32 = 65_536;
/// What a function may answer at most.
const ROOM: u32 = 1 << 20;
const MEMORY: u32 = 2 << 20;
/// How the module ends: what the result said.
const GAVE: u8 = 0;
const FAILED: u8 = 1;
const NO_ROOM: u8 = 2;
const FAULT: u8 = 21;

fn shelf(caller: &Caller) -> Option<PathBuf> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    if shelf.join("blastbox-wasm").is_file() && shelf.join("blastbox-wasm-compile").is_file() {
        return Some(shelf);
    }
    caller.skip("the worker is not built: `make wasm` builds it");
    None
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap()
}

/// A module that asks this with this, and has this much room for what comes back.
fn asking(name: &str, input: &str, room: u32) -> Vec<u8> {
    let numbers = [NAME, length(name), INPUT, length(input), ANSWER, room];
    asks(Asks::Started, "call_tool", &[(NAME, name.as_bytes()), (INPUT, input.as_bytes())], &numbers)
}

fn run(caller: &Caller, options: &[&str], module: &[u8]) -> Boxed {
    let path = caller.file("asks.wasm", module);
    let options = [&["run", "--json", "--tier", "wasm", "--timeout", "60s"], options, &["--"]].concat();
    let words = [&options[..], &[path.to_str().unwrap()]].concat();
    let state = caller.place().join("state");
    caller.blastbox(words).env("XDG_STATE_HOME", state.to_str().unwrap()).end().boxed()
}

fn used(boxed: &Boxed) -> Vec<(&str, u64, u64)> {
    boxed.receipt.tools.iter().map(|used| (used.tool.as_str(), used.calls, used.failed)).collect()
}

fn a_module_calls_a_function_and_goes_on_with_what_it_gives(caller: &Caller) {
    if shelf(caller).is_none() {
        return;
    }
    let said = r#"{"a":[1,"é",null]}"#;
    let boxed = run(caller, &["--tool", SAME], &asking("same", said, ROOM));
    assert_eq!((boxed.receipt.exit_code, boxed.stdout.as_str()), (GAVE, said), "{}", boxed.stderr);
    assert_eq!(used(&boxed), [("same", 1, 0)]);
    // As much as a function may say.
    let big = "big=printf '\"'; head -c 1000000 /dev/zero | tr '\\0' x; printf '\"'";
    let boxed = run(caller, &["--tool", big], &asking("big", "null", ROOM)).fine();
    assert_eq!(boxed.stdout.len(), 1_000_002);
    // One that fails.
    let boxed = run(caller, &["--tool", "no=exit 3"], &asking("no", "null", ROOM));
    assert_eq!(boxed.receipt.exit_code, FAILED, "{}", boxed.stderr);
    assert!(boxed.stdout.contains("exit status: 3"), "{}", boxed.stdout);
    assert_eq!(used(&boxed), [("no", 1, 1)]);
}

fn what_cannot_be_asked_or_has_no_room_is_told_to_the_module(caller: &Caller) {
    if shelf(caller).is_none() {
        return;
    }
    let too_long = " ".repeat(60 * 1024 + 1);
    for (name, input, why) in [
        ("other", "1", "there is no such tool"),
        ("", "1", "there is no such tool"),
        // Requests have a function of their own.
        (":http", "https://example.com\n", "there is no such tool"),
        (&"x".repeat(100), "1", "there is no such tool"),
        ("same", &too_long, "too_large"),
        ("same", "{", "not JSON"),
        ("same", "", "not JSON"),
    ] {
        let boxed = run(caller, &["--tool", SAME], &asking(name, input, ROOM));
        assert_eq!(boxed.receipt.exit_code, FAILED, "{name}: {}", boxed.stderr);
        assert!(boxed.stdout.contains(why), "{name}: {}", boxed.stdout);
        assert!(boxed.receipt.tools.is_empty(), "{name}: nothing of it reached the caller");
    }
    let nothing = "\"no tools are offered to this command\"";
    let boxed = run(caller, &[], &asking("same", "1", ROOM));
    assert_eq!((boxed.receipt.exit_code, boxed.stdout.as_str()), (FAILED, nothing), "{}", boxed.stderr);
    // Before there is a command there is nothing that it was offered.
    let numbers = [NAME, 4, INPUT, 1, ANSWER, ROOM];
    let early = asks(Asks::Early, "call_tool", &[(NAME, b"same"), (INPUT, b"1")], &numbers);
    let boxed = run(caller, &["--tool", SAME], &early);
    assert_eq!((boxed.receipt.exit_code, used(&boxed)), (FAILED, Vec::new()), "{}", boxed.stderr);
    // The function was called, and its answer is not cut.
    let boxed = run(caller, &["--tool", SAME], &asking("same", "[1,2,3]", 6));
    assert_eq!((boxed.receipt.exit_code, boxed.stdout.as_str()), (NO_ROOM, ""), "{}", boxed.stderr);
    assert_eq!(used(&boxed), [("same", 1, 0)]);
    let boxed = run(caller, &["--tool", SAME], &asking("same", "[1,2,3]", 7)).fine();
    assert_eq!(boxed.stdout, "[1,2,3]");
}

fn no_address_of_a_module_leads_out_of_its_memory_and_nobody_is_asked(caller: &Caller) {
    if shelf(caller).is_none() {
        return;
    }
    for numbers in [
        [u32::MAX, 4, INPUT, 1, ANSWER, ROOM],
        [NAME, u32::MAX, INPUT, 1, ANSWER, ROOM],
        [MEMORY - 3, 4, INPUT, 1, ANSWER, ROOM],
        [NAME, 4, MEMORY, 1, ANSWER, ROOM],
        [NAME, 4, INPUT, MEMORY, ANSWER, ROOM],
        [NAME, 4, u32::MAX, u32::MAX, ANSWER, ROOM],
        [NAME, 4, INPUT, 1, MEMORY, 1],
        [NAME, 4, INPUT, 1, ANSWER, MEMORY],
        [NAME, 4, INPUT, 1, u32::MAX, u32::MAX],
    ] {
        let module = asks(Asks::Started, "call_tool", &[(NAME, b"same"), (INPUT, b"1")], &numbers);
        let boxed = run(caller, &["--tool", SAME], &module);
        assert_eq!(boxed.receipt.exit_code, FAULT, "{numbers:?}: {}", boxed.stderr);
        assert_eq!((used(&boxed), boxed.receipt.tools_refused), (Vec::new(), 0), "{numbers:?}");
    }
    for numbers in [[u32::MAX, 1, ANSWER, ROOM], [NAME, 4, MEMORY, 1], [NAME, MEMORY, ANSWER, ROOM]] {
        let module = asks(Asks::Started, "fetch", &[], &numbers);
        assert_eq!(run(caller, &[], &module).receipt.exit_code, FAULT, "{numbers:?}");
    }
    // The last bytes of its memory are its own.
    let name = MEMORY - 4;
    let numbers = [name, 4, INPUT, 1, ANSWER, MEMORY - ANSWER];
    let module = asks(Asks::Started, "call_tool", &[(name, b"same"), (INPUT, b"7")], &numbers);
    assert_eq!(run(caller, &["--tool", SAME], &module).fine().stdout, "7");
}

fn what_is_said_to_a_function_is_work_of_the_module(caller: &Caller) {
    if shelf(caller).is_none() {
        return;
    }
    let said = format!("\"{}\"", "x".repeat(50_000));
    let module = asking("same", &said, ROOM);
    let boxed = run(caller, &["--tool", SAME, "--fuel", "200000"], &module).fine();
    assert!(boxed.receipt.usage.command_fuel.unwrap() > 100_000, "{:?}", boxed.receipt.usage.command_fuel);
    let boxed = run(caller, &["--tool", SAME, "--fuel", "60000"], &module);
    assert_eq!((boxed.outcome(), boxed.stdout.as_str()), ("fuel_spent", ""), "{}", boxed.stderr);
}

/// The programs once more, with a shelf of their own that has these modules, compiled as an operator does it.
fn own_programs(caller: &Caller, shelf: &Path, modules: &[(&str, Vec<u8>)]) -> PathBuf {
    let programs = caller.directory("own");
    let own = caller.directory("own/wasm");
    let from = caller.blastbox_path();
    for name in ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-egress", "blastbox-agent"] {
        std::fs::copy(from.with_file_name(name), programs.join(name)).unwrap();
    }
    std::fs::copy(shelf.join("blastbox-wasm"), own.join("blastbox-wasm")).unwrap();
    for (name, bytes) in modules {
        let module = caller.file(&format!("{name}.wasm"), bytes);
        let words = ["compile", "module", module.to_str().unwrap(), own.to_str().unwrap(), name];
        let compiled = caller.program(&shelf.join("blastbox-wasm-compile"), words).end();
        assert_eq!(compiled.code, 0, "{}", compiled.err);
    }
    programs
}

fn the_owner_of_a_box_answers_its_module_and_the_ledger_has_the_call(caller: &Caller) {
    let Some(shelf) = shelf(caller) else { return };
    let numbers = [NAME, u32::MAX, INPUT, 1, ANSWER, ROOM];
    let wild = asks(Asks::Started, "call_tool", &[], &numbers);
    let modules = [("adds", asking("add", "[1,2]", ROOM)), ("wild", wild)];
    let programs = own_programs(caller, &shelf, &modules);
    let daemon = Served::start_program(caller, &programs.join("blastbox"), &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    let execs = format!("/v1/boxes/{id}/execs");
    let begin = |command: &str| {
        let new = json!({ "command": [command], "tools": ["add"] });
        let (status, begun) = daemon.request("POST", &execs, &new);
        assert_eq!(status, 201, "{begun}");
        begun["exec"].clone()
    };
    // One that points anywhere harms neither its box nor the one behind it.
    let wild = format!("{execs}/{}/calls?wait=60", begin("wild"));
    let (status, no) = daemon.request("GET", &wild, &Value::Null);
    assert_eq!((status, &no["error"]["code"]), (409, &json!("command_over")), "{no}");
    let exec = begin("adds");
    let calls = format!("{execs}/{exec}/calls");
    let (status, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
    assert_eq!((status, &open), (200, &json!({ "calls": [{ "call": 1, "tool": "add", "input": [1, 2] }] })));
    assert_eq!(daemon.request("POST", &format!("{calls}/1"), &json!({ "result": { "sum": 3 } })).0, 204);
    assert_eq!(daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null).0, 409);
    assert_eq!(daemon.ask(["logs", &id, &exec.to_string()]), r#"{"sum":3}"#);
    let (_, receipt) = daemon.request("DELETE", &format!("/v1/boxes/{id}"), &Value::Null);
    assert_eq!(receipt["tools"], json!([{ "tool": "add", "calls": 1, "failed": 0 }]));
    daemon.stop();
    let ledger = caller.place().join("state/ledger").display().to_string();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &id, "--json"]).end().text();
    let kinds: Vec<String> = shown
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["event"]["kind"].as_str().unwrap().to_owned()
        })
        .filter(|kind| kind.starts_with("tool_"))
        .collect();
    assert_eq!(kinds, ["tool_called", "tool_answered"]);
}
