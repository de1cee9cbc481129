//! What somebody tries in the first ten minutes works, or is answered with what to do, and what was printed is not lost in silence.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "only tests; one that cannot work must fail at once"
)]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use blastbox_tests::census::Census;
use blastbox_tests::{Caller, Ended, both_ways};
use blastbox_wire::receipt::{Outcome, Receipt};

both_ways!(
    a_full_disk_is_told_as_one_and_not_as_a_reader_that_went_away,
    a_script_beside_the_caller_is_told_how_a_box_sees_it,
    a_program_of_a_language_comes_from_a_file_where_nothing_is_piped_in,
    a_program_that_did_not_come_is_told_of,
    a_command_starts_where_it_is_told_to,
    an_address_of_the_web_in_the_place_of_a_host_is_told_what_to_write,
    what_docker_calls_otherwise_is_told_how_it_is_called_here,
    what_no_tier_of_the_host_has_is_told_with_a_fix_that_works,
    a_policy_is_read_from_a_file_or_standard_input_and_no_pipe_is_waited_for,
    a_directory_that_was_removed_is_named,
    a_state_directory_stands_for_its_ledger,
    verbs_print_json_where_they_print_for_people,
);

fn null() -> OwnedFd {
    fs::File::options().read(true).write(true).open("/dev/null").expect("open /dev/null").into()
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of the test is text").to_owned()
}

/// Runs `blastbox WORDS` without standard input: this exit code, and these words on standard error.
#[track_caller]
fn expect(caller: &Caller, words: &[&str], code: i32, says: &[&str]) -> Ended {
    let ended = caller.blastbox(words).end();
    assert_eq!(ended.code, code, "{words:?}: {}{}", ended.text(), ended.err);
    for said in says {
        assert!(ended.err.contains(said), "{words:?} does not say {said:?}:\n{}", ended.err);
    }
    ended
}

/// The same in a shell of the host's, which gives it its streams.
fn shell(caller: &Caller, script: &str) -> Ended {
    let blastbox = text(&caller.blastbox_path());
    caller.program(Path::new("/bin/sh"), ["-c", script, &blastbox]).end()
}

fn a_full_disk_is_told_as_one_and_not_as_a_reader_that_went_away(caller: &Caller) {
    let census = Census::begin(caller);
    let ended = shell(caller, "exec \"$0\" run --receipt r.json -- sh -c 'echo x; sleep 100' >/dev/full");
    assert_eq!(ended.code, 125, "{}", ended.err);
    for said in ["output was lost", "standard output", "No space left", "fix: make room"] {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
    assert!(!ended.err.contains("went away"), "{}", ended.err);
    let receipt = fs::read(caller.place().join("r.json")).expect("read the receipt");
    let receipt: Receipt = serde_json::from_slice(&receipt).expect("it holds a receipt alone");
    let reason = receipt.reason.expect("a reason");
    assert_eq!((receipt.outcome, receipt.exit_code), (Outcome::Failed, 125));
    assert_eq!(reason.code, "output_unwritable");
    fs::remove_file(caller.place().join("r.json")).expect("remove the receipt");
    for verb in [
        "run --json -- echo x",
        "policy show --profile default",
        "policy show --profile default --json",
        "explain",
        "explain --json",
        "plan",
        "escape --list",
        "run --help",
    ] {
        let ended = shell(caller, &format!("exec \"$0\" {verb} >/dev/full"));
        assert_eq!(ended.code, 125, "{verb}: {}", ended.err);
        assert!(
            ended.err.contains("cannot write to standard output: No space left"),
            "{verb}: {}",
            ended.err
        );
        // Whoever has seen enough of it is no error.
        let ended = shell(caller, &format!("(\"$0\" {verb}; echo $? >&2) | true"));
        assert!(ended.err.lines().any(|line| line == "0"), "{verb}: {}", ended.err);
    }
    census.expect_nothing("a full disk");
}

fn a_script_beside_the_caller_is_told_how_a_box_sees_it(caller: &Caller) {
    let script = caller.file("script.sh", "#!/bin/sh\necho from the script\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("make it a program");
    caller.file("job.py", "print('hello')\n");
    let census = Census::begin(caller);
    expect(
        caller,
        &["run", "--", "./script.sh"],
        127,
        &["the command was not found", "--workspace . -- ./script.sh"],
    );
    expect(caller, &["run", "--", "script.sh"], 127, &["--workspace . -- ./script.sh"]);
    let ended = expect(caller, &["run", "--workspace", ".", "--", "./script.sh"], 0, &[]);
    assert_eq!(ended.text(), "from the script\n");
    let absolute = text(&script);
    let place = text(caller.place().path());
    expect(caller, &["run", "--", &absolute], 127, &[&format!("--workspace {place} -- ./script.sh")]);
    // A command that has failed over a file of ours is told so beneath its own complaint; a box that has the directory is not.
    let hint = "job.py is in your directory, and a box sees nothing of that";
    expect(caller, &["run", "--", "cat", "job.py"], 1, &[hint]);
    assert!(!expect(caller, &["run", "-q", "--", "cat", "job.py"], 1, &[]).err.contains("hint"));
    assert!(
        !expect(caller, &["run", "--workspace", ".", "--", "cat", "nothing"], 1, &[]).err.contains("hint")
    );
    // What nobody has is not looked for in our directory.
    let missing = expect(caller, &["run", "--", "no-such-program"], 127, &["name a program of the image"]);
    assert!(!missing.err.contains("--workspace"), "{}", missing.err);
    census.expect_nothing("a script of the caller's");
}

/// What runs wherever the tests do.
const POLICY: &str = r#"threat = "high"
accept = ["shared-kernel", "host-image", "shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit", "swap-unlimited", "weak-landlock", "no-owner-map"]
"#;

fn a_program_of_a_language_comes_from_a_file_where_nothing_is_piped_in(caller: &Caller) {
    caller.file("job.sh", "echo \"job $1\"\n");
    let census = Census::begin(caller);
    let ended = expect(caller, &["run", "-q", "--lang", "sh", "job.sh", "one"], 0, &[]);
    assert_eq!(ended.text(), "job one\n");
    // Code that is piped in goes before it, and the word is an argument of that.
    let ended = caller.blastbox(["run", "-q", "--lang", "sh", "job.sh"]).input("echo \"piped $1\"\n").end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "piped job.sh\n"), "{}", ended.err);
    // A policy that is piped in leaves nothing that could be a program.
    let ended =
        caller.blastbox(["run", "-q", "--policy", "-", "--lang", "sh", "job.sh", "two"]).input(POLICY).end();
    assert_eq!((ended.code, ended.text().as_str()), (0, "job two\n"), "{}", ended.err);
    census.expect_nothing("a program in a file");
}

fn a_program_that_did_not_come_is_told_of(caller: &Caller) {
    let census = Census::begin(caller);
    let says = ["no program came", "--lang LANGUAGE FILE"];
    expect(caller, &["run", "--lang", "sh"], 0, &says);
    // Nobody types it: the word can only have meant a file.
    expect(caller, &["run", "--lang", "sh", "no-such-file"], 125, &["no-such-file"]);
    let ended = shell(caller, "printf '' | \"$0\" run --lang sh");
    assert!(ended.err.contains(says[0]), "{}", ended.err);
    let ended = caller.blastbox(["run", "--lang", "sh"]).input("true\n").end();
    assert!(!ended.err.contains(says[0]), "{}", ended.err);
    census.expect_nothing("no program");
}

fn a_command_starts_where_it_is_told_to(caller: &Caller) {
    fs::create_dir(caller.place().join("src")).expect("make a directory");
    caller.own(&caller.place().join("src"));
    let census = Census::begin(caller);
    for (cwd, is) in [("/tmp", "/tmp"), ("src", "/workspace/src"), (".", "/workspace")] {
        let words = ["run", "-q", "--workspace", ".", "--cwd", cwd, "--", "pwd"];
        assert_eq!(expect(caller, &words, 0, &[]).text(), format!("{is}\n"), "{cwd}");
    }
    expect(caller, &["run", "--cwd", "/nowhere", "--", "pwd"], 125, &["working directory", "No such file"]);
    census.expect_nothing("another directory");
}

fn an_address_of_the_web_in_the_place_of_a_host_is_told_what_to_write(caller: &Caller) {
    for (host, says) in [
        (
            "https://example.com",
            "write \"example.com\"; a port goes beside it, as in --allow example.com:443",
        ),
        ("1.1.1.1:443", "name the host instead"),
        ("localhost:80", "localhost is a name of the host itself"),
        ("127.0.0.1:80", "127.0.0.1 is a loopback address"),
    ] {
        let ended = expect(caller, &["run", "--allow", host, "--", "true"], 125, &[says]);
        let dangerous = ended.err.contains("dangerously");
        assert_eq!(dangerous, host.ends_with(":80"), "{host}: {}", ended.err);
    }
}

fn what_docker_calls_otherwise_is_told_how_it_is_called_here(caller: &Caller) {
    for (words, says) in [
        (&["-v", "/a:/b"][..], "hint: a box sees one directory of yours, at /workspace: --workspace DIR"),
        (&["--rm"], "hint: leave it out"),
        (&["-p", "80:80"], "hint: a box opens no port"),
        (&["--name", "x"], "hint: a box has an id of its own"),
        (&["--net", "none"], "hint: a box has no network: --allow HOST"),
    ] {
        let all: Vec<&str> = ["run"].iter().chain(words).chain(&["--", "true"]).copied().collect();
        expect(caller, &all, 125, &[says]);
    }
}

fn what_no_tier_of_the_host_has_is_told_with_a_fix_that_works(caller: &Caller) {
    let fuel =
        expect(caller, &["run", "--fuel", "1000", "--", "true"], 125, &["fix: use --tier wasm", "no --fuel"]);
    assert!(!fuel.err.contains("doctor"), "{}", fuel.err);
    expect(caller, &["run", "--profile", "critical", "--", "true"], 125, &["--profile default --tier jail"]);
    let words = ["run", "-q", "--profile", "default", "--tier", "jail", "--", "echo", "ran"];
    assert_eq!(expect(caller, &words, 0, &[]).text(), "ran\n");
}

fn a_policy_is_read_from_a_file_or_standard_input_and_no_pipe_is_waited_for(caller: &Caller) {
    let good = "threat = \"high\"\naccept = [\"shared-kernel\"]\n";
    let ended = caller.blastbox(["policy", "check", "-"]).input(good).end();
    assert_eq!((ended.code, ended.text().starts_with("ok: threat level high")), (0, true), "{}", ended.err);
    let ended = shell(caller, "mkfifo pipe && exec \"$0\" policy check pipe");
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(ended.err.contains("it is a pipe or a device, and no file"), "{}", ended.err);
}

fn a_directory_that_was_removed_is_named(caller: &Caller) {
    let census = Census::begin(caller);
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run --workspace . -- echo ran";
    let ended = shell(caller, script);
    assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
    assert!(ended.err.contains("the directory . is gone"), "{}", ended.err);
    // Without it the box does not need one.
    let ended = shell(caller, "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" run -- echo ran");
    assert_eq!((ended.code, ended.text().as_str()), (0, "ran\n"), "{}", ended.err);
    census.expect_nothing("a removed directory");
}

fn a_state_directory_stands_for_its_ledger(caller: &Caller) {
    let state = caller.directory("state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("close the state directory");
    let state = text(&state);
    // The shortest way to a ledger that is closed: a campaign of one attempt that records its report.
    let words = [
        "escape",
        "--tier",
        "jail",
        "--profile",
        "default",
        "--only",
        "kernel.ptrace",
        "--state-dir",
        &state,
        "--json",
    ];
    let sealed = caller.blastbox(words).end();
    assert!([0, 2].contains(&sealed.code), "{}", sealed.err);
    for path in [state.clone(), format!("{state}/ledger")] {
        let ended = expect(caller, &["audit", "verify", &path, "--json"], 0, &[]);
        assert!(ended.text().contains("\"records\": "), "{}", ended.text());
        assert!(expect(caller, &["audit", "show", &path], 0, &[]).text().contains("escape_reported"));
    }
    let report = text(&caller.file("report.json", &sealed.out));
    let ended = expect(caller, &["audit", "report", &report, "--ledger", &state, "--json"], 0, &[]);
    let said: serde_json::Value = serde_json::from_slice(&ended.out).expect("JSON");
    assert_eq!((&said["holds"], &said["record"].is_u64()), (&true.into(), &true), "{said}");
}

fn verbs_print_json_where_they_print_for_people(caller: &Caller) {
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"a.example.com\" }]\n";
    let policy = text(&caller.file("p.toml", policy));
    let json = |words: &[&str], code| -> serde_json::Value {
        let ended = expect(caller, words, code, &[]);
        serde_json::from_slice(&ended.out).expect("JSON on standard output")
    };
    assert_eq!(json(&["policy", "check", &policy, "--json"], 0)["threat"], "high");
    assert!(json(&["policy", "digest", &policy, "--json"], 0)["digest"].is_string());
    assert_eq!(
        json(&["policy", "show", &policy, "--json"], 0)["network"]["allow"][0]["host"],
        "a.example.com"
    );
    let asked = |url| ["policy", "would-allow", &policy, url, "--json"].map(str::to_owned);
    for (url, allowed) in [("https://a.example.com/", true), ("https://b.example.com/", false)] {
        let words = asked(url);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(json(&words, i32::from(!allowed))["allowed"], allowed, "{url}");
    }
    let listed = json(&["escape", "--list", "--only", "kernel.ptrace", "--json"], 0);
    assert_eq!(listed[0]["id"], "kernel.ptrace");
    assert!(listed[0]["second"].is_string() && listed[0]["control"].is_string(), "{listed}");
}

/// Root of a user namespace has not the ids that root gives to boxes.
#[test]
fn root_of_a_namespace_of_one_user_is_refused_by_name() {
    let Some(caller) = Caller::user("root_of_a_namespace_of_one_user_is_refused_by_name") else { return };
    let unshare = Path::new("/usr/bin/unshare");
    if !unshare.exists() {
        return caller.skip("there is no unshare (util-linux)");
    }
    let blastbox = text(&caller.blastbox_path());
    let made = caller.program(unshare, ["-r", "true"]).end();
    if made.code != 0 {
        return caller.skip("this user may not make a user namespace");
    }
    let ended = caller.program(unshare, ["-r", &blastbox, "run", "--", "echo", "ran"]).end();
    assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
    for said in ["root of a user namespace", "unshare -r", "fix: run blastbox outside of that namespace"] {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
    // `blastbox doctor` says the same, in words.
    let ended = caller.program(unshare, ["-r", &blastbox, "doctor"]).end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(
        ended.text().contains("unshare -r") && !ended.text().contains("LaunchFailed"),
        "{}",
        ended.text()
    );
}

/// A full disk is told as one where standard error is the one that cannot be written, too.
#[test]
fn a_standard_error_that_cannot_be_written_ends_the_box() {
    let Some(caller) = Caller::user("a_standard_error_that_cannot_be_written_ends_the_box") else { return };
    let full = fs::File::options().write(true).open("/dev/full").expect("open /dev/full");
    let words = ["run", "--", "sh", "-c", "echo x >&2; sleep 100"];
    assert_eq!(caller.blastbox(words).start_with([null(), null(), full.into()]).end().code, 125);
}
