//! How a run ends, by which name and with which exit code; what goes in and what comes out.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use blastbox_tests::{Caller, Terminal, both_ways, processes_naming, wait_until};
use rustix::process::Signal;

both_ways!(
    the_exit_code_of_the_program_is_blastboxs_own,
    a_signal_is_128_and_its_number,
    a_command_that_is_not_there_is_127,
    a_command_that_cannot_be_executed_is_126,
    a_refusal_is_125_with_its_reason_and_its_fix,
    a_gap_that_is_accepted_by_name_is_in_the_receipt,
    a_mistake_of_the_caller_is_125_and_starts_nothing,
    the_receipt_is_the_same_in_a_file_and_in_json,
    the_receipt_says_what_held,
    a_box_whose_agent_dies_is_lost,
    blastbox_told_to_end_ends_the_box_first,
    standard_input_is_passed_on_only_when_asked,
    standard_input_of_a_megabyte_arrives_whole,
    output_and_errors_stay_apart_and_whole,
    output_that_is_no_text_arrives_byte_for_byte,
    each_language_runs_its_program_from_standard_input,
    without_quiet_one_line_says_what_happened,
    a_terminal_has_the_callers_size_and_follows_it,
    ctrl_c_reaches_the_program_and_not_blastbox,
    ctrl_d_ends_the_input_of_a_terminal,
    a_terminal_that_goes_away_ends_the_box,
    a_terminal_is_asked_for_where_there_is_none,
    explain_plan_and_doctor_answer_without_making_a_box,
    policies_can_be_checked_shown_and_named,
);

fn marker(name: &str) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("blastbox-tests-{name}-{}-{at}", std::process::id())
}

/// Waits until the payload that names `marker` runs, and says which process of the host it is.
fn payload(marker: &str, cli: u32) -> u32 {
    // The CLI names it too. A process of the box has an id in more than one namespace.
    let inside = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("NSpid:") && line.split_whitespace().count() > 2)
    };
    let find = || processes_naming(marker).into_iter().filter(|&pid| pid != cli).find(inside);
    assert!(wait_until(|| find().is_some()), "no payload came");
    find().unwrap()
}

fn the_exit_code_of_the_program_is_blastboxs_own(caller: &Caller) {
    for code in [0_u8, 1, 42, 124, 125, 137, 255] {
        let boxed = caller.sh(&[], &format!("exit {code}"));
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code, boxed.receipt.signal), ("exited", code, None));
    }
}

fn a_signal_is_128_and_its_number(caller: &Caller) {
    for signal in [1_u8, 6, 9, 11, 13, 15, 34, 64] {
        let boxed = caller.sh(&[], &format!("kill -{signal} $$"));
        assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(signal)));
        assert_eq!(boxed.receipt.exit_code, 128 + signal);
    }
    // A child of the program that dies so is the program's business.
    let boxed = caller.sh(&[], "sh -c 'kill -9 $$'; exit 3");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 3));
}

fn a_command_that_is_not_there_is_127(caller: &Caller) {
    for command in ["no-such-command", "/no/such/command", "./no-such-command", "../../../../no-such-command"]
    {
        let boxed = caller.run(&[], &[command]);
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("not_started", 127), "{command}");
        let reason = boxed.receipt.reason.unwrap();
        assert_eq!((reason.code.as_str(), reason.fix.is_some()), ("not_found", true));
    }
}

fn a_command_that_cannot_be_executed_is_126(caller: &Caller) {
    let directory = caller.directory("project");
    for (name, text, mode) in [
        ("plain", "echo hi\n".as_bytes(), 0o644),
        ("garbage", b"\x01\x02\x03\x04garbage", 0o755),
        ("lost", b"#!/no/such/interpreter\n", 0o755),
        ("arm", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0\x01\0\0\0", 0o755),
        ("script", b"#!/bin/sh\nexit 5\n", 0o755),
    ] {
        fs::write(directory.join(name), text).unwrap();
        fs::set_permissions(directory.join(name), fs::Permissions::from_mode(mode)).unwrap();
        caller.own(&directory.join(name));
    }
    let workspace = directory.to_str().unwrap();
    for command in ["./plain", "./garbage", "./lost", "./arm", "/etc/passwd", "/usr", "/dev/null"] {
        let boxed = caller.run(&["--workspace", workspace], &[command]);
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("not_started", 126), "{command}");
        assert_eq!(boxed.receipt.reason.unwrap().code, "not_executable");
    }
    let boxed = caller.run(&["--workspace", workspace], &["./script"]);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 5), "the neighbour runs");
}

fn a_refusal_is_125_with_its_reason_and_its_fix(caller: &Caller) {
    for (options, code) in [
        (["--profile", "strict"], "gap_not_accepted"),
        (["--threat", "critical"], "tier_unavailable"),
        (["--tier", "microvm"], "tier_unavailable"),
    ] {
        let boxed = caller.run(&options, &["true"]);
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("refused", 125), "{options:?}");
        let reason = boxed.receipt.reason.unwrap();
        assert_eq!(reason.code, code, "{options:?}");
        assert!(reason.fix.is_some() && boxed.receipt.box_id.is_none() && boxed.receipt.tier.is_none());
    }
}

fn a_gap_that_is_accepted_by_name_is_in_the_receipt(caller: &Caller) {
    let all = [
        "shared-kernel",
        "host-image",
        "shared-uid",
        "no-memory-limit",
        "no-cpu-limit",
        "no-pids-limit",
        "swap-unlimited",
    ];
    let options: Vec<&str> =
        ["--profile", "strict"].into_iter().chain(all.iter().flat_map(|gap| ["--accept", gap])).collect();
    let boxed = caller.run(&options, &["true"]).fine();
    let named: Vec<&str> = boxed.receipt.gaps.iter().map(|gap| gap.code.as_str()).collect();
    assert!(named.contains(&"shared-kernel") && named.contains(&"host-image"), "{named:?}");
    assert_eq!(named.contains(&"shared-uid"), !caller.is_root(), "only where it is so: {named:?}");
    assert_eq!(boxed.receipt.host.privileged, caller.is_root());
}

fn a_mistake_of_the_caller_is_125_and_starts_nothing(caller: &Caller) {
    let policy = caller.file("wrong.toml", "threat = \"high\"\n[kernel]\nmemroy = \"1MiB\"\n");
    let policy = policy.to_str().unwrap();
    for words in [
        &["run"][..],
        &["run", "--memory", "lots", "--", "true"],
        &["run", "--memory", "0", "--", "true"],
        &["run", "--policy", policy, "--", "true"],
        &["run", "--policy", "/no/such/policy.toml", "--", "true"],
        &["run", "--workspace", "/no/such/directory", "--", "true"],
        &["run", "--workspace", policy, "--", "true"],
        &["run", "--image", "/no/such/image", "--", "true"],
        &["run", "--lang", "cobol"],
        &["run", "--accept", "everything", "--", "true"],
        &["run", "--receipt", "/no/such/directory/receipt", "--", "true"],
        &["run", "--no-such-option", "--", "true"],
        &["walk"],
    ] {
        let ended = caller.blastbox(words).end();
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{words:?}: {}", ended.err);
        assert!(ended.err.starts_with("error: "), "{words:?}: {}", ended.err);
    }
    let ended = caller.blastbox(["run", "--policy", policy, "--", "true"]).end();
    assert!(ended.err.contains("memory") && ended.err.contains('3'), "line and suggestion: {}", ended.err);
}

fn the_receipt_is_the_same_in_a_file_and_in_json(caller: &Caller) {
    let file = caller.place().join("receipt.json");
    let boxed = caller.run(&["--receipt", file.to_str().unwrap()], &["sh", "-c", "echo out; exit 9"]);
    let written: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written, serde_json::to_value(&boxed.receipt).unwrap());
    assert_eq!((written["outcome"].as_str(), written["exit_code"].as_u64()), (Some("exited"), Some(9)));
}

fn the_receipt_says_what_held(caller: &Caller) {
    let receipt = caller.run(&["--pids", "50"], &["sh", "-c", "echo four; echo five! >&2"]).fine().receipt;
    assert_eq!(receipt.boundaries.len(), 5);
    assert!(receipt.effective() >= 3, "{:?}", receipt.boundaries);
    assert_eq!(receipt.limits.map(|limits| limits.pids), Some(50));
    assert_eq!((receipt.output.stdout_bytes, receipt.output.stderr_bytes), (5, 6));
    assert_eq!(receipt.command, ["sh", "-c", "echo four; echo five! >&2"]);
    assert!(receipt.box_id.is_some() && receipt.reason.is_none());
    assert!(receipt.policy.is_some_and(|name| name.to_string().starts_with("sha256:")));
    assert!(receipt.durations.run_micros > 0);
    // A gap counts against its boundary, and stands in the list of all of them.
    for line in &receipt.boundaries {
        for gap in &line.gaps {
            assert!(receipt.gaps.iter().any(|other| other.code == *gap), "{gap:?}");
        }
    }
}

fn a_box_whose_agent_dies_is_lost(caller: &Caller) {
    let marker = marker("lost");
    let held = caller.blastbox(["run", "--json", "--", "sh", "-c", "sleep 60; exit 0", &marker]).start();
    let status = fs::read_to_string(format!("/proc/{}/status", payload(&marker, held.id()))).unwrap();
    let agent: i32 = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap().parse().unwrap();
    let agent = rustix::process::Pid::from_raw(agent).unwrap();
    rustix::process::kill_process(agent, Signal::KILL).unwrap();
    let boxed = held.end().boxed();
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("lost", 125));
    assert_eq!(boxed.receipt.reason.unwrap().code, "agent_gone");
    assert!(processes_naming(&marker).is_empty());
}

fn blastbox_told_to_end_ends_the_box_first(caller: &Caller) {
    for (signal, number) in [(Signal::TERM, 15_u8), (Signal::INT, 2), (Signal::HUP, 1)] {
        let marker = marker("told");
        let held = caller
            .blastbox(["run", "--json", "--", "sh", "-c", "trap '' TERM INT HUP; sleep 60; exit 0", &marker])
            .start();
        payload(&marker, held.id());
        held.signal(signal);
        let boxed = held.end().boxed();
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 128 + number));
        assert_eq!(boxed.receipt.reason.unwrap().code, "interrupted");
        assert!(processes_naming(&marker).is_empty(), "nothing is left when the run is over");
    }
}

fn standard_input_is_passed_on_only_when_asked(caller: &Caller) {
    let ended = caller.blastbox(["run", "-q", "-i", "--", "cat"]).input("hello").end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "hello"));
    let ended = caller.blastbox(["run", "-q", "--", "cat"]).input("hello").end();
    assert_eq!((ended.code, ended.text().as_str()), (0, ""));
    // A program that does not read it ends all the same.
    let ended = caller.blastbox(["run", "-q", "-i", "--", "true"]).input("x".repeat(1 << 20)).end();
    assert_eq!((ended.code, ended.text().as_str()), (0, ""));
}

fn standard_input_of_a_megabyte_arrives_whole(caller: &Caller) {
    let bytes: Vec<u8> = (0..1_u32 << 20).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let ended = caller.blastbox(["run", "-q", "-i", "--", "cat"]).input(&bytes).end();
    assert_eq!(ended.code, 0);
    assert!(ended.out == bytes, "{} bytes came back, or others", ended.out.len());
}

fn output_and_errors_stay_apart_and_whole(caller: &Caller) {
    let script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let ended = caller.blastbox(["run", "-q", "--", "sh", "-c", script]).end();
    let expected = |word: &str| (0..500).map(|number| format!("{word} {number}\n")).collect::<String>();
    assert_eq!(ended.text(), expected("out"));
    assert_eq!(ended.err, expected("err"));
}

fn output_that_is_no_text_arrives_byte_for_byte(caller: &Caller) {
    let ended = caller.blastbox(["run", "-q", "--", "printf", r"\377\000\033[2J\n"]).end();
    assert_eq!(ended.out, b"\xff\0\x1b[2J\n");
    let ended = caller.blastbox(["run", "--json", "--", "printf", r"\377\000"]).end();
    let document: serde_json::Value = serde_json::from_slice(&ended.out).unwrap();
    assert_eq!(document["stdout"], serde_json::json!({"base64": "/wA=", "text": null}));
}

fn each_language_runs_its_program_from_standard_input(caller: &Caller) {
    for (language, program, needs) in [
        ("sh", "echo $((6 * 7)) $1", "/bin/sh"),
        ("python", "import sys; print(6 * 7, sys.argv[1])", "/usr/bin/python3"),
        ("node", "console.log(6 * 7, process.argv[2])", "/usr/bin/node"),
    ] {
        let ended = caller.blastbox(["run", "-q", "--lang", language, "--", "word"]).input(program).end();
        if fs::metadata(needs).is_ok() {
            assert_eq!((ended.code, ended.text().as_str()), (0, "42 word\n"), "{language}: {}", ended.err);
        } else {
            assert_eq!(ended.code, 125, "{language}: {}", ended.err);
        }
    }
}

fn without_quiet_one_line_says_what_happened(caller: &Caller) {
    let ended = caller.blastbox(["run", "--", "true"]).end();
    assert!(ended.err.starts_with("blastbox: exited 0") && ended.err.lines().count() == 1, "{}", ended.err);
    let ended = caller.blastbox(["run", "-q", "--", "true"]).end();
    assert_eq!(ended.err, "");
    let ended = caller.blastbox(["run", "-q", "--", "no-such-command"]).end();
    assert!(ended.err.starts_with("error: "), "an error is said even so: {}", ended.err);
}

/// A shell on a terminal; `None` where this host has no `setsid`, which is then reported.
fn shell(caller: &Caller, rows: u16, columns: u16, words: &[&str]) -> Option<Terminal> {
    let all: Vec<&str> = ["run", "-t", "-q", "--"].iter().chain(words).copied().collect();
    let terminal = Terminal::start(caller, rows, columns, &all);
    if terminal.is_none() {
        caller.skip("no /usr/bin/setsid (apt-get install util-linux)");
    }
    terminal
}

fn a_terminal_has_the_callers_size_and_follows_it(caller: &Caller) {
    // Blocked from the start, so that the signal is there whenever it is waited for.
    let code = r#"
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
print(*(os.isatty(number) for number in range(3)), os.ttyname(0), os.get_terminal_size(0).lines, os.get_terminal_size(0).columns)
sys.stdin.readline()
signal.sigwait([signal.SIGWINCH])
print("now", os.get_terminal_size(0).lines, os.get_terminal_size(0).columns)
"#;
    let Some(mut terminal) = shell(caller, 31, 97, &["python3", "-c", code]) else { return };
    terminal.expect("True True True /dev/pts/0 31 97\r\n");
    terminal.resize(44, 111);
    terminal.type_in("\n");
    terminal.expect("now 44 111\r\n");
    assert_eq!(terminal.end().0, 0);
}

fn ctrl_c_reaches_the_program_and_not_blastbox(caller: &Caller) {
    let script = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done";
    let Some(mut terminal) = shell(caller, 24, 80, &["sh", "-c", script]) else { return };
    terminal.expect("ready\r\n");
    terminal.type_in("\u{3}");
    terminal.expect("interrupted\r\n");
    assert_eq!(terminal.end().0, 7, "the program decided how to end");
    // A program that does not care dies of it, as outside.
    let Some(mut terminal) = shell(caller, 24, 80, &["sh", "-c", "echo ready; exec sleep 60"]) else {
        return;
    };
    terminal.expect("ready\r\n");
    terminal.type_in("\u{3}");
    assert_eq!(terminal.end().0, 128 + 2);
}

fn ctrl_d_ends_the_input_of_a_terminal(caller: &Caller) {
    let Some(mut terminal) = shell(caller, 24, 80, &["cat"]) else { return };
    terminal.type_in("echoed\n");
    terminal.expect("echoed\r\nechoed\r\n");
    terminal.type_in("\u{4}");
    assert_eq!(terminal.end().0, 0);
}

fn a_terminal_that_goes_away_ends_the_box(caller: &Caller) {
    let marker = marker("window");
    let script = "trap '' HUP TERM INT; echo ready; sleep 60; exit 0";
    let Some(mut terminal) = shell(caller, 24, 80, &["sh", "-c", script, &marker]) else { return };
    terminal.expect("ready\r\n");
    assert!(!processes_naming(&marker).is_empty());
    assert_eq!(terminal.close(), 128 + 1);
    assert!(processes_naming(&marker).is_empty(), "nothing is left when the run is over");
}

fn a_terminal_is_asked_for_where_there_is_none(caller: &Caller) {
    let ended = caller.blastbox(["run", "-t", "--", "true"]).end();
    assert_eq!((ended.code, ended.text().as_str()), (125, ""));
    assert!(ended.err.contains("terminal"), "{}", ended.err);
}

fn explain_plan_and_doctor_answer_without_making_a_box(caller: &Caller) {
    for words in [&["explain", "--json"][..], &["plan", "--json"], &["doctor", "--json"]] {
        let ended = caller.blastbox(words).end();
        let read = serde_json::from_slice::<serde_json::Value>(&ended.out);
        assert!(read.is_ok(), "{words:?}: {} {}", ended.text(), ended.err);
    }
    let ended = caller.blastbox(["explain"]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    for boundary in ["kernel", "files", "network", "credentials", "lifecycle"] {
        assert!(ended.text().contains(boundary), "{}", ended.text());
    }
    assert_eq!(ended.text().contains("shared-uid"), !caller.is_root());
}

fn policies_can_be_checked_shown_and_named(caller: &Caller) {
    let shown = caller.blastbox(["policy", "show", "--profile", "default"]).end();
    assert_eq!(shown.code, 0, "{}", shown.err);
    let file = caller.file("policy.toml", shown.text());
    let file = file.to_str().unwrap();
    assert_eq!(caller.blastbox(["policy", "check", file]).end().code, 0);
    let digest = caller.blastbox(["policy", "digest", file]).end().text();
    let receipt = caller.run(&["--policy", file], &["true"]).fine().receipt;
    assert_eq!(
        Some(digest.trim()),
        receipt.policy.map(|name| name.to_string()).as_deref(),
        "the name in the receipt"
    );
    let wrong = caller.file("wrong.toml", "threat = \"mild\"\n");
    assert_eq!(caller.blastbox(["policy", "check", wrong.to_str().unwrap()]).end().code, 125);
}
