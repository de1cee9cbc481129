//! Metered commands of the tier `wasm`: work that is counted and not timed, with the built worker and real guests.
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

use blastbox_tests::{Boxed, Caller, Served, both_ways};
use serde_json::{Value, json};

both_ways!(
    a_command_that_does_too_much_ends_by_its_work_and_not_by_a_clock,
    what_a_command_did_is_told_and_the_same_again_where_runs_are,
    a_module_is_metered_from_its_first_instruction_on,
    what_is_moved_for_a_program_is_its_work,
    a_guest_without_metered_code_says_so_and_the_others_run,
    a_python_data_that_counts_its_work_is_refused_and_nobody_is_told_to_make_one,
    in_a_box_that_stays_each_command_has_its_own_work_and_the_ledger_has_it,
    a_run_of_the_api_tells_what_its_command_did_and_a_box_that_stays_which_limit_it_met,
    no_fuel_is_refused_and_never_taken_for_no_limit,
    other_tiers_refuse_it_by_name,
);

const LITTLE: &str = "let sum = 0; for (let i = 0; i < 1000; i++) sum += i; console.log(sum)";
const ENDLESS: &str = "for (let i = 0; ; i++) if (i % 1000 == 0) console.log(i)";
/// More than QuickJS needs for a little program, and little to wait for.
const FUEL: u64 = 20_000_000;

/// Whether code that counts its work lies there.
fn has_metered(caller: &Caller, guest: &str) -> bool {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    let found =
        shelf.join("blastbox-wasm").is_file() && shelf.join(format!("{guest}.metered.guest")).is_file();
    if !found {
        caller.skip(&format!(
            "the guest {guest} is not built with metering: `make wasm` builds it where its package can be fetched"
        ));
    }
    found
}

fn js(caller: &Caller, options: &[&str], code: &str) -> Boxed {
    caller.run(&[&["--tier", "wasm"], options].concat(), &["js", "-e", code])
}

/// A policy under which runs are the same again, and metered.
fn repeatable(caller: &Caller, fuel: u64) -> String {
    let policy = format!(
        "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n\
         [kernel]\ntier = \"wasm\"\ndeterministic = true\nfuel = {fuel}\n"
    );
    caller.file(&format!("fuel-{fuel}.toml"), &policy).to_str().unwrap().to_owned()
}

fn a_command_that_does_too_much_ends_by_its_work_and_not_by_a_clock(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let fuel = FUEL.to_string();
    let boxed = js(caller, &["--fuel", &fuel], ENDLESS);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("fuel_spent", 152), "{}", boxed.stderr);
    assert_eq!(boxed.receipt.usage.command_fuel, Some(FUEL));
    assert_eq!(boxed.receipt.limits.unwrap().fuel, Some(FUEL));
    assert!(boxed.receipt.limits_hit.iter().any(|limit| limit.as_str() == "fuel"));
    assert!(boxed.stdout.starts_with("0\n1000\n"), "what it printed before stays: {}", boxed.stdout);
    assert!(boxed.stderr.contains("all the work that it may"), "{}", boxed.stderr);
    // A program cannot catch it.
    let boxed = js(caller, &["--fuel", &fuel], "for (;;) try { for (;;); } catch { console.log('caught') }");
    assert_eq!((boxed.outcome(), boxed.stdout.as_str()), ("fuel_spent", ""));
    // Time is a limit of its own: one who sleeps does no work.
    let boxed = js(caller, &["--fuel", &fuel, "--timeout", "1s"], "setTimeout(() => {}, 1e6)");
    assert_eq!(boxed.outcome(), "timed_out");
}

fn what_a_command_did_is_told_and_the_same_again_where_runs_are(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let policy = repeatable(caller, FUEL);
    let run = |code: &str| caller.run(&["--policy", &policy], &["js", "-e", code]);
    let first = run(LITTLE);
    assert_eq!((first.outcome(), first.stdout.as_str()), ("exited", "499500\n"), "{}", first.stderr);
    let used = first.receipt.usage.command_fuel.unwrap();
    assert!(0 < used && used < FUEL, "{used}");
    assert_eq!(run(LITTLE).receipt.usage.command_fuel, Some(used));
    let more = run(&LITTLE.replace("1000", "2000")).receipt.usage.command_fuel.unwrap();
    assert!(more > used, "{more} {used}");
    // One that is cut off is cut off at the same place.
    let cut = run(ENDLESS);
    assert_eq!(cut.outcome(), "fuel_spent");
    assert_eq!(run(ENDLESS).stdout, cut.stdout);
    // A little more than it needs is enough, and half of it is not. (The exact unit is not promised: fuel is looked at where loops and
    // functions begin.)
    let exact = |fuel: u64| {
        let policy = repeatable(caller, fuel);
        caller.run(&["--policy", &policy], &["js", "-e", LITTLE]).outcome().to_owned()
    };
    assert_eq!(exact(used + 1), "exited");
    assert_eq!(exact(used / 2), "fuel_spent");
    // Where nobody counts, nobody says a number.
    assert_eq!(js(caller, &[], LITTLE).fine().receipt.usage.command_fuel, None);
}

/// A module of the caller's, with a state directory of this test to keep its code in.
fn run_module(caller: &Caller, options: &[&str], path: &str) -> Boxed {
    let words = [&["run", "--json", "--tier", "wasm"], options, &["--", path]].concat();
    let kept = caller.place().join("kept");
    caller.blastbox(words).env("XDG_STATE_HOME", kept.to_str().unwrap()).end().boxed()
}

fn a_module_is_metered_from_its_first_instruction_on(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    for (name, bytes) in [("endless", modules::endless()), ("early", modules::early())] {
        let path = caller.file(&format!("{name}.wasm"), bytes);
        let boxed = run_module(caller, &["--fuel", "1000000"], path.to_str().unwrap());
        assert_eq!(boxed.outcome(), "fuel_spent", "{name}: {}", boxed.stderr);
        assert_eq!(boxed.receipt.usage.command_fuel, Some(1_000_000), "{name}");
    }
    let path = caller.file("hello.wasm", modules::hello("hello\n"));
    let path = path.to_str().unwrap();
    assert_eq!(run_module(caller, &["--fuel", "1000000"], path).fine().stdout, "hello\n");
    // The same bytes in both ways: each has code of its own.
    assert_eq!(run_module(caller, &[], path).fine().stdout, "hello\n");
}

/// A few instructions, and the worker does the rest.
fn what_is_moved_for_a_program_is_its_work(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let run = |name: &str, length: usize| {
        let path = caller.file(name, modules::hello(&"x".repeat(length)));
        run_module(caller, &["--fuel", "20000"], path.to_str().unwrap())
    };
    let boxed = run("little.wasm", 1_000).fine();
    let used = boxed.receipt.usage.command_fuel.unwrap();
    assert!((1_000..1_100).contains(&used), "{used}");
    let boxed = run("much.wasm", 50_000);
    assert_eq!(
        (boxed.outcome(), boxed.receipt.usage.command_fuel),
        ("fuel_spent", Some(20_000)),
        "{}",
        boxed.stderr
    );
}

fn a_guest_without_metered_code_says_so_and_the_others_run(caller: &Caller) {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    if !has_metered(caller, "js") {
        return;
    }
    if !shelf.join("python.guest").is_file() {
        return caller.skip("the guest python is not built");
    }
    let boxed = caller.run(&["--tier", "wasm", "--fuel", "2000000000"], &["python", "-c", "print(6 * 7)"]);
    if shelf.join("python.metered.guest").is_file() {
        let boxed = boxed.fine();
        assert_eq!(boxed.stdout, "42\n");
        assert!(boxed.receipt.usage.command_fuel.unwrap() > 0);
        let boxed = caller.run(
            &["--tier", "wasm", "--fuel", "2000000000"],
            &["python", "-c", "while True:\n  try:\n    while True: pass\n  except BaseException: pass"],
        );
        assert_eq!(boxed.outcome(), "fuel_spent", "{}", boxed.stderr);
    } else {
        assert_eq!(boxed.receipt.exit_code, 126);
        assert!(boxed.stderr.contains("METERED=all"), "{}", boxed.stderr);
    }
}

/// It is never made so, whatever `make` is told.
fn a_python_data_that_counts_its_work_is_refused_and_nobody_is_told_to_make_one(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let boxed = caller.run(&["--tier", "wasm", "--fuel", "2000000000"], &["python-data", "-c", "print(1)"]);
    assert_eq!(boxed.receipt.exit_code, 126);
    assert!(boxed.stderr.contains("take python, or leave `fuel` away"), "{}", boxed.stderr);
    assert!(!boxed.stderr.contains("make wasm"), "{}", boxed.stderr);
}

fn in_a_box_that_stays_each_command_has_its_own_work_and_the_ledger_has_it(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let daemon = Served::start(caller, &[]);
    let policy = repeatable(caller, FUEL);
    let id = daemon.ask(["create", "--policy", &policy]);
    let ended = daemon.blastbox(["exec", &id, "--", "js", "-e", "for (;;);"]).end();
    assert_eq!(ended.code, 152, "{}", ended.err);
    assert!(ended.err.contains("fuel_spent"), "{}", ended.err);
    // The next ones begin with all of it, also those whose guest was begun before they were asked for.
    for _ in 0..4 {
        assert_eq!(daemon.ask(["exec", &id, "--", "js", "-e", LITTLE]), "499500");
    }
    let whole: Value = serde_json::from_str(&daemon.ask(["inspect", &id, "--json"])).unwrap();
    let execs = whole["execs"].as_array().unwrap();
    assert_eq!(execs[0]["ended"], json!({ "how": "fuel-spent", "fuel": FUEL }), "{whole}");
    let used = execs[1]["fuel"].as_u64().unwrap();
    assert!(
        execs[1..].iter().all(|exec| exec["fuel"] == used),
        "the same work, however it was begun: {whole}"
    );
    daemon.stop();
    let ledger = caller.place().join("state/ledger").display().to_string();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &id, "--json"]).end().text();
    let records = |kind: &str| {
        let lines = shown.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|record| record["event"]["kind"] == kind).collect::<Vec<_>>()
    };
    let over = records("command_ended");
    assert_eq!(over[0]["event"]["fuel"], FUEL, "{over:?}");
    assert_eq!(over[1]["event"]["fuel"], used);
    let met = records("limit_met");
    assert_eq!(met.len(), 1, "{met:?}");
    assert_eq!(met[0]["event"]["limit"], "fuel");
}

fn a_run_of_the_api_tells_what_its_command_did_and_a_box_that_stays_which_limit_it_met(caller: &Caller) {
    if !has_metered(caller, "js") {
        return;
    }
    let daemon = Served::start(caller, &[]);
    let run = |code: &str| {
        let asked =
            json!({ "box": { "tier": "wasm", "limits": { "fuel": FUEL } }, "command": ["js", "-e", code] });
        let (status, ran) = daemon.request("POST", "/v1/run", &asked);
        assert_eq!(status, 200, "{ran}");
        ran["receipt"].clone()
    };
    let receipt = run(LITTLE);
    let used = receipt["usage"]["command_fuel"].as_u64().unwrap();
    assert!(0 < used && used < FUEL, "{receipt}");
    assert_eq!((&receipt["outcome"], &receipt["limits_hit"]), (&json!("exited"), &json!([])), "{receipt}");
    let receipt = run("for (;;);");
    assert_eq!(receipt["usage"]["command_fuel"], FUEL, "{receipt}");
    assert_eq!((&receipt["outcome"], &receipt["limits_hit"]), (&json!("fuel_spent"), &json!(["fuel"])));
    let id = daemon.ask(["create", "--tier", "wasm", "--fuel", &FUEL.to_string()]);
    for _ in 0..2 {
        assert_eq!(daemon.blastbox(["exec", &id, "--", "js", "-e", "for (;;);"]).end().code, 152);
    }
    let (_, receipt) = daemon.request("DELETE", &format!("/v1/boxes/{id}"), &Value::Null);
    assert_eq!(receipt["limits_hit"], json!(["fuel"]), "{receipt}");
    daemon.stop();
    let ledger = caller.place().join("state/ledger").display().to_string();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &id, "--json"]).end().text();
    assert_eq!(
        shown.matches("\"limit_met\"").count(),
        2,
        "once for each command, and not again at the end: {shown}"
    );
}

/// Somebody passes on what is left of a budget: at its end nothing may run, least of all without a limit.
fn no_fuel_is_refused_and_never_taken_for_no_limit(caller: &Caller) {
    let ended = caller.blastbox(["run", "--tier", "wasm", "--fuel", "0", "--", "js", "-e", LITTLE]).end();
    assert!(
        ended.code == 125 && ended.text().is_empty() && ended.err.contains("--fuel"),
        "{}: {}",
        ended.code,
        ended.err
    );
    let daemon = Served::start(caller, &[]);
    let new = json!({ "tier": "wasm", "limits": { "fuel": 0 } });
    let run = json!({ "box": new, "command": ["js", "-e", LITTLE] });
    for (path, asked) in [("/v1/boxes", &new), ("/v1/run", &run)] {
        let (status, no) = daemon.request("POST", path, asked);
        assert_eq!((status, &no["error"]["code"]), (422, &json!("bad_field")), "{no}");
        assert!(no.to_string().contains("nonzero"), "{no}");
    }
}

fn other_tiers_refuse_it_by_name(caller: &Caller) {
    let ended = caller.blastbox(["run", "--tier", "jail", "--fuel", "1000", "--", "true"]).end();
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(ended.err.contains("kernel.fuel"), "{}", ended.err);
}
