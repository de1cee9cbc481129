//! How a run begins: its warden is started before the C library is, and the first process of its box before there is a plan.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use blastbox_tests::census::Census;
use blastbox_tests::{Caller, Who, both_ways};

both_ways!(
    the_warden_is_started_before_the_library_and_from_a_view_that_nobody_can_write,
    a_run_with_closed_streams_begins_as_any_other,
    a_run_that_has_one_processor_begins_as_any_other,
    a_box_has_every_processor_that_its_caller_has,
    a_plan_that_does_not_fit_what_was_made_for_it_gets_a_box_of_its_own,
);

const STRACE: &str = "/usr/bin/strace";

/// What strace has seen of a run, line by line; `None` where it may not look.
fn seen(caller: &Caller, census: &mut Census, blastbox: &Path, options: &[&str]) -> Option<Vec<String>> {
    let strace = Path::new(STRACE);
    if !strace.exists() || caller.program(strace, ["-qq", "-o", "/dev/null", "/bin/true"]).end().code != 0 {
        caller.skip("strace is not installed, or may not trace");
        return None;
    }
    census.expect_file("log");
    let log = caller.place().join("log");
    let mut words: Vec<String> = ["-f", "-qq", "-o", &log.display().to_string()].map(str::to_owned).into();
    words.push(blastbox.display().to_string());
    words.extend(["run"].iter().chain(options).chain(&["--", "/bin/true"]).map(|&word| word.to_owned()));
    let ended = census.watch(caller.program(strace, words).start());
    assert_eq!(ended.code, 0, "{}", ended.err);
    census.expect_nothing("a run that was looked at");
    Some(std::fs::read_to_string(&log).expect("read the log").lines().map(str::to_owned).collect())
}

/// Where the first line with this in it is.
fn first(lines: &[String], what: &str) -> usize {
    lines.iter().position(|line| line.contains(what)).unwrap_or(usize::MAX)
}

fn the_warden_is_started_before_the_library_and_from_a_view_that_nobody_can_write(caller: &Caller) {
    let mut census = Census::begin(caller);
    let program = std::fs::read(caller.blastbox_path()).expect("read the program");
    if program.windows(11).any(|bytes| bytes == b".debug_info") {
        caller.skip("these programs are not optimized, and begin the usual way");
        return;
    }
    let programs = caller.blastbox_path();
    let owner = std::fs::metadata(&programs).expect("look at the program").uid();
    // An ordinary user who runs these tests has built the programs himself.
    if caller.who() != Who::User(owner) {
        begins_early(caller, &mut census, &programs);
    }
    if !caller.is_root() {
        // Whoever may not mount, and could write to the program, goes the usual way: a sealed copy, for which a library is needed.
        census.expect_file("own-programs");
        let own = caller.own_programs().join("blastbox");
        let Some(lines) = seen(caller, &mut census, &own, &[]) else { return };
        let (library, sealed) = (first(&lines, "brk(NULL"), first(&lines, "memfd_create("));
        assert!(library < sealed && sealed < usize::MAX, "not from a sealed copy: {sealed}");
    }
}

fn begins_early(caller: &Caller, census: &mut Census, blastbox: &Path) {
    let Some(lines) = seen(caller, census, blastbox, &[]) else { return };
    // The first thing of the library's own that the kernel hears of.
    let library = first(&lines, "brk(NULL");
    let forked = first(&lines, "clone(");
    assert!(forked < library, "the warden was forked at line {forked}, the library began at {library}");
    assert_eq!(first(&lines, "memfd_create("), usize::MAX, "the program was copied");
    if caller.is_root() {
        assert!(first(&lines, "MOUNT_ATTR_RDONLY") < forked, "not from a read-only view");
    }
}

fn a_run_with_closed_streams_begins_as_any_other(caller: &Caller) {
    let mut census = Census::begin(caller);
    let blastbox = caller.blastbox_path().display().to_string();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" run --quiet -- /bin/sh -c 'exit 7' {closed}");
        let words = ["-c", &script, &blastbox];
        let ended = census.watch(caller.program(Path::new("/bin/sh"), words).start());
        assert_eq!(ended.code, 7, "{closed}: {}", ended.err);
        census.expect_nothing(closed);
    }
}

/// There the warden, and the first process of its box, begin where their parents are, and have nowhere else to go.
fn a_run_that_has_one_processor_begins_as_any_other(caller: &Caller) {
    let taskset = Path::new("/usr/bin/taskset");
    if !taskset.exists() {
        return caller.skip("there is no /usr/bin/taskset (apt-get install util-linux)");
    }
    let mut census = Census::begin(caller);
    let allowed = rustix::thread::sched_getaffinity(None).expect("ask for the processors");
    let one = (0..rustix::thread::CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor));
    let (one, blastbox) =
        (one.expect("a processor").to_string(), caller.blastbox_path().display().to_string());
    for _ in 0..5 {
        let words = ["-c", &one, &blastbox, "run", "--quiet", "--", "/bin/sh", "-c", "exit 7"];
        let ended = census.watch(caller.program(taskset, words).start());
        assert_eq!(ended.code, 7, "{}", ended.err);
        census.expect_nothing("a run on one processor");
    }
}

fn a_box_has_every_processor_that_its_caller_has(caller: &Caller) {
    let allowed = rustix::thread::sched_getaffinity(None).expect("ask for the processors").count();
    let count = "import os; print(len(os.sched_getaffinity(0)))";
    for _ in 0..20 {
        let ended = caller.blastbox(["run", "--quiet", "--", "/usr/bin/python3", "-c", count]).end();
        assert_eq!(
            (ended.code, ended.out.trim_ascii()),
            (0, allowed.to_string().as_bytes()),
            "{}",
            ended.err
        );
    }
}

fn a_plan_that_does_not_fit_what_was_made_for_it_gets_a_box_of_its_own(caller: &Caller) {
    let mut census = Census::begin(caller);
    let directory = caller.directory("work").display().to_string();
    census.expect_file("work");
    let options: [&[&str]; 4] =
        [&["--memory", "300M"], &["--pids", "77"], &["--cpus", "0.5"], &["--workspace", &directory]];
    for options in options {
        let words = ["run", "--quiet"].iter().chain(options).chain(&["--", "/bin/sh", "-c", "exit 7"]);
        let ended = census.watch(caller.blastbox(words).start());
        assert_eq!(ended.code, 7, "{options:?}: {}", ended.err);
        census.expect_nothing(&format!("{options:?}"));
    }
}
