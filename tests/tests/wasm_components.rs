//! Components of WASI 0.2 that a caller brings, run by the built worker: a program in Rust, and what is refused.
//!
//! Without `make wasm`, or where rustup cannot fetch the target wasm32-wasip2, the tests that need it are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "wasm/components.rs"]
mod components;
#[path = "wasm/modules.rs"]
#[expect(dead_code, reason = "these tests need few of them")]
mod modules;

use std::path::PathBuf;

use blastbox_tests::{Boxed, Caller, Served, both_ways};
use components::{calling, importing, passing};
use serde_json::{Value, json};

both_ways!(
    a_component_runs_with_arguments_environment_and_input,
    exit_codes_pass_through_and_a_panic_is_a_signal,
    files_go_in_are_worked_with_and_changes_stay_in_the_box,
    a_directory_is_walked_whole_also_while_it_is_emptied,
    nothing_of_the_host_is_seen_and_the_boxs_own_directories_stay,
    files_are_held_to_the_limit_of_the_policy,
    output_over_the_limit_ends_the_box,
    a_component_that_never_ends_or_sleeps_for_ever_is_ended,
    too_much_memory_and_too_deep_a_stack_end_the_component_alone,
    open_files_and_handles_are_counted_and_what_is_closed_makes_room,
    a_deterministic_run_is_the_same_again_to_the_last_byte,
    work_is_counted_and_cut_off_at_the_same_byte,
    there_are_no_sockets,
    a_component_calls_functions_of_the_caller_and_is_told_why_one_gives_nothing,
    a_component_has_requests_made_and_hears_what_the_gateway_refuses,
    a_component_is_compiled_once,
    components_that_cannot_be_guests_are_refused_by_name_and_leave_nothing,
    without_its_worker_a_component_is_refused_by_name,
    the_worker_of_modules_takes_no_component,
    a_component_on_the_shelf_runs_in_a_daemons_box_whose_policy_names_it,
);

/// The directory of the workers, if all that components need lies there.
fn shelf(caller: &Caller) -> Option<PathBuf> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    let has = |name: &str| shelf.join(name).is_file();
    if has("blastbox-wasm") && has("blastbox-wasm-component") && has("blastbox-wasm-compile") {
        return Some(shelf);
    }
    caller.skip("the worker of components is not built: `make wasm` builds it");
    None
}

/// The program in Rust as a component, where the caller can read it.
fn guest(caller: &Caller) -> Option<String> {
    shelf(caller)?;
    match caller.component("guest.wasm") {
        Some(bytes) => Some(component(caller, "guest", &bytes)),
        None => {
            caller.skip("no component in Rust is built: `make test` builds it where rustup can fetch the target wasm32-wasip2");
            None
        }
    }
}

macro_rules! needs {
    ($found:expr) => {
        match $found {
            Some(found) => found,
            None => return,
        }
    };
}

fn component(caller: &Caller, name: &str, bytes: &[u8]) -> String {
    caller.file(&format!("{name}.wasm"), bytes).to_str().unwrap().to_owned()
}

fn state(caller: &Caller) -> String {
    caller.place().join("state").to_str().unwrap().to_owned()
}

fn run_with(caller: &Caller, options: &[&str], words: &[&str], input: &str) -> Boxed {
    let begin = ["run", "--json", "--tier", "wasm", "--timeout", "120s"];
    let all = begin.iter().chain(options).chain(&["--"]).chain(words);
    caller.blastbox(all).env("XDG_STATE_HOME", &state(caller)).input(input).end().boxed()
}

fn run(caller: &Caller, words: &[&str]) -> Boxed {
    run_with(caller, &[], words, "")
}

fn compiled(caller: &Caller) -> usize {
    let cache = caller.place().join("state/blastbox/wasm");
    std::fs::read_dir(cache).map_or(0, Iterator::count)
}

fn a_component_runs_with_arguments_environment_and_input(caller: &Caller) {
    let guest = needs!(guest(caller));
    let boxed = run_with(caller, &["-i", "--env", "A=b c"], &[&guest, "hello", "é", "'"], "one\ntwo").fine();
    assert_eq!(boxed.stdout, "[\"é\", \"'\"] Ok(\"b c\") \"one\\ntwo\"\n");
    assert_eq!(boxed.stderr, "and to the other\n");
    // More than any buffer on the way holds.
    let long = "x".repeat(3 << 20);
    let boxed = run_with(caller, &["-i"], &[&guest, "hello"], &long).fine();
    assert!(boxed.stdout.len() > 3 << 20, "{}", boxed.stdout.len());
}

fn exit_codes_pass_through_and_a_panic_is_a_signal(caller: &Caller) {
    let guest = needs!(guest(caller));
    // WASI 0.2 lets a program say no more than whether it failed, and later versions which code it ends with.
    assert_eq!(run(caller, &[&guest, "exit", "0"]).fine().stdout, "");
    let code = run(caller, &[&guest, "exit", "7"]).receipt.exit_code;
    assert!(code == 7 || code == 1, "{code}");
    assert_eq!(run(caller, &[&guest, "fail"]).receipt.exit_code, 1);
    let boxed = run(caller, &[&guest, "panic"]);
    assert_eq!(boxed.receipt.exit_code, 128 + 6, "{}", boxed.stderr);
    assert!(boxed.stderr.contains("on purpose") && boxed.stderr.contains("the guest was ended"));
}

fn files_go_in_are_worked_with_and_changes_stay_in_the_box(caller: &Caller) {
    let guest = needs!(guest(caller));
    let project = caller.directory("project");
    caller.directory("project/sub");
    caller.file("project/a.txt", "one");
    caller.file("project/sub/b.txt", "two");
    let given = format!("{}:cow", project.display());
    let said = run_with(caller, &["--workspace", &given], &[&guest, "files"], "").fine().stdout;
    let lines = [
        "Ok(\"one\") Ok(\"two\")",
        "01xy456789 10",
        "Ok(\"01xy\")",
        "Ok((true, 0)) Ok((false, 4)) Err(NotFound)",
        // ENOTEMPTY
        "Err(Some(55))",
        "200000",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
    assert!(!project.join("made").exists() && !project.join("kept").exists());
}

fn a_directory_is_walked_whole_also_while_it_is_emptied(caller: &Caller) {
    let guest = needs!(guest(caller));
    assert_eq!(run(caller, &[&guest, "walk"]).fine().stdout, "1001\n[\"er\"]\nfalse\n");
}

fn nothing_of_the_host_is_seen_and_the_boxs_own_directories_stay(caller: &Caller) {
    let guest = needs!(guest(caller));
    let said = run(caller, &[&guest, "outside"]).fine().stdout;
    let root = "[\"home\", \"tmp\", \"workspace\"]";
    assert_eq!(said, format!("{}{root}\ntrue\n", "true\n".repeat(6)));
}

fn files_are_held_to_the_limit_of_the_policy(caller: &Caller) {
    let guest = needs!(guest(caller));
    let said = run_with(caller, &["--disk", "8MiB"], &[&guest, "full"], "").fine().stdout;
    let lines: Vec<&str> = said.lines().collect();
    // ENOSPC, or what Rust's C library makes of any stream that fails.
    assert!(lines[0].contains("Some(51)") || lines[0].contains("Some(29)"), "{said}");
    assert_eq!(lines[1], "Ok(())", "{said}");
    let megabytes: u64 = lines[0].split(' ').next().unwrap().parse().unwrap();
    assert!((4..=8).contains(&megabytes), "{said}");
}

fn output_over_the_limit_ends_the_box(caller: &Caller) {
    let guest = needs!(guest(caller));
    // A gigabyte, if nobody stopped it.
    let words = ["run", "--tier", "wasm", "--", &guest, "output"];
    let ended = caller.blastbox(words).env("XDG_STATE_HOME", &state(caller)).end();
    assert_eq!(ended.out.len(), 16 << 20);
    assert!(ended.err.contains("too much output"), "{}", ended.err);
}

fn a_component_that_never_ends_or_sleeps_for_ever_is_ended(caller: &Caller) {
    let guest = needs!(guest(caller));
    for what in ["endless", "sleep"] {
        let words = ["run", "--json", "--tier", "wasm", "--timeout", "2s", "--", &guest, what];
        let boxed = caller.blastbox(words).env("XDG_STATE_HOME", &state(caller)).end().boxed();
        assert_eq!(boxed.outcome(), "timed_out", "{what}");
    }
}

fn too_much_memory_and_too_deep_a_stack_end_the_component_alone(caller: &Caller) {
    let guest = needs!(guest(caller));
    let boxed = run_with(caller, &["--memory", "256MiB"], &[&guest, "memory"], "");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 128 + 6), "{}", boxed.stderr);
    assert!(boxed.stderr.contains("refused memory"), "{}", boxed.stderr);
    assert_eq!(boxed.receipt.usage.oom_kills, 0);
    let boxed = run(caller, &[&guest, "stack"]);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 128 + 11), "{}", boxed.stderr);
}

fn open_files_and_handles_are_counted_and_what_is_closed_makes_room(caller: &Caller) {
    let guest = needs!(guest(caller));
    let said = run(caller, &[&guest, "handles"]).fine().stdout;
    let lines: Vec<&str> = said.lines().collect();
    let held: u32 = lines[0].split(' ').next().unwrap().parse().unwrap();
    assert!((100..=4096).contains(&held), "{said}");
    assert_eq!(lines[1..], ["Ok(())", "slept"], "{said}");
}

const DETERMINISTIC: &str = "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n[kernel]\ntier = \"wasm\"\ndeterministic = true\n";

fn a_deterministic_run_is_the_same_again_to_the_last_byte(caller: &Caller) {
    let guest = needs!(guest(caller));
    let policy = caller.file("policy.toml", DETERMINISTIC);
    let words = ["run", "--json", "--policy", policy.to_str().unwrap(), "--", &guest, "chance"];
    let run_it = || caller.blastbox(words).env("XDG_STATE_HOME", &state(caller)).end().boxed().fine().stdout;
    let first = run_it();
    assert!(first.contains("1735689600"), "{first}");
    assert_eq!(run_it(), first);
    // Elsewhere the same program draws other numbers.
    let drawn = || run(caller, &[&guest, "chance"]).fine().stdout.lines().next().unwrap().to_owned();
    assert_ne!(drawn(), drawn());
}

fn work_is_counted_and_cut_off_at_the_same_byte(caller: &Caller) {
    let guest = needs!(guest(caller));
    let fuel = |units: &str| run_with(caller, &["--fuel", units], &[&guest, "output"], "");
    let (first, second) = (fuel("5000000"), fuel("5000000"));
    assert_eq!((first.outcome(), first.receipt.exit_code), ("fuel_spent", 152), "{}", first.stderr);
    // Each byte of it is a unit at least.
    assert!((1..=5_000_000).contains(&first.stdout.len()), "{}", first.stdout.len());
    assert_eq!(first.stdout, second.stdout);
    assert!(fuel("2000000").stdout.len() < first.stdout.len());
}

fn there_are_no_sockets(caller: &Caller) {
    let guest = needs!(guest(caller));
    assert_eq!(run(caller, &[&guest, "sockets"]).fine().stdout, "true\n".repeat(4));
}

/// Runs a component that calls, with these options. What it heard lies in the file.
fn call(caller: &Caller, options: &[&str], tool: Option<&str>, input: &str) -> (Boxed, String) {
    let brought = component(caller, "calls", &calling(tool, input));
    let heard = caller.place().join("heard");
    std::fs::remove_file(&heard).ok();
    let say = format!("say=cat > {}; echo null", heard.display());
    let options = [options, &["--tool", &say]].concat();
    let boxed = run_with(caller, &options, &[&brought], "");
    (boxed, std::fs::read_to_string(heard).unwrap_or_default())
}

fn used(boxed: &Boxed) -> Vec<(&str, u64, u64)> {
    boxed.receipt.tools.iter().map(|used| (used.tool.as_str(), used.calls, used.failed)).collect()
}

fn a_component_calls_functions_of_the_caller_and_is_told_why_one_gives_nothing(caller: &Caller) {
    needs!(shelf(caller));
    let (boxed, heard) = call(caller, &["--tool", "same=cat"], Some("same"), r#"{"a":[1,"é",null]}"#);
    assert_eq!(heard, r#"{"a":[1,"é",null]}"#, "{}", boxed.stderr);
    assert_eq!(used(&boxed.fine()), [("same", 1, 0), ("say", 1, 0)]);
    let too_long = " ".repeat(60 * 1024 + 1);
    for (tool, input, why) in [
        ("other", "1", "there is no such tool"),
        ("", "1", "there is no such tool"),
        // Requests have a function of their own.
        (":http", "https://example.com\n", "there is no such tool"),
        (&"x".repeat(100), "1", "there is no such tool"),
        ("same", &too_long, "too_large"),
        ("same", "{", "not JSON"),
    ] {
        let (boxed, heard) = call(caller, &["--tool", "same=cat"], Some(tool), input);
        assert_eq!(boxed.receipt.exit_code, 1, "{tool}: {}", boxed.stderr);
        assert!(heard.contains(why), "{tool}: {heard}");
        assert_eq!(used(&boxed), [("say", 1, 0)], "{tool}: nothing of it reached the caller");
    }
    let (boxed, heard) = call(caller, &["--tool", "no=exit 3"], Some("no"), "1");
    assert!(boxed.receipt.exit_code == 1 && heard.contains("exit status: 3"), "{heard} {}", boxed.stderr);
    // What is said to a function is work.
    let said = format!("\"{}\"", "x".repeat(50_000));
    let (boxed, _) = call(caller, &["--tool", "same=cat", "--fuel", "60000"], Some("same"), &said);
    assert_eq!(boxed.outcome(), "fuel_spent", "{}", boxed.stderr);
    // Where nothing is offered, nobody is asked.
    let brought = component(caller, "calls", &calling(Some("same"), "1"));
    let boxed = run(caller, &[&brought]);
    assert_eq!((boxed.receipt.exit_code, used(&boxed)), (1, Vec::new()), "{}", boxed.stderr);
}

fn a_component_has_requests_made_and_hears_what_the_gateway_refuses(caller: &Caller) {
    needs!(shelf(caller));
    let request = |host: &str| format!("https://{host}\nGET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
    let (boxed, heard) = call(caller, &[], None, &request("example.com"));
    assert_eq!(boxed.receipt.exit_code, 1, "{}", boxed.stderr);
    assert!(heard.contains("no-network"), "{heard}");
    assert_eq!(used(&boxed), [("say", 1, 0)]);
}

fn a_component_is_compiled_once(caller: &Caller) {
    let guest = needs!(guest(caller));
    for _ in 0..2 {
        run(caller, &[&guest, "exit", "0"]).fine();
    }
    if caller.is_root() {
        // Root's lie in the state directory of the host, whatever the environment says.
        return caller.skip(
            "root's components lie in the state directory of the host, with everybody's who ran one before",
        );
    }
    assert_eq!(compiled(caller), 1, "the same bytes are compiled once");
}

fn components_that_cannot_be_guests_are_refused_by_name_and_leave_nothing(caller: &Caller) {
    needs!(shelf(caller));
    let environment = "wasi:cli/environment@0.2.0";
    let cases = [
        ("library", passing(environment, "some:tool/thing"), "wasm_no_run"),
        ("no-function", passing(environment, "wasi:cli/run@0.2.0"), "wasm_no_run"),
        ("newer", passing("wasi:cli/environment@0.3.0", "wasi:cli/run@0.3.0"), "wasm_component_newer"),
        ("later", passing(environment, "wasi:cli/run@1.0.0"), "wasm_component_newer"),
        ("format", b"\0asm\x20\0\x01\0junk".to_vec(), "wasm_component_newer"),
        ("http", importing("wasi:http/outgoing-handler@0.2.0", &["handle"]), "wasm_import_unknown"),
        ("other", importing("some:host/thing@1.0.0", &["work"]), "wasm_import_unknown"),
        ("broken", b"\0asm\x0d\0\x01\0\x07\x7fgarbage".to_vec(), "wasm_invalid"),
    ];
    for (name, bytes, why) in cases {
        let path = component(caller, name, &bytes);
        let words = ["run", "--tier", "wasm", "--", &path];
        let ended = caller.blastbox(words).env("XDG_STATE_HOME", &state(caller)).end();
        assert_eq!(ended.code, 125, "{name}: {}", ended.err);
        assert!(ended.err.contains(why), "{name}: {}", ended.err);
        if !caller.is_root() {
            assert_eq!(compiled(caller), 0, "{name}");
        }
    }
}

/// The programs once more, with these of the tier.
fn own_programs(caller: &Caller, names: &[&str]) -> PathBuf {
    let programs = caller.directory("own");
    caller.directory("own/wasm");
    let from = caller.blastbox_path();
    for name in ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-egress", "blastbox-agent"] {
        std::fs::copy(from.with_file_name(name), programs.join(name)).unwrap();
    }
    for name in names {
        std::fs::copy(from.with_file_name("wasm").join(name), programs.join("wasm").join(name)).unwrap();
    }
    programs
}

fn without_its_worker_a_component_is_refused_by_name(caller: &Caller) {
    needs!(shelf(caller));
    let programs = own_programs(caller, &["blastbox-wasm", "blastbox-wasm-compile"]);
    let run_it = |path: &str| {
        let words = ["run", "--tier", "wasm", "--", path];
        caller.program(&programs.join("blastbox"), words).env("XDG_STATE_HOME", &state(caller)).end()
    };
    let brought = component(caller, "brought", &passing("wasi:cli/environment@0.2.0", "some:tool/thing"));
    let ended = run_it(&brought);
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(
        ended.err.contains("wasm_no_component_worker") && ended.err.contains("make wasm"),
        "{}",
        ended.err
    );
    assert!(!caller.place().join("state").exists(), "nothing was made for it");
    let module = component(caller, "module", &modules::hello("a module runs\n"));
    assert_eq!(run_it(&module).text(), "a module runs\n");
    let doctor = caller.program(&programs.join("blastbox"), ["doctor"]).end();
    let said = String::from_utf8_lossy(&doctor.out).into_owned();
    assert!(said.contains("no components: blastbox-wasm-component is missing"), "{said}");
}

fn the_worker_of_modules_takes_no_component(caller: &Caller) {
    let shelf = needs!(shelf(caller));
    let at = caller.directory("shelf");
    let compile = |kind: &str, brought: &str| {
        let words = ["compile", kind, brought, at.to_str().unwrap(), "brought"];
        let ended = caller.program(&shelf.join("blastbox-wasm-compile"), words).end();
        assert_eq!(ended.code, 3, "{kind}: {}", ended.err);
        ended.err
    };
    let library = component(caller, "brought", &passing("wasi:cli/environment@0.2.0", "some:tool/thing"));
    let said = compile("module", &library);
    assert!(said.contains("wasm_component:") && said.contains("kernel.guest"), "{said}");
    assert!(compile("component", &library).contains("wasm_no_run"));
    let module = component(caller, "module", &modules::hello("no component"));
    let said = compile("component", &module);
    assert!(said.contains("wasm_invalid: ") && said.contains("it is no component"), "{said}");
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
}

/// The gaps of a box that an ordinary user makes, and the guest that it has alone.
fn alone(guest: &str) -> String {
    DETERMINISTIC.replace("deterministic = true", &format!("guest = \"{guest}\""))
}

fn a_component_on_the_shelf_runs_in_a_daemons_box_whose_policy_names_it(caller: &Caller) {
    let shelf = needs!(shelf(caller));
    let programs = own_programs(caller, &["blastbox-wasm", "blastbox-wasm-component"]);
    let own = programs.join("wasm");
    let guests = [
        ("component", "calls", calling(Some("add"), "[1,2]")),
        ("module", "hello", modules::hello("here\n")),
    ];
    for (kind, name, bytes) in guests {
        let brought = component(caller, name, &bytes);
        let words = ["compile", kind, &brought, own.to_str().unwrap(), name];
        let compiled = caller.program(&shelf.join("blastbox-wasm-compile"), words).end();
        assert_eq!(compiled.code, 0, "{}", compiled.err);
    }
    let doctor = caller.program(&programs.join("blastbox"), ["doctor"]).end().text();
    assert!(doctor.contains("components on the shelf (kernel.guest): calls"), "{doctor}");

    let daemon = Served::start_program(caller, &programs.join("blastbox"), &[]);
    let create = |policy: &str| {
        let policy = caller.file("policy.toml", policy);
        daemon.ask(["create", "--policy", policy.to_str().unwrap()])
    };
    let exec = |id: &str, guest: &str| daemon.blastbox(["exec", id, "--", guest]).end();
    // Beside others it does not run, and whoever asks for it is told how it does.
    let beside = create(&alone(""));
    assert_eq!(exec(&beside, "hello").text(), "here\n");
    let told = exec(&beside, "calls");
    assert_eq!(told.code, 126, "{}", told.err);
    assert!(told.err.contains("guest = \"calls\" under [kernel]"), "{}", told.err);
    // A module may be alone, too.
    let module = create(&alone("hello"));
    assert_eq!(exec(&module, "hello").text(), "here\n");
    assert_eq!(exec(&module, "calls").code, 127);

    let id = create(&alone("calls"));
    assert_eq!(exec(&id, "hello").code, 127);
    let execs = format!("/v1/boxes/{id}/execs");
    // Each time anew, as the guests of every box.
    for sum in 0..2 {
        let new = json!({ "command": ["calls"], "tools": ["add", "say"] });
        let (status, begun) = daemon.request("POST", &execs, &new);
        assert_eq!(status, 201, "{begun}");
        let calls = format!("{execs}/{}/calls", begun["exec"]);
        for (call, tool, input, answer) in
            [(1, "add", json!([1, 2]), json!({ "sum": sum })), (2, "say", json!({ "sum": sum }), Value::Null)]
        {
            let (status, open) = daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null);
            let asked = json!({ "calls": [{ "call": call, "tool": tool, "input": input }] });
            assert_eq!((status, &open), (200, &asked));
            let answered = json!({ "result": answer });
            assert_eq!(daemon.request("POST", &format!("{calls}/{call}"), &answered).0, 204);
        }
        assert_eq!(daemon.request("GET", &format!("{calls}?wait=60"), &Value::Null).0, 409);
    }
    let (_, receipt) = daemon.request("DELETE", &format!("/v1/boxes/{id}"), &Value::Null);
    let twice = |tool: &str| json!({ "tool": tool, "calls": 2, "failed": 0 });
    assert_eq!(receipt["tools"], json!([twice("add"), twice("say")]));

    let unknown = caller.file("policy.toml", alone("other"));
    let refused = daemon.blastbox(["create", "--policy", unknown.to_str().unwrap()]).end();
    assert_eq!(refused.code, 125, "{}", refused.err);
    assert!(refused.err.contains("none of that name lies on the shelf"), "{}", refused.err);
    daemon.stop();
}
