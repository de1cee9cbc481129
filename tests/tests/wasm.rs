//! The tier `wasm` with the built worker and real guests: what runs, what is refused, what ends, and that nothing stays.
//!
//! Without `make wasm`, or without a guest that could not be fetched, the tests that need it are skipped with that reason.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

#[path = "wasm/modules.rs"]
#[expect(dead_code, reason = "those that ask are of other tests")]
mod modules;

use std::path::{Path, PathBuf};

use blastbox_tests::{Boxed, Caller, Served, Start, both_ways, wait_until};

both_ways!(
    python_runs_with_arguments_files_and_its_library,
    javascript_runs_with_console_timers_and_promises,
    a_program_that_fails_says_so_and_its_code_passes_through,
    nothing_of_one_run_is_seen_by_the_next,
    nothing_of_what_came_before_the_image_is_seen,
    chance_differs_between_runs,
    a_deterministic_run_is_the_same_again_to_the_last_byte,
    a_guest_that_never_ends_is_ended,
    a_command_that_never_ends_or_never_begins_can_be_ended_and_the_box_goes_on,
    too_much_memory_is_refused_to_the_guest_and_the_box_lives,
    a_stack_that_is_exhausted_ends_the_guest_by_a_signal,
    output_over_the_limit_ends_the_box,
    guests_have_no_network_no_programs_and_no_files_of_the_host,
    a_session_gives_back_what_its_turns_came_to,
    a_program_whose_timers_never_end_does_not_grow_by_them,
    what_a_turn_reads_from_a_program_has_a_bound,
    a_module_of_the_caller_is_compiled_once_and_runs,
    a_file_is_never_taken_for_a_guest_of_the_shelf,
    modules_that_misbehave_end_as_processes_would,
    modules_that_cannot_be_guests_are_refused_by_name,
    the_compiler_leaves_nothing_half_made_and_trusts_no_name,
    a_shelf_that_is_not_what_it_says_is_refused,
    a_directory_of_the_host_goes_in_and_changes_come_out_where_they_are_asked_for,
    a_directory_that_does_not_fit_is_refused_by_name,
    what_the_tier_does_not_have_is_refused_by_name,
    the_worker_is_locked_in_while_a_guest_runs,
    a_box_that_stays_runs_commands_and_keeps_files,
    a_box_answers_while_another_one_misbehaves_and_so_does_that_one_afterwards,
);

/// The directory of worker and guests, if this guest lies there.
fn shelf(caller: &Caller, guest: &str) -> Option<PathBuf> {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    if shelf.join("blastbox-wasm").is_file() && shelf.join(format!("{guest}.guest")).is_file() {
        return Some(shelf);
    }
    caller.skip(&format!(
        "the guest {guest} is not built: `make wasm` builds it where its package can be fetched"
    ));
    None
}

macro_rules! needs {
    ($caller:expr, $guest:expr) => {
        match shelf($caller, $guest) {
            Some(shelf) => shelf,
            None => return,
        }
    };
}

fn run(caller: &Caller, language: &str, options: &[&str], code: &str) -> Boxed {
    let words = ["run", "--json", "--tier", "wasm", "--lang", language];
    caller.blastbox(words.iter().chain(options)).input(code).end().boxed()
}

fn python(caller: &Caller, code: &str) -> Boxed {
    run(caller, "python", &[], code)
}

fn js(caller: &Caller, code: &str) -> Boxed {
    run(caller, "js", &[], code)
}

fn python_runs_with_arguments_files_and_its_library(caller: &Caller) {
    needs!(caller, "python");
    let boxed = python(
        caller,
        "import json, sys\nprint(json.dumps({'a': sys.version_info[:2], 'b': sys.argv}))\n6 * 7\n",
    );
    assert_eq!(boxed.fine().stdout, "{\"a\": [3, 15], \"b\": [\"-\"]}\n");
    let code = "import os, sys\nopen('x', 'w').write('kept')\nprint(open('/workspace/x').read(), os.environ['A'], sys.argv)";
    let boxed = caller.run(&["--tier", "wasm", "--env", "A=b c"], &["python3", "-c", code, "é", "'"]);
    assert_eq!(boxed.fine().stdout, "kept b c ['-c', 'é', \"'\"]\n");
}

fn javascript_runs_with_console_timers_and_promises(caller: &Caller) {
    needs!(caller, "js");
    let code =
        "setTimeout(() => console.log('late'), 20);\nconsole.log([1, {a: 'x'}], await Promise.resolve(2));";
    assert_eq!(js(caller, code).fine().stdout, "[ 1, { a: \"x\" } ] 2\nlate\n");
    let boxed = caller.run(&["--tier", "wasm"], &["js", "-e", "print(scriptArgs.join())", "a", "b\"c"]);
    assert_eq!(boxed.fine().stdout, "a,b\"c\n");
    let code = "console.log(process.env.A, process.argv, typeof process.env.PATH)";
    let boxed = caller.run(&["--tier", "wasm", "--env", "A=b c"], &["node", "-e", code, "é"]);
    assert_eq!(boxed.fine().stdout, "b c [ \"js\", \"é\" ] string\n");
}

fn a_program_that_fails_says_so_and_its_code_passes_through(caller: &Caller) {
    needs!(caller, "python");
    needs!(caller, "js");
    let boxed = python(caller, "raise ValueError('no')");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 1));
    assert!(boxed.stderr.contains("ValueError: no") && !boxed.stderr.contains('\u{1b}'), "{}", boxed.stderr);
    // It is called as elsewhere, and nothing of what runs it is told.
    let places = |boxed: &Boxed| boxed.stderr.matches("File ").count();
    assert!(boxed.stderr.contains("File \"<stdin>\", line 1") && places(&boxed) == 1, "{}", boxed.stderr);
    let boxed = caller.run(&["--tier", "wasm"], &["python", "-c", "\n1 / 0"]);
    assert!(boxed.stderr.contains("File \"<string>\", line 2") && places(&boxed) == 1, "{}", boxed.stderr);
    assert_eq!(python(caller, "import sys\nsys.exit(7)").receipt.exit_code, 7);
    // Whatever way it ends, what it has printed comes out; a stream that it closed itself is its own affair.
    for (end, code) in [("pass", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("quit()", 0), ("1 / 0", 1)] {
        let boxed = python(caller, &format!("import sys\nprint('kept', end='')\n{end}"));
        assert_eq!(
            (boxed.stdout.as_str(), boxed.receipt.exit_code),
            ("kept", code),
            "{end}: {}",
            boxed.stderr
        );
    }
    assert_eq!(python(caller, "import sys\nsys.stdout.close()").receipt.exit_code, 0);
    assert_eq!(python(caller, "import os\nos._exit(9)").receipt.exit_code, 9);
    let boxed = js(caller, "throw new TypeError('no')");
    assert_eq!(boxed.receipt.exit_code, 1);
    assert!(boxed.stderr.contains("Uncaught TypeError: no"), "{}", boxed.stderr);
    let missing = caller.run(&["--tier", "wasm"], &["perl"]);
    assert_eq!(missing.receipt.exit_code, 127);
}

fn nothing_of_one_run_is_seen_by_the_next(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    // In one box, one after the other: the second guest sits where the first one sat, or in one that was begun meanwhile.
    for _ in 0..4 {
        let seen = daemon.ask(["exec", &id, "--", "js", "-e", "print(globalThis.left); globalThis.left = 1"]);
        assert_eq!(seen, "undefined");
        let code = "import builtins\nprint(hasattr(builtins, 'left'), 'left' in dir())\nbuiltins.left = left = bytearray(30 << 20)";
        assert_eq!(daemon.ask(["exec", &id, "--", "python", "-c", code]), "False False");
    }
}

fn nothing_of_what_came_before_the_image_is_seen(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    // No names, no variables, nothing that has drawn a number or was asked for by nobody, no file that is open.
    let python = "import sys
print(sorted(name for name in dir() if name[0] != '_'), sys.argv)
print([name for name in ('random', 'gc', 'uuid', 'tempfile', 'numpy') if name in sys.modules])
import linecache, os
print(sorted(linecache.cache), 'BLASTBOX_REHEARSAL' in os.environ, os.getcwd())
for number in range(4, 16):
    try: os.fstat(number)
    except OSError: continue
    print(number, 'is open')";
    let js = "print(Object.getOwnPropertyNames(globalThis).filter((name) => /sow|random|write|about/.test(name)).length, process.argv.length)";
    // One that is begun when it is asked for, and others that waited.
    for _ in 0..3 {
        let seen = daemon.ask(["exec", &id, "--", "python", "-c", python]);
        assert_eq!(seen, "['sys'] ['-c']\n[]\n[] False /workspace");
        assert_eq!(daemon.ask(["exec", &id, "--", "js", "-e", js]), "0 1");
    }
}

fn chance_differs_between_runs(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    let python = "import random, uuid, os\nprint(random.random(), uuid.uuid4(), os.urandom(8))";
    for command in [["js", "-e", "print(Math.random())"], ["python", "-c", python]] {
        let mut seen: Vec<String> =
            (0..5).map(|_| daemon.ask(["exec", &id, "--"].iter().chain(&command))).collect();
        let words = |text: &String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut all: Vec<String> = seen.iter().flat_map(words).collect();
        seen.clear();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
    }
}

fn a_deterministic_run_is_the_same_again_to_the_last_byte(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let policy = "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n[kernel]\ntier = \"wasm\"\ndeterministic = true\n";
    let path = caller.file("policy.toml", policy);
    let options = ["--policy", path.to_str().unwrap()];
    let python = "import datetime, os, random, time, uuid
open('x', 'w').write('y')
time.sleep(0.01)
print(random.random(), uuid.uuid4(), os.urandom(8), time.time(), time.perf_counter(), datetime.datetime.now())
print(hash('a'), id([]), {'a', 'b', 'c', object()}, os.stat('x').st_mtime_ns)";
    let js = "setTimeout(() => console.log(Math.random(), Date.now(), performance.now()), 20)";
    for (command, code) in [(["python", "-c"], python), (["js", "-e"], js)] {
        let run = || caller.run(&options, &[command[0], command[1], code]).fine().stdout;
        let first = run();
        assert!(first.contains("1735689600") || first.contains("2025-01-01"), "{first}");
        assert_eq!(run(), first);
    }
    // In one box, and from a guest that was begun before it was asked for.
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", options[0], options[1]]);
    let exec = || daemon.ask(["exec", &id, "--", "js", "-e", js]);
    let first = exec();
    assert_eq!([exec(), exec()], [first.clone(), first]);
}

fn a_guest_that_never_ends_is_ended(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    for (language, code) in
        [("python", "while True: pass"), ("js", "for (;;);"), ("python", "import time\ntime.sleep(1e9)")]
    {
        let boxed = run(caller, language, &["--timeout", "1s"], code);
        assert_eq!(boxed.outcome(), "timed_out", "{code}");
    }
}

fn a_command_that_never_ends_or_never_begins_can_be_ended_and_the_box_goes_on(caller: &Caller) {
    let shelf = needs!(caller, "js");
    let programs = own_programs(caller, &shelf, "js");
    let own = programs.join("wasm");
    caller.own(&own);
    for (name, bytes) in [("early", modules::early()), ("endless", modules::endless())] {
        let words = ["compile", "module", &module(caller, name, &bytes), own.to_str().unwrap(), name];
        let made = caller.program(&shelf.join("blastbox-wasm-compile"), words).end();
        assert_eq!(made.code, 0, "{}", made.err);
    }
    let daemon = Served::start_program(caller, &programs.join("blastbox"), &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    // More of them than run at the same time.
    for name in ["early", "endless", "early", "endless", "early"] {
        let ended = daemon.blastbox(["exec", "--timeout", "1s", &id, "--", name]).end();
        assert_ne!(ended.code, 0, "{name}: {}", ended.err);
    }
    assert_eq!(daemon.ask(["exec", &id, "--", "js", "-e", "print('ran')"]), "ran");
}

fn too_much_memory_is_refused_to_the_guest_and_the_box_lives(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let boxed = run(
        caller,
        "python",
        &["--memory", "256MiB"],
        "try: bytearray(1 << 30)\nexcept MemoryError: print('refused')",
    );
    let boxed = boxed.fine();
    assert_eq!(boxed.stdout, "refused\n");
    let met = |boxed: &Boxed| -> Vec<&str> {
        boxed.receipt.limits_hit.iter().map(|limit| limit.as_str()).collect()
    };
    assert_eq!((boxed.outcome(), met(&boxed)), ("exited", vec!["memory"]), "it lived on");
    let bomb = "let all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1));";
    let boxed = run(caller, "js", &["--memory", "256MiB"], bomb);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 1));
    assert!(boxed.stderr.contains("memory"), "{}", boxed.stderr);
    assert_eq!((boxed.receipt.usage.oom_kills, met(&boxed)), (0, vec!["memory"]));
    // Files are in memory too, with limits of their own.
    let policy = "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n[kernel]\ntier = \"wasm\"\n[files]\ndisk = \"1MiB\"\ninodes = 40\n";
    let policy = caller.file("small.toml", policy);
    let fill = "def full(work):\n    try: work()\n    except OSError as e: print(e.errno)\n";
    for (limit, work) in [
        ("disk", "f = open('x', 'wb', 0)\nfull(lambda: [f.write(b'x' * 65536) for n in range(50)])"),
        ("inodes", "full(lambda: [open(str(n), 'w').close() for n in range(50)])"),
    ] {
        let options = ["--policy", policy.to_str().unwrap()];
        let boxed = run(caller, "python", &options, &format!("{fill}{work}")).fine();
        assert_eq!((boxed.stdout.lines().count(), met(&boxed)), (1, vec![limit]), "{}", boxed.stdout);
    }
}

fn a_stack_that_is_exhausted_ends_the_guest_by_a_signal(caller: &Caller) {
    needs!(caller, "js");
    needs!(caller, "python");
    let boxed =
        js(caller, "const deeper = () => deeper() + 1; try { deeper() } catch (e) { console.log(e.name) }");
    assert_eq!(boxed.fine().stdout, "RangeError\n");
    let boxed = python(caller, "def deeper(): deeper()\ntry: deeper()\nexcept RecursionError: print('told')");
    assert_eq!(boxed.fine().stdout, "told\n");
    let boxed = run_module(caller, &module(caller, "deep", &modules::deep()), "20s");
    assert_eq!(boxed.receipt.exit_code, 128 + 11, "{}", boxed.stderr);
}

fn output_over_the_limit_ends_the_box(caller: &Caller) {
    needs!(caller, "python");
    // A gigabyte, if nobody stopped it.
    let code = "for _ in range(1024): print('x' * (1 << 20))";
    let ended = caller.blastbox(["run", "--tier", "wasm", "--lang", "python"]).input(code).end();
    assert_eq!(ended.out.len(), 16 << 20);
    assert!(ended.err.contains("too much output"), "{}", ended.err);
    let boxed = run(caller, "python", &["--output-limit", "1MiB"], code);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("output_limit", 153), "{:?}", boxed.receipt);
    assert!(boxed.receipt.output.truncated && boxed.stdout.len() <= 1 << 20, "{:?}", boxed.receipt.output);
}

fn guests_have_no_network_no_programs_and_no_files_of_the_host(caller: &Caller) {
    needs!(caller, "python");
    let code = r"
import os, socket, subprocess
def tried(what):
    try: return what()
    except Exception as error: return type(error).__name__
print(tried(lambda: socket.create_connection(('127.0.0.1', 1))))
print(tried(lambda: subprocess.run(['/bin/sh'])))
print(tried(lambda: open('/etc/passwd').read()), tried(lambda: open('../../../../etc/passwd').read()))
print(tried(lambda: os.symlink('/etc', 'x')), sorted(os.listdir('/')), tried(lambda: os.listdir('/proc')))
print(tried(lambda: open('/usr/local/lib/python315.zip', 'wb')))
print(tried(lambda: os.rename('/usr/local/lib', '/tmp/lib')), tried(lambda: os.mkdir('/usr/local/new')), tried(lambda: os.rmdir('/workspace')))
";
    let said = python(caller, code).fine().stdout;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].ends_with("Error") && lines[1].ends_with("Error"), "{said}");
    assert!(lines[2].split(' ').all(|word| word.ends_with("Error")), "{said}");
    assert_eq!(lines[3], "OSError ['home', 'tmp', 'usr', 'workspace'] FileNotFoundError", "{said}");
    assert_eq!(lines[4..], ["OSError", "OSError OSError OSError"], "{said}");
}

/// A session of JavaScript that has this much memory, with each of these lines as a turn.
fn session(caller: &Caller, memory: &str, read: &str, turns: &str) -> Boxed {
    let code = format!("turns({read}, (failed) => print(failed ? 'failed' : 'went well'))");
    let words = ["run", "--json", "-i", "--tier", "wasm", "--memory", memory, "--", "js", "-e", &code];
    caller.blastbox(words).input(turns).end().boxed()
}

fn a_session_gives_back_what_its_turns_came_to(caller: &Caller) {
    needs!(caller, "js");
    // Each comes to a megabyte, or throws one, or waits for one: three of four are no value at once. Together they are far more than there is.
    let kinds = [
        "({ big: new Uint8Array(1e6).fill(7), toString: null })",
        "throw new Error('x'.repeat(1e6).slice(0, 9) + (globalThis.last = 'y'.repeat(1e6)).length)",
        "Promise.resolve({ big: 'z'.repeat(1e6), length: 1 }).then((all) => [all.big.slice(1)].length)",
        "Promise.reject(Object.assign(new Error('late'), { big: new Uint8Array(1e6) }))",
    ];
    let turns: String = (0..400).map(|number| format!("{}\n", kinds[number % 4])).collect();
    let boxed = session(caller, "96MiB", "(line) => line", &turns).fine();
    let count = |word: &str| boxed.stdout.lines().filter(|line| *line == word).count();
    assert_eq!((count("went well"), count("failed")), (200, 200), "{}", boxed.stderr);
    // What a program keeps is its own, and stays.
    let boxed =
        session(caller, "96MiB", "(line) => line", "globalThis.kept = [1, { a: 2 }]\n3\nkept[1]\n").fine();
    assert_eq!(boxed.stdout, "[ 1, { a: 2 } ]\nwent well\n3\nwent well\n{ a: 2 }\nwent well\n");
}

fn a_program_whose_timers_never_end_does_not_grow_by_them(caller: &Caller) {
    needs!(caller, "js");
    let code = "let left = 300000; const tick = () => { if (left--) setTimeout(tick, 0) }; tick()";
    let boxed = caller.run(&["--tier", "wasm", "--timeout", "120s"], &["js", "-e", code]).fine();
    let few = caller.run(&["--tier", "wasm"], &["js", "-e", &code.replace("300000", "10")]).fine();
    let peak = |boxed: &Boxed| boxed.receipt.usage.command_peak_bytes.unwrap();
    assert!(peak(&boxed) < peak(&few) + (2 << 20), "{} {}", peak(&boxed), peak(&few));
}

fn what_a_turn_reads_from_a_program_has_a_bound(caller: &Caller) {
    needs!(caller, "js");
    let boxed = session(caller, "512MiB", "(line) => '0;'.repeat(9e6)", "1\n");
    assert_eq!(boxed.receipt.exit_code, 128 + 6, "{}", boxed.stderr);
    assert!(boxed.stderr.contains("longer than 16 MiB"), "{}", boxed.stderr);
}

fn a_file_is_never_taken_for_a_guest_of_the_shelf(caller: &Caller) {
    needs!(caller, "js");
    let run_it = |program: &str| caller.run(&["--tier", "wasm"], &[program, "-e", "print('ran')"]);
    for program in ["js", "node", "/usr/bin/node"] {
        assert_eq!(run_it(program).fine().stdout, "ran\n", "{program}");
    }
    for program in ["./js", "/home/user/js", "bin/js", "/workspace/node"] {
        assert_eq!(run_it(program).receipt.exit_code, 127, "{program}");
    }
    // Nobody's module is the shelf's JavaScript, whatever its file is called.
    let own = module(caller, "js", &modules::hello("the caller's own\n"));
    assert_eq!(run_module(caller, &own, "20s").fine().stdout, "the caller's own\n");
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    daemon.blastbox(["cp", &own, &format!("{id}:js.wasm")]).end().text();
    for program in ["./js.wasm", "js.wasm", "/home/user/js.wasm"] {
        let ended = daemon.blastbox(["exec", &id, "--", program]).end();
        assert_eq!((ended.code, ended.out.len()), (126, 0), "{program}: {}", ended.err);
        assert!(ended.err.contains("names a file") && ended.err.contains("blastbox run"), "{}", ended.err);
    }
    assert_eq!(daemon.ask(["exec", &id, "--", "js", "-e", "print('ran')"]), "ran");
}

/// Writes a module where the caller can read it.
fn module(caller: &Caller, name: &str, bytes: &[u8]) -> String {
    caller.file(&format!("{name}.wasm"), bytes).to_str().unwrap().to_owned()
}

fn compiled(caller: &Caller) -> usize {
    let cache = caller.place().join("state/blastbox/wasm");
    std::fs::read_dir(cache).map_or(0, Iterator::count)
}

/// A run whose compiled modules lie in the test's own place.
fn run_module(caller: &Caller, path: &str, timeout: &str) -> Boxed {
    start(caller, &["run", "--json", "--tier", "wasm", "--timeout", timeout, "--", path]).end().boxed()
}

fn start<'a>(caller: &'a Caller, words: &[&str]) -> Start<'a> {
    caller.blastbox(words).env("XDG_STATE_HOME", caller.place().join("state").to_str().unwrap())
}

fn a_module_of_the_caller_is_compiled_once_and_runs(caller: &Caller) {
    needs!(caller, "js");
    let hello = module(caller, "hello", &modules::hello("hello from a module\n"));
    assert_eq!(run_module(caller, &hello, "20s").fine().stdout, "hello from a module\n");
    assert_eq!(run_module(caller, &hello, "20s").fine().stdout, "hello from a module\n");
    if !caller.is_root() {
        // Root's lie in the state directory of the host, whatever the environment says.
        assert_eq!(compiled(caller), 1, "the same bytes are compiled once");
    }
    let other = module(caller, "hello", &modules::hello("another one\n"));
    assert_eq!(run_module(caller, &other, "20s").fine().stdout, "another one\n");
}

fn modules_that_misbehave_end_as_processes_would(caller: &Caller) {
    needs!(caller, "js");
    let cases = [
        ("unreachable", modules::unreachable(), 128 + 6),
        ("division", modules::division(), 128 + 8),
        ("outside", modules::outside(), 128 + 11),
        ("greedy", modules::greedy(), 128 + 6),
    ];
    for (name, bytes, code) in cases {
        let boxed = run_module(caller, &module(caller, name, &bytes), "20s");
        assert_eq!(boxed.receipt.exit_code, code, "{name}: {}", boxed.stderr);
        assert!(boxed.stderr.contains("the guest was ended"), "{}", boxed.stderr);
    }
    let endless = module(caller, "endless", &modules::endless());
    let boxed = run_module(caller, &endless, "1s");
    assert_eq!(boxed.outcome(), "timed_out");
}

fn modules_that_cannot_be_guests_are_refused_by_name(caller: &Caller) {
    needs!(caller, "js");
    let sparse = module(caller, "huge", b"\0asm\x01\0\0\0");
    std::fs::OpenOptions::new().write(true).open(&sparse).unwrap().set_len(1 << 30).unwrap();
    let cases = [
        (module(caller, "wants", &modules::wants("env", "system")), "wasm_import_unknown"),
        (module(caller, "newer", &modules::wants("wasi:cli/run@0.3.0", "run")), "wasm_import_unknown"),
        (module(caller, "library", &modules::library()), "wasm_no_start"),
        (module(caller, "tables", &modules::tables()), "wasm_needs_too_much"),
        (module(caller, "broken", b"\0asm\x01\0\0\0\x01\x05garbage"), "wasm_invalid"),
        (module(caller, "nothing", b""), "wasm_invalid"),
        (module(caller, "text", b"#!/bin/sh\necho no\n"), "wasm_invalid"),
        (sparse, "wasm_too_large"),
        (caller.place().join("absent.wasm").to_str().unwrap().to_owned(), "cannot read"),
    ];
    for (path, why) in cases {
        let ended = start(caller, &["run", "--tier", "wasm", "--", &path]).end();
        assert_eq!(ended.code, 125, "{path}: {}", ended.err);
        assert!(ended.err.contains(why), "{path}: {}", ended.err);
    }
}

fn the_compiler_leaves_nothing_half_made_and_trusts_no_name(caller: &Caller) {
    let shelf = needs!(caller, "js");
    let cache = caller.directory("cache");
    let at = cache.to_str().unwrap();
    let keep =
        |path: &str| caller.program(&shelf.join("blastbox-wasm-compile"), ["keep", path, at, "guest"]).end();
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&cache).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    for bytes in [modules::library(), modules::wants("env", "system"), b"rubbish".to_vec()] {
        assert_eq!(keep(&module(caller, "bad", &bytes)).code, 3);
        assert!(names().is_empty(), "{:?}", names());
    }
    // As one that was killed leaves it.
    let left = caller.directory("cache/.making-1");
    std::fs::write(left.join("guest.cwasm"), "half").unwrap();
    let good = module(caller, "good", &modules::hello("x"));
    // The name of the directory, and behind it the module's hash.
    let kept = |path: &str| keep(path).text().split(' ').next().unwrap().to_owned();
    let key = kept(&good);
    assert_eq!(names(), [key.as_str()]);
    // Code and manifest fit each other, and are of another module.
    let other = kept(&module(caller, "other", &modules::hello("y")));
    let place = |key: &str, ending: &str| cache.join(key).join(format!("guest.{ending}"));
    for ending in ["guest", "cwasm"] {
        std::fs::remove_file(place(&key, ending)).unwrap();
        std::fs::copy(place(&other, ending), place(&key, ending)).unwrap();
    }
    let code = |key: &str| std::fs::read(place(key, "cwasm")).unwrap();
    assert_eq!(code(&key), code(&other));
    assert_eq!(kept(&good), key);
    assert_ne!(code(&key), code(&other));
}

/// The programs once more, with a shelf of their own that holds nothing but this guest.
fn own_programs(caller: &Caller, shelf: &Path, guest: &str) -> PathBuf {
    let programs = caller.directory("own");
    std::fs::create_dir(programs.join("wasm")).unwrap();
    let from = caller.blastbox_path();
    for name in ["blastbox", "blastbox-full", "blastbox-warden", "blastbox-egress", "blastbox-agent"] {
        std::fs::copy(from.with_file_name(name), programs.join(name)).unwrap();
    }
    for name in ["blastbox-wasm".to_owned(), format!("{guest}.guest"), format!("{guest}.cwasm")] {
        std::fs::copy(shelf.join(&name), programs.join("wasm").join(&name)).unwrap();
    }
    programs
}

fn a_shelf_that_is_not_what_it_says_is_refused(caller: &Caller) {
    use std::os::unix::fs::PermissionsExt as _;
    let shelf = needs!(caller, "js");
    let programs = own_programs(caller, &shelf, "js");
    let try_it = || {
        let words = ["run", "--tier", "wasm", "--", "js", "-e", "print('ran')"];
        caller.program(&programs.join("blastbox"), words).end()
    };
    assert_eq!(try_it().text(), "ran\n");
    let write = |name: &str, bytes: &[u8]| {
        let path = programs.join("wasm").join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let manifest = std::fs::read_to_string(shelf.join("js.guest")).unwrap();
    let code = std::fs::read(shelf.join("js.cwasm")).unwrap();
    let mut turned = code.clone();
    let middle = turned.len() / 2;
    turned[middle] ^= 1;
    for (what, manifest, code) in [
        ("one bit turned", manifest.clone(), turned),
        ("cut off", manifest.clone(), code[..middle].to_vec()),
        ("another engine", manifest.replace("wasmtime 48", "wasmtime 47"), code.clone()),
        ("no image was taken", manifest.replace("kind js image", "kind js"), code.clone()),
        ("no manifest at all", "rubbish".to_owned(), code.clone()),
    ] {
        write("js.guest", manifest.as_bytes());
        write("js.cwasm", &code);
        let ended = try_it();
        assert_ne!(ended.code, 0, "{what}");
        assert_eq!(ended.text(), "", "{what}");
        assert!(ended.err.contains("make wasm"), "{what}: {}", ended.err);
    }
    // One that is broken is no harm to the others.
    write("js.guest", manifest.as_bytes());
    write("js.cwasm", &code);
    std::fs::write(programs.join("wasm/other.guest"), "rubbish").unwrap();
    assert_eq!(try_it().text(), "ran\n");
}

/// A directory of the caller's with a file, and another one beneath it.
fn project(caller: &Caller) -> PathBuf {
    let project = caller.directory("project");
    caller.directory("project/sub");
    caller.file("project/a.txt", "one");
    caller.file("project/sub/b.txt", "two");
    project
}

fn a_directory_of_the_host_goes_in_and_changes_come_out_where_they_are_asked_for(caller: &Caller) {
    needs!(caller, "python");
    let project = project(caller);
    let at = project.to_str().unwrap();
    let code = "
import os
print(open('a.txt').read(), open('/workspace/sub/b.txt').read(), os.getcwd())
for change in (lambda: open('a.txt', 'w').write('new'), lambda: open('c.txt', 'w'), lambda: os.remove('sub/b.txt')):
    try: change(); print('done')
    except OSError as error: print(error.strerror)";
    for (access, word) in [("cow", "done"), ("ro", "Read-only file system")] {
        let given = format!("{at}:{access}");
        let boxed = caller.run(&["--tier", "wasm", "--workspace", &given], &["python", "-c", code]);
        assert_eq!(boxed.fine().stdout, format!("one two /workspace\n{word}\n{word}\n{word}\n"));
        assert_eq!(std::fs::read_to_string(project.join("a.txt")).unwrap(), "one");
        assert!(!project.join("c.txt").exists() && project.join("sub/b.txt").exists());
    }
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm", "--workspace", at]);
    let code = "open('sub/new.txt', 'w').write('made in the box')\nopen('big', 'wb').write(b'x' * 300_000)";
    daemon.ask(["exec", &id, "--", "python", "-c", code]);
    let out = caller.directory("out");
    daemon.ask(["cp", &format!("{id}:/workspace"), out.to_str().unwrap()]);
    let read = |name: &str| std::fs::read(out.join("workspace").join(name)).unwrap();
    assert_eq!((read("a.txt"), read("sub/b.txt")), (b"one".to_vec(), b"two".to_vec()));
    assert_eq!((read("sub/new.txt"), read("big")), (b"made in the box".to_vec(), vec![b'x'; 300_000]));
}

fn a_directory_that_does_not_fit_is_refused_by_name(caller: &Caller) {
    needs!(caller, "js");
    let project = project(caller);
    let at = project.to_str().unwrap();
    let refused = |options: &[&str]| {
        let words = ["run", "--tier", "wasm", "--workspace", at];
        let words = words.iter().chain(options).chain(&["--", "js", "-e", "print('ran')"]);
        let ended = caller.blastbox(words).end();
        assert!(ended.code != 0 && ended.text().is_empty(), "{}", ended.err);
        ended.err
    };
    caller.file("project/large", vec![b'x'; 3 << 20]);
    let said = refused(&["--disk", "2MiB"]);
    assert!(said.contains("workspace_too_large") && said.contains("/workspace/large"), "{said}");
    std::fs::remove_file(project.join("large")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", project.join("link")).unwrap();
    let said = refused(&[]);
    assert!(said.contains("workspace_unfit") && said.contains("/workspace/link"), "{said}");
}

fn what_the_tier_does_not_have_is_refused_by_name(caller: &Caller) {
    needs!(caller, "js");
    let words = ["run", "--tier", "wasm", "--gpu", "--", "js", "-e", "1"];
    let ended = caller.blastbox(words).end();
    assert!(ended.code == 125 && ended.err.contains("gpu"), "{}", ended.err);
    let ended = caller.blastbox(["run", "--tier", "wasm", "--lang", "sh"]).input("echo").end();
    assert!(ended.code == 125 && ended.err.contains("shell"), "{}", ended.err);
}

/// What the kernel says of the worker while a guest runs: filters on every thread, no capability, no new privileges.
fn the_worker_is_locked_in_while_a_guest_runs(caller: &Caller) {
    needs!(caller, "js");
    let words = ["run", "--tier", "wasm", "--", "js", "-e", "for (;;);"];
    let held = caller.blastbox(words).start();
    // The tests themselves may live under a filter.
    let filters = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.and_then(|count| count.trim().parse::<u32>().ok())
    };
    let before = filters(&std::fs::read_to_string("/proc/self/status").unwrap());
    let found = std::cell::RefCell::new(Vec::new());
    let look = || {
        let workers = blastbox_tests::census::family(held.id());
        let threads = workers.iter().flat_map(|process| {
            std::fs::read_dir(format!("/proc/{}/task", process.pid)).into_iter().flatten()
        });
        let texts = threads.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        let ours: Vec<String> = texts.filter(|text| text.starts_with("Name:\tblastbox-wasm")).collect();
        // One thread for the host, four for guests; each has put on the second filter when the guest runs.
        let ready = ours.len() == 5 && ours.iter().all(|text| filters(text) == before.map(|count| count + 2));
        *found.borrow_mut() = ours;
        ready
    };
    assert!(wait_until(look), "{:?}", found.borrow());
    for text in found.borrow().iter() {
        for line in
            ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    held.signal(rustix::process::Signal::TERM);
    held.end();
}

fn a_box_that_stays_runs_commands_and_keeps_files(caller: &Caller) {
    needs!(caller, "python");
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm"]);
    let exec = |code: &str| daemon.ask(["exec", &id, "--", "python", "-c", code]);
    exec("open('kept.txt', 'w').write('of the first')");
    assert_eq!(exec("print(open('kept.txt').read())"), "of the first");
    daemon.ask(["kill", &id]);
    assert_ne!(daemon.blastbox(["exec", &id, "--", "python", "-c", "1"]).end().code, 0);
}

fn a_box_answers_while_another_one_misbehaves_and_so_does_that_one_afterwards(caller: &Caller) {
    needs!(caller, "js");
    let daemon = Served::start(caller, &[]);
    let create = || daemon.ask(["create", "--tier", "wasm", "--memory", "256MiB"]);
    let (bad, good) = (create(), create());
    let answers = |id: &str| assert_eq!(daemon.ask(["exec", id, "--", "js", "-e", "print(6 * 7)"]), "42");
    // One that has no memory left may end by itself.
    let cases = [
        ("for (;;);", true),
        ("const deeper = () => deeper() + 1; for (;;) try { deeper() } catch {}", true),
        ("for (let all = [];;) try { all.push(new Uint8Array(1 << 20).fill(1)) } catch { all = [] }", false),
        ("for (let n = 0; n < 64; n++) print('x'.repeat(1 << 16)); for (;;);", true),
    ];
    for (code, never_ends) in cases {
        let words = ["exec", "--timeout", "3s", &bad, "--", "js", "-e", code];
        let begun = std::time::Instant::now();
        let mut held = daemon.blastbox(words).start();
        answers(&good);
        let is_over = held.is_over();
        // On a host that is too busy for it nothing is said.
        assert!(!never_ends || !is_over || begun.elapsed().as_secs() >= 2, "{code}: it ended at once");
        let ended = held.end();
        assert!(!never_ends || ended.code != 0, "{code}: {}", ended.err);
        answers(&good);
        answers(&bad);
    }
}
