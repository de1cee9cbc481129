//! What cannot be done is refused with a sentence that names it and says what to do, at once, and leaves nothing.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use blastbox_tests::census::Census;
use blastbox_tests::{Caller, Ended, both_ways, wait_until};
use blastbox_wire::receipt::{Outcome, Receipt};
use rustix::process::Signal;

/// No case takes longer. Nothing is measured with it: a run that needs it has hung.
const BOUND: Duration = Duration::from_secs(20);

both_ways!(
    an_unknown_key_of_a_policy_is_named_with_its_place_and_the_one_that_was_meant,
    what_is_no_policy_is_refused,
    an_impossible_limit_is_refused_with_what_is_possible,
    what_is_no_workspace_is_refused,
    what_is_no_image_is_refused,
    a_command_that_cannot_run_is_named_and_has_its_exit_code,
    a_command_line_over_the_kernels_limit_is_refused_in_words,
    a_gigabyte_of_output_passes_in_little_memory,
    output_over_its_limit_ends_the_box,
    a_reader_that_stalls_does_not_stop_the_clock,
    a_reader_of_json_that_stalls_can_be_interrupted,
    a_reader_that_goes_away_ends_the_box,
    closed_streams_are_no_streams,
    a_malformed_variable_is_refused_and_its_neighbour_passes,
    a_misspelt_word_is_refused_with_the_words_there_are,
    nothing_to_run_is_refused_with_an_example,
    a_receipt_that_cannot_be_written_is_refused_before_anything_runs,
    a_terminal_is_not_invented,
    two_sources_of_one_policy_are_refused,
    bytes_that_are_no_text_pass_through,
);

/// Runs `blastbox WORDS` and expects this exit code and these words on standard error.
#[track_caller]
fn expect<W: AsRef<OsStr>>(caller: &Caller, words: &[W], code: i32, says: &[&str]) -> Ended {
    let begun = Instant::now();
    let shown: Vec<String> = words.iter().map(|word| short(word.as_ref())).collect();
    let ended = caller.blastbox(words).end();
    assert!(begun.elapsed() < BOUND, "{shown:?} took {:?}", begun.elapsed());
    assert_eq!(ended.code, code, "{shown:?}: {}{}", ended.text(), ended.err);
    for text in says {
        assert!(ended.err.contains(text), "{shown:?} does not say {text:?}:\n{}", ended.err);
    }
    assert!(!ended.err.contains("blastbox-warden:"), "{shown:?}: the warden complains:\n{}", ended.err);
    ended
}

/// Runs `blastbox run OPTIONS -- echo ran`, which must be refused without running anything.
#[track_caller]
fn refused(caller: &Caller, options: &[&str], says: &[&str]) {
    let words: Vec<&str> = ["run"].iter().chain(options).chain(&["--", "echo", "ran"]).copied().collect();
    let ended = expect(caller, &words, 125, says);
    assert!(ended.err.starts_with("error: "), "{options:?}: {}", ended.err);
    assert_eq!(ended.text(), "", "{options:?}");
}

fn short(word: &OsStr) -> String {
    word.to_string_lossy().chars().take(60).collect()
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path of the test is text").to_owned()
}

fn an_unknown_key_of_a_policy_is_named_with_its_place_and_the_one_that_was_meant(caller: &Caller) {
    let file = text(&caller.file("p.toml", "[kernel]\npids = 9\n  cpuz = 2\n"));
    let census = Census::begin(caller);
    let says = ["p.toml", "line 3, column 3", "\"cpuz\"", "did you mean \"cpus\"", "fix: "];
    refused(caller, &["--policy", &file], &says);
    expect(caller, &["policy", "check", &file], 125, &says);
    expect(caller, &["explain", "--policy", &file], 125, &says);
    census.expect_nothing("an unknown key");
}

fn what_is_no_policy_is_refused(caller: &Caller) {
    let large = text(&caller.file("large.toml", format!("# {}\n", "x".repeat(1 << 20))));
    let deep = text(&caller.file("deep.toml", format!("x = {}", "[".repeat(60_000))));
    let binary = text(&caller.file("binary.toml", b"\xff\xfe\0"));
    let broken = text(&caller.file("broken.toml", "[kernel\n"));
    let wrong = text(&caller.file("wrong.toml", "[kernel]\nmemory = true\n"));
    let directory = text(&caller.directory("directory"));
    let census = Census::begin(caller);
    refused(caller, &["--policy", &large], &["large.toml", "at most 65536", "fix: "]);
    refused(caller, &["--policy", "/dev/zero"], &["/dev/zero", "no file", "fix: name a TOML file"]);
    refused(caller, &["--policy", &deep], &["deep.toml", "fix: "]);
    refused(caller, &["--policy", &binary], &["binary.toml", "UTF-8", "fix: "]);
    refused(caller, &["--policy", &broken], &["broken.toml", "line 1", "fix: "]);
    refused(caller, &["--policy", &wrong], &["wrong.toml", "line 2", "memory", "fix: "]);
    refused(caller, &["--policy", &directory], &[&directory, "directory", "fix: name a TOML file"]);
    refused(
        caller,
        &["--policy", "nowhere.toml"],
        &["nowhere.toml", "No such file", "fix: name a TOML file"],
    );
    census.expect_nothing("no policy");
}

fn an_impossible_limit_is_refused_with_what_is_possible(caller: &Caller) {
    let census = Census::begin(caller);
    let out_of_range = [
        ("--memory", "0", "kernel.memory"),
        ("--memory", "1", "kernel.memory"),
        ("--memory", "9999TiB", "kernel.memory"),
        ("--cpus", "0", "kernel.cpus"),
        ("--cpus", "99999", "kernel.cpus"),
        ("--pids", "0", "kernel.pids"),
        ("--pids", "1", "kernel.pids"),
        ("--pids", "4294967295", "kernel.pids"),
        ("--disk", "0", "files.disk"),
        ("--disk", "9999TiB", "files.disk"),
        ("--timeout", "0", "lifetime.timeout"),
        ("--timeout", "99999999d", "lifetime.timeout"),
        ("--output-limit", "0", "lifetime.output"),
        ("--output-limit", "2TiB", "lifetime.output"),
    ];
    for (flag, value, key) in out_of_range {
        refused(caller, &[flag, value], &[key, "out of range; permitted is ", "fix: "]);
    }
    let words = ["run", "--json", "--output-limit", "2GiB", "--", "echo", "ran"];
    expect(caller, &words, 125, &["--json", "1GiB", "fix: lower --output-limit"]);
    let no_limit = [
        ("--memory", "much", "such as \"512MiB\""),
        ("--memory", "99999999999999999999", "99999999999999999999"),
        ("--memory", "-1", "-1"),
        ("--disk", "16EiB", "unknown unit \"EiB\""),
        ("--cpus", "nan", "such as \"2\""),
        ("--cpus", "-1", "-1"),
        ("--pids", "4294967296", "4294967296"),
        ("--pids", "many", "many"),
        ("--timeout", "soon", "such as \"30s\""),
        ("--timeout", "-5s", "-5s"),
    ];
    for (flag, value, says) in no_limit {
        refused(caller, &[&format!("{flag}={value}")], &[flag, says]);
    }
    census.expect_nothing("impossible limits");
}

fn what_is_no_workspace_is_refused(caller: &Caller) {
    let file = text(&caller.file("file", ""));
    let closed = caller.directory("closed");
    let pipe = caller.place().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .expect("make a pipe");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("close a directory");
    let census = Census::begin(caller);
    let fix = "fix: name an existing directory that you may read";
    for path in [file.as_str(), "/dev/null", &text(&pipe)] {
        refused(caller, &["--workspace", path], &[path, "is not a directory", fix]);
    }
    for path in ["/", "/..", "/proc/self/root", "/usr/../"] {
        refused(caller, &["--workspace", path], &[path, "is the root of this host", fix]);
    }
    refused(caller, &["--workspace", "/nowhere"], &["/nowhere", "No such file", fix]);
    refused(caller, &["--workspace", "/tmp:rw"], &["\"rw\"", "DIR:cow"]);
    refused(caller, &["--workspace", ":ro"], &["the directory is missing"]);
    if !caller.is_root() {
        let closed = text(&closed);
        refused(caller, &["--workspace", &closed], &[&closed, "Permission denied", fix]);
    }
    census.expect_nothing("no workspace");
}

fn what_is_no_image_is_refused(caller: &Caller) {
    let file = text(&caller.file("file", ""));
    let empty = text(&caller.directory("empty"));
    let bare = caller.directory("bare");
    fs::create_dir(bare.join("bin")).expect("make a directory");
    let bare = text(&bare);
    let census = Census::begin(caller);
    let fix = "fix: use --image host, or a directory that holds a whole root file system";
    refused(caller, &["--image", "/nowhere"], &["/nowhere", "No such file", fix]);
    refused(caller, &["--image", &file], &[&file, "is not a directory", fix]);
    refused(caller, &["--image", &empty], &[&empty, "no root file system", fix]);
    for language in ["python", "node", "sh"] {
        let words = ["run", "--image", &bare, "--lang", language];
        let ended = caller.blastbox(words).input("echo ran").end();
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{}", ended.err);
        assert!(ended.err.contains(language) && ended.err.contains(&bare), "{}", ended.err);
    }
    census.expect_nothing("no image");
}

/// The first 64 bytes of a program for another machine.
fn foreign_program() -> Vec<u8> {
    const AARCH64: u16 = 183;
    const EXECUTABLE: u16 = 2;
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend(EXECUTABLE.to_le_bytes());
    header.extend(AARCH64.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    // Entry, program headers right after this header, no section headers, no flags.
    header.extend([0_u64, 64, 0].into_iter().flat_map(u64::to_le_bytes));
    header.extend(0_u32.to_le_bytes());
    header.extend([64_u16, 56, 0, 0, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    assert_eq!(header.len(), 64);
    header
}

fn a_command_that_cannot_run_is_named_and_has_its_exit_code(caller: &Caller) {
    let workspace = caller.directory("workspace");
    let put = |name: &str, bytes: &[u8], mode: u32| {
        let path = workspace.join(name);
        fs::write(&path, bytes).expect("write a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set a mode");
        caller.own(&path);
    };
    put("foreign", &foreign_program(), 0o755);
    put("garbage", b"\x01\x02\x03", 0o755);
    put("empty", b"", 0o755);
    put("script", b"#!/no/such/interpreter\n", 0o755);
    put("loader", b"#!/workspace/foreign\n", 0o755);
    put("plain", b"#!/bin/sh\necho ran\n", 0o644);
    put("fine", b"#!/bin/sh\necho ran\n", 0o755);
    let workspace = text(&workspace);
    let census = Census::begin(caller);
    let cases: [(&str, i32, &str); 12] = [
        ("no-such-command", 127, "was not found"),
        ("/no/such/command", 127, "was not found"),
        ("./missing", 127, "was not found"),
        ("/usr", 126, "cannot be executed"),
        ("/", 126, "cannot be executed"),
        ("/etc/passwd", 126, "cannot be executed"),
        ("./plain", 126, "cannot be executed"),
        ("./foreign", 126, "other architecture"),
        ("./garbage", 126, "no program at all"),
        ("./empty", 126, "no program at all"),
        ("./script", 126, "interpreter"),
        ("./plain/below", 127, "was not found"),
    ];
    for (command, code, says) in cases {
        let words = ["run", "--workspace", &workspace, "--", command, "argument"];
        let ended = expect(caller, &words, code, &[&format!("error: not started: {command}: "), says]);
        assert_eq!(ended.text(), "", "{command}");
    }
    let words = ["run", "--quiet", "--workspace", &workspace, "--", "./loader"];
    expect(caller, &words, 126, &["./loader"]);
    let fine = expect(caller, &["run", "--workspace", &workspace, "--", "./fine"], 0, &[]);
    assert_eq!(fine.text(), "ran\n");
    let long = "x".repeat(5000);
    let ended = expect(caller, &["run", "--", &long], 126, &["xxx…: ", "File name too long"]);
    assert!(ended.err.len() < 400, "{}", ended.err);
    census.expect_nothing("commands that cannot run");
}

fn a_command_line_over_the_kernels_limit_is_refused_in_words(caller: &Caller) {
    let census = Census::begin(caller);
    // As long as one argument and all of them can be.
    let longest = "a".repeat(128 * 1024 - 1);
    let ended = expect(caller, &["run", "-q", "--", "printf", "%s", longest.as_str()], 0, &[]);
    assert_eq!(ended.out.len(), longest.len());
    // A caller with a large stack may pass more than the box can take.
    let script = "ulimit -s unlimited 2>/dev/null || exit 77
        word=$(head -c 100000 /dev/zero | tr '\\0' a)
        set -- \"$@\" $word; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
        set -- \"$@\" $word; done; exec \"$0\" run -- echo \"$@\"";
    let blastbox = text(&caller.blastbox_path());
    let ended = caller.program(Path::new("/bin/sh"), ["-c", script, &blastbox]).end();
    if ended.code == 77 {
        caller.skip("the stack's limit cannot be raised");
    } else {
        assert_eq!(ended.code, 125, "{}", ended.err);
        assert!(ended.err.contains("bytes; the kernel takes at most"), "{}", ended.err);
        assert!(ended.err.contains("fix: pass the data through standard input"), "{}", ended.err);
        assert_eq!(ended.text(), "");
    }
    let many: Vec<&str> = ["run", "--", "true"].into_iter().chain(std::iter::repeat_n("", 70_000)).collect();
    expect(caller, &many, 125, &["at most 65536", "fix: pass the data"]);
    census.expect_nothing("long command lines");
}

/// A pipe whose ends nobody inherits by accident: the reading one first.
fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("make a pipe")
}

fn null() -> OwnedFd {
    fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("open /dev/null").into()
}

/// The largest memory that a process has had, in KiB.
fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn a_gigabyte_of_output_passes_in_little_memory(caller: &Caller) {
    let census = Census::begin(caller);
    let command = ["run", "-q", "--output-limit", "1GiB", "--", "head", "-c", "1073741824", "/dev/zero"];
    let mut held = caller.blastbox(command).start_with([null(), null(), null()]);
    let mut peak = 0;
    wait_until(|| {
        peak = peak_of(held.id()).unwrap_or(peak);
        held.is_over()
    });
    assert_eq!(held.end().code, 0);
    assert!((1..64 * 1024).contains(&peak), "{peak} KiB");
    census.expect_nothing("a gigabyte");
}

fn output_over_its_limit_ends_the_box(caller: &Caller) {
    let census = Census::begin(caller);
    let words = ["run", "--output-limit", "1MiB", "--", "head", "-c", "1073741824", "/dev/zero"];
    let ended = expect(caller, &words, 153, &["too much output", "limits met: output"]);
    assert!(ended.out.len() <= 1 << 20, "{}", ended.out.len());
    let words = ["run", "--output-limit", "1MiB", "--", "head", "-c", "1048576", "/dev/zero"];
    assert_eq!(expect(caller, &words, 0, &[]).out.len(), 1 << 20);
    census.expect_nothing("too much output");
}

fn a_reader_that_stalls_does_not_stop_the_clock(caller: &Caller) {
    let census = Census::begin(caller);
    // Nobody reads errors either.
    let (reader, writer) = pipe();
    let both = writer.try_clone().expect("copy a descriptor");
    let words = ["run", "--timeout", "1s", "--output-limit", "1GiB", "--", "sh", "-c", "yes >&2 & yes"];
    let begun = Instant::now();
    let ended = caller.blastbox(words).start_with([null(), writer, both]).end();
    assert!(begun.elapsed() < BOUND);
    assert_eq!(ended.code, 124);
    drop(reader);
    census.expect_nothing("a stalled reader");
}

fn a_reader_of_json_that_stalls_can_be_interrupted(caller: &Caller) {
    let census = Census::begin(caller);
    let receipt = text(&caller.place().join("r.json"));
    let (reader, writer) = pipe();
    let words = ["run", "--json", "--receipt", &receipt, "--", "head", "-c", "1000000", "/dev/zero"];
    let held = caller.blastbox(words).start_with([null(), writer, null()]);
    // The receipt is written when nothing is left of the box; then the document is, which nobody reads.
    assert!(wait_until(|| Path::new(&receipt).exists()));
    held.signal(Signal::TERM);
    assert_eq!(held.end().code, 143);
    drop(reader);
    fs::remove_file(&receipt).expect("remove the receipt");
    census.expect_nothing("a stalled reader of JSON");
}

fn a_reader_that_goes_away_ends_the_box(caller: &Caller) {
    let census = Census::begin(caller);
    let (reader, writer) = pipe();
    let held = caller.blastbox(["run", "--timeout", "10m", "--", "yes"]).start_with([null(), writer, null()]);
    assert_eq!(rustix::io::read(&reader, &mut [0_u8; 2]), Ok(2));
    drop(reader);
    assert_eq!(held.end().code, 141);
    census.expect_nothing("a reader that went away");
}

fn closed_streams_are_no_streams(caller: &Caller) {
    let census = Census::begin(caller);
    let blastbox = text(&caller.blastbox_path());
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" run -i -- cat {closed}");
        let begun = Instant::now();
        let ended = caller.program(Path::new("/bin/sh"), ["-c", &script, &blastbox]).end();
        assert!(begun.elapsed() < BOUND);
        assert_eq!(ended.code, 0, "{closed}: {}", ended.err);
    }
    // What is said to a closed stream goes nowhere, as if it were /dev/null: not into a file that has its number now.
    let script = "exec \"$0\" run -q --receipt r.json -- sh -c 'echo x; echo y >&2; exit 3' >&- 2>&-";
    let ended = caller.program(Path::new("/bin/sh"), ["-c", script, &blastbox]).end();
    assert_eq!((ended.code, ended.text().as_str(), ended.err.as_str()), (3, "", ""));
    let receipt = fs::read(caller.place().join("r.json")).expect("read the receipt");
    let receipt: Receipt = serde_json::from_slice(&receipt).expect("it holds a receipt alone");
    assert_eq!((receipt.outcome, receipt.output.stdout_bytes), (Outcome::Exited, 2));
    fs::remove_file(caller.place().join("r.json")).expect("remove the receipt");
    // A box whose caller has no streams does not get the box's own descriptors in their place.
    let script = "exec \"$0\" run -q -- sh -c 'ls -l /proc/self/fd | grep -c socket' <&- 2>&-";
    let ended = caller.program(Path::new("/bin/sh"), ["-c", script, &blastbox]).end();
    assert_eq!(ended.text(), "0\n", "{}", ended.err);
    census.expect_nothing("closed streams");
}

fn a_malformed_variable_is_refused_and_its_neighbour_passes(caller: &Caller) {
    let census = Census::begin(caller);
    refused(caller, &["--env", "HOME"], &["HOME=value"]);
    refused(caller, &["--env", "=x"], &["the name before `=` is missing"]);
    refused(caller, &["--env", ""], &["--env"]);
    let boxed = caller.sh(&["--env", "A=", "--env", "B=c=d", "--env", "B=e"], "echo \"[$A][$B]\"");
    assert_eq!(boxed.stdout, "[][e]\n");
    census.expect_nothing("variables");
}

fn a_misspelt_word_is_refused_with_the_words_there_are(caller: &Caller) {
    let census = Census::begin(caller);
    refused(caller, &["--accept", "shared-kernal"], &["did you mean \"shared-kernel\""]);
    refused(caller, &["--tier", "jial"], &["did you mean \"jail\""]);
    refused(caller, &["--profile", "strickt"], &["did you mean \"strict\""]);
    refused(caller, &["--threat", "hihg"], &["did you mean \"high\""]);
    refused(caller, &["--memroy", "64MiB"], &["--memroy", "'--memory'"]);
    expect(caller, &["run", "--lang", "pyton"], 125, &["\"pyton\"", "\"python\"", "\"node\""]);
    expect(caller, &["runn", "--", "true"], 125, &["'runn'", "'run'"]);
    census.expect_nothing("misspelt words");
}

fn nothing_to_run_is_refused_with_an_example(caller: &Caller) {
    let census = Census::begin(caller);
    for words in [&["run"][..], &["run", "--"], &["run", "--", ""], &["run", "--", "", "x"]] {
        expect(caller, words, 125, &["there is no command to run", "fix: write `blastbox run -- COMMAND`"]);
    }
    census.expect_nothing("nothing to run");
}

fn a_receipt_that_cannot_be_written_is_refused_before_anything_runs(caller: &Caller) {
    let directory = text(&caller.directory("directory"));
    let pipe = caller.place().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .expect("make a pipe");
    caller.own(&pipe);
    let pipe = text(&pipe);
    let fix = "fix: name a file in a directory that you may write to";
    let mut census = Census::begin(caller);
    refused(caller, &["--receipt", "/nowhere/r.json"], &["/nowhere/r.json", "No such file", fix]);
    refused(caller, &["--receipt", "file/r.json"], &["file/r.json", fix]);
    refused(caller, &["--receipt", &directory], &[&directory, "directory", fix]);
    refused(caller, &["--receipt", &pipe], &[&pipe, "nobody reads", fix]);
    refused(caller, &["--receipt", "/proc/r.json"], &["/proc/r.json", fix]);
    if !caller.is_root() {
        refused(caller, &["--receipt", "/etc/r.json"], &["/etc/r.json", "Permission denied", fix]);
    }
    // And one that can be written replaces what was there, for its owner alone.
    let receipt = caller.file("r.json", "old");
    census.expect_file("r.json");
    expect(caller, &["run", "--receipt", "r.json", "--", "true"], 0, &[]);
    let written = fs::read_to_string(&receipt).expect("read the receipt");
    assert!(written.contains("\"outcome\": \"exited\""), "{written}");
    assert_eq!(fs::metadata(&receipt).expect("look at it").permissions().mode() & 0o777, 0o600);
    census.expect_nothing("receipts");
}

fn a_terminal_is_not_invented(caller: &Caller) {
    let census = Census::begin(caller);
    refused(caller, &["--tty"], &["--tty needs a terminal", "fix: leave out -t"]);
    refused(caller, &["-t", "--json"], &["--json", "--tty"]);
    census.expect_nothing("no terminal");
}

fn two_sources_of_one_policy_are_refused(caller: &Caller) {
    let census = Census::begin(caller);
    refused(caller, &["--policy", "p.toml", "--profile", "strict"], &["--policy", "--profile"]);
    refused(caller, &["--threat", "low", "--profile", "strict"], &["--threat", "--profile"]);
    refused(caller, &["--threat", "low", "--policy", "p.toml"], &["--threat", "--policy"]);
    expect(caller, &["run", "--lang", "sh", "--tty"], 125, &["--lang", "--tty"]);
    census.expect_nothing("two sources");
}

fn bytes_that_are_no_text_pass_through(caller: &Caller) {
    let odd = caller.place().path().join(OsStr::from_bytes(b"w\xff"));
    fs::create_dir(&odd).expect("make a directory");
    fs::write(odd.join("file"), "here").expect("write a file");
    caller.own(&odd);
    caller.own(&odd.join("file"));
    let census = Census::begin(caller);
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let words = [word(b"run"), word(b"--"), word(b"printf"), word(b"%s"), word(b"\xff\xfe")];
    assert_eq!(expect(caller, &words, 0, &[]).out, b"\xff\xfe");
    let script = word(b"printf %s \"$A\"");
    let words = [b"run", &b"--env"[..], b"A=\xff\n\x1b", b"--", b"sh", b"-c"].map(word);
    let words: Vec<OsString> = words.into_iter().chain([script]).collect();
    assert_eq!(expect(caller, &words, 0, &[]).out, b"\xff\n\x1b");
    let mut workspace = odd.into_os_string();
    workspace.push(":ro");
    let words = [word(b"run"), word(b"--workspace"), workspace, word(b"--"), word(b"cat"), word(b"file")];
    assert_eq!(expect(caller, &words, 0, &[]).text(), "here");
    // What is printed about a command cannot steer the terminal of whoever reads it.
    let words = [word(b"run"), word(b"--"), word(b"no\x1b[2Jsuch\xff")];
    let ended = expect(caller, &words, 127, &["not started: no\\u{1b}[2Jsuch"]);
    assert!(!ended.err.contains('\u{1b}'), "{:?}", ended.err);
    census.expect_nothing("bytes");
}
