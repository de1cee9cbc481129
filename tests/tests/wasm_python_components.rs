//! Components that componentize-py makes of programs in Python, run by the built worker: some forty modules in each, and a CPython.
//!
//! Each is compiled once for each user, which takes half a minute: so few tests ask much. Without `make wasm`, or where pip cannot fetch
//! componentize-py, they are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::{Boxed, Caller, both_ways};

both_ways!(a_program_in_python_has_its_files_and_streams_and_nothing_of_the_host);

fn guest(caller: &Caller) -> Option<String> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    if !["blastbox-wasm-component", "blastbox-wasm-compile"].iter().all(|name| shelf.join(name).is_file()) {
        caller.skip("the worker of components is not built: `make wasm` builds it");
        return None;
    }
    let Some(bytes) = caller.component("python.wasm") else {
        caller.skip(
            "no component in Python is built: `make test` builds it where pip can fetch componentize-py",
        );
        return None;
    };
    Some(caller.file("guest.wasm", bytes).to_str().unwrap().to_owned())
}

fn run(caller: &Caller, options: &[&str], words: &[&str], input: &str) -> Boxed {
    let begin = ["run", "--json", "--tier", "wasm"];
    let all = begin.iter().chain(options).chain(&["--"]).chain(words);
    let state = caller.place().join("state");
    caller.blastbox(all).env("XDG_STATE_HOME", state.to_str().unwrap()).input(input).end().boxed()
}

fn a_program_in_python_has_its_files_and_streams_and_nothing_of_the_host(caller: &Caller) {
    let Some(guest) = guest(caller) else { return };
    let boxed = run(caller, &["-i", "--env", "A=b c"], &[&guest, "hello", "é", "'"], "one\ntwo").fine();
    assert_eq!(boxed.stdout, "['é', \"'\"] 'b c' 'one\\ntwo'\n");
    assert_eq!(boxed.stderr, "and to the other\n");

    let code =
        |word: &str, more: &[&str]| run(caller, &[], &[&[&guest, word], more].concat(), "").receipt.exit_code;
    // WASI 0.2 lets a program say no more than whether it failed.
    assert_eq!((code("exit", &["0"]), code("exit", &["7"]), code("fail", &[])), (0, 1, 1));
    assert_eq!(code("panic", &[]), 128 + 6);

    let project = caller.directory("project");
    caller.directory("project/sub");
    caller.file("project/a.txt", "one");
    caller.file("project/sub/b.txt", "two");
    let given = format!("{}:cow", project.display());
    let said = run(caller, &["--workspace", &given], &[&guest, "files"], "").fine().stdout;
    let lines = ["one two", "01xy456789 10", "01xy", "True 4 False", "55", "1001", "['er']", "100001 100000"];
    assert_eq!(said.lines().collect::<Vec<_>>(), lines);
    assert!(!project.join("made").exists());

    let said = run(caller, &[], &[&guest, "outside"], "").fine().stdout;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[..5].iter().all(|errno| *errno != "None"), "{said}");
    assert_eq!(lines[5].rsplit_once(' ').unwrap().0, "['home', 'tmp', 'workspace']", "{said}");
    assert!(!lines[5].ends_with("None") && lines[6..].len() == 2, "{said}");
    assert!(lines[6..].iter().all(|errno| *errno != "None"), "{said}");
}

#[test]
fn a_program_in_python_is_held_to_its_limits_and_can_be_repeated() {
    let Some(caller) = Caller::either("a_program_in_python_is_held_to_its_limits_and_can_be_repeated") else {
        return;
    };
    let Some(guest) = guest(&caller) else { return };
    let run_it = |options: &[&str], word: &str| run(&caller, options, &[&guest, word], "");

    let said = run_it(&["--disk", "8MiB"], "full").fine().stdout;
    let megabytes: u64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((4..=8).contains(&megabytes), "{said}");
    let said = run_it(&["--memory", "256MiB"], "memory").fine().stdout;
    assert!(said.starts_with("no more than "), "{said}");
    let boxed = run_it(&[], "stack");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 128 + 11), "{}", boxed.stderr);
    for word in ["endless", "sleep"] {
        assert_eq!(run_it(&["--timeout", "2s"], word).outcome(), "timed_out", "{word}");
    }
    assert_eq!(run_it(&[], "output").outcome(), "output_limit");

    // Of 32 files that may be open at once, those that it is given are half at most.
    let few = caller.file("few.toml", format!("{POLICY}[files]\nopen_files = 32\n"));
    let said = run_it(&["--policy", few.to_str().unwrap()], "handles").fine().stdout;
    let held: u32 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((16..32).contains(&held) && said.ends_with("slept\n"), "{said}");

    let again = caller.file("again.toml", format!("{POLICY}deterministic = true\n"));
    let again = || run_it(&["--policy", again.to_str().unwrap()], "chance").fine().stdout;
    let first = again();
    assert!(first.contains("1735689600") && first.ends_with("[0] ''\n"), "{first}");
    assert_eq!(again(), first);
    // What a file grows by is work, also where a stream writes behind its end.
    let hole = |fuel: &str, size: &str| run(&caller, &["--fuel", fuel], &[&guest, "hole", size], "");
    let fuel = |boxed: &Boxed| boxed.receipt.usage.command_fuel.unwrap();
    let (small, large) = (hole("9000000000", "0").fine(), hole("9000000000", "20000000").fine());
    assert_eq!(large.stdout, "20000001\n");
    assert!(fuel(&large) - fuel(&small) >= 20_000_000, "{} {}", fuel(&small), fuel(&large));
    let spent = hole(&(fuel(&large) - 10_000_000).to_string(), "20000000");
    assert_eq!((spent.outcome(), spent.stdout.as_str()), ("fuel_spent", ""));
    assert_ne!(run_it(&[], "chance").fine().stdout, run_it(&[], "chance").fine().stdout);
}

const POLICY: &str = "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n[kernel]\ntier = \"wasm\"\n";
