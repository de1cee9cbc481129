//! How a campaign of `blastbox escape` ends: told to, killed, or with a report that somebody can hold against its seal.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::path::Path;

use blastbox_tests::campaign::campaign;
use blastbox_tests::{Caller, Held, both_ways, census, processes_naming, wait_until};
use rustix::process::Signal;
use serde_json::Value;

both_ways!(
    a_campaign_that_is_told_to_end_leaves_nothing,
    what_a_killed_campaign_leaves_ends_or_is_released_by_the_next,
    a_report_is_sealed_and_what_was_changed_is_found_out,
);

/// A long campaign, and the names of its stages once it has some.
fn halfway(caller: &Caller, place: &Path) -> (Held, Vec<String>) {
    let words = ["escape", "--tier", "jail", "--profile", "default"];
    let classes = ["--only", "control", "--only", "lifecycle", "--only", "persistence"];
    let held = caller.blastbox(words.iter().chain(&classes)).env("TMPDIR", place.to_str().unwrap()).start();
    assert!(wait_until(|| !stages(place).is_empty()), "no attempt was begun");
    (held, stages(place))
}

fn stages(place: &Path) -> Vec<String> {
    let all = std::fs::read_dir(place).unwrap().flatten();
    all.map(|entry| entry.file_name().to_str().unwrap().to_owned()).collect()
}

/// Processes of the host that belong to a stage.
fn of_stages(stages: &[String]) -> Vec<u32> {
    stages.iter().flat_map(|name| processes_naming(name.rsplit('-').next().unwrap())).collect()
}

fn a_campaign_that_is_told_to_end_leaves_nothing(caller: &Caller) {
    for (name, signal, code) in [("t", Signal::TERM, 143), ("i", Signal::INT, 130)] {
        let place = caller.directory(name);
        let (held, begun) = halfway(caller, &place);
        let started = census::family(held.id());
        held.signal(signal);
        let ended = held.end();
        assert_eq!(ended.code, code, "{}", ended.err);
        assert_eq!(stages(&place), Vec::<String>::new());
        assert!(
            wait_until(|| of_stages(&begun).is_empty() && !started.iter().any(census::lives)),
            "{started:?}"
        );
    }
}

fn what_a_killed_campaign_leaves_ends_or_is_released_by_the_next(caller: &Caller) {
    let place = caller.directory("k");
    let (held, begun) = halfway(caller, &place);
    let started = census::family(held.id());
    held.signal(Signal::KILL);
    held.end();
    let next = ["escape", "--tier", "jail", "--profile", "default", "--only", "kernel.ptrace"];
    let ended = caller.blastbox(next).env("TMPDIR", place.to_str().unwrap()).end();
    assert!(ended.code <= 2, "{}: {}", ended.code, ended.err);
    assert_eq!(stages(&place), Vec::<String>::new());
    assert!(wait_until(|| of_stages(&begun).is_empty() && !started.iter().any(census::lives)), "{started:?}");
}

fn a_report_is_sealed_and_what_was_changed_is_found_out(caller: &Caller) {
    let state = caller.directory("state");
    let (state, ledger) = (state.to_str().unwrap(), state.join("ledger"));
    let options = ["--only", "control.lie-refused", "--state-dir", state];
    let (code, report) = campaign(caller, &options);
    let (_, second) = campaign(caller, &options);
    let seal = &report["seal"];
    assert_eq!((code, seal["key"] == second["seal"]["key"]), (0, true), "one ledger, one key: {seal}");
    let ledger = ledger.to_str().unwrap();
    assert_eq!(caller.blastbox(["audit", "verify", "--complete", ledger]).end().code, 0);
    let key = seal["key"].as_str().unwrap();
    let check = |name: &str, report: &Value, more: &[&str]| {
        let file = caller.file(name, report.to_string());
        let words = ["audit", "report", file.to_str().unwrap()];
        let ended = caller.blastbox(words.iter().chain(more)).end();
        (ended.code, ended.text())
    };
    let page = caller.file("page.html", "");
    campaign(caller, &[&options[..], &["--html", page.to_str().unwrap()]].concat());
    let kept = caller.blastbox(["audit", "report", page.to_str().unwrap(), "--ledger", ledger]).end();
    assert!(kept.code == 0 && kept.text().contains("the ledger has it"), "{}: {}", kept.code, kept.text());
    let (code, told) = check("whole", &report, &["--ledger", ledger, "--key", key]);
    assert!(code == 0 && told.contains("the ledger has it"), "{code}: {told}");
    let no = |name: &str, report: &Value, more: &[&str], why: &str| {
        let (code, told) = check(name, report, more);
        assert!(code == 1 && told.contains(why), "{name}: {code}: {told}");
    };
    let mut changed = report.clone();
    changed["rows"][0]["cells"][0]["verdict"] = Value::from("escaped");
    no("changed", &changed, &[], "changed after it was sealed");
    let mut bare = report.clone();
    bare["seal"] = Value::Null;
    no("bare", &bare, &[], "no seal");
    // The seal of another report of the same ledger, and its record in place of one's own.
    let mut swapped = report.clone();
    swapped["seal"] = second["seal"].clone();
    no("swapped", &swapped, &[], "changed after it was sealed");
    let mut moved = report.clone();
    moved["seal"]["record"] = second["seal"]["record"].clone();
    no("moved", &moved, &[], "signature");
    no("stranger", &report, &["--key", &format!("ed25519:{}", "0".repeat(64))], "another key");
    let elsewhere = caller.directory("other");
    campaign(caller, &["--only", "control.lie-refused", "--state-dir", elsewhere.to_str().unwrap()]);
    let other = elsewhere.join("ledger");
    no("elsewhere", &report, &["--ledger", other.to_str().unwrap()], "the ledger");
}
