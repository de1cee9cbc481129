//! `cargo xtask test`: runs every test and ends with one line that says how many passed, failed and were skipped.
//!
//! libtest swallows what a passing test prints, so a test that cannot run on this host appends
//! `SKIPPED: <name>: <reason>` to the file that `BLASTBOX_SKIPS` names (`tests/skips`). Such a test counts as skipped, not as
//! passed. `LEFT OUT: <name>: <part>: <reason>` is a part of a test that ran without it, which counts as skipped beside it.
//!
//! A few tests that failed are tried once more, alone. One that passes then is *unsteady*: named in the last lines and counted
//! apart, with what it said when it failed. It is a defect of the test or of what it tests, but says nothing about the change at hand.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::{Outcome, house, run};

/// How long the output may stay open after cargo has ended before it counts as held by a leaked process.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than so many failures are no accident.
const ACCIDENTS: usize = 3;
/// Lines of what failed tests said that are kept.
const MOST_SAID: usize = 400;

/// What the test programs reported, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// The tests that failed.
    names: BTreeSet<String>,
    /// What they said: libtest prints it between two lines of its own.
    said: Vec<String>,
    /// Whether that is what comes now.
    saying: bool,
}

impl Sum {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and the name of a test that failed; other
    /// lines change nothing.
    fn add(&mut self, line: &str) {
        self.saying = match line {
            _ if line.starts_with("---- ") && line.ends_with(" stdout ----") => true,
            "failures:" => false,
            _ => self.saying,
        };
        if self.saying && self.said.len() < MOST_SAID {
            self.said.push(line.to_owned());
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.names.insert(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for (count, what) in result.1.split(';').filter_map(|part| part.trim().split_once(' ')) {
            let count = count.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.skipped += count,
                _ => {}
            }
        }
    }

    /// Whether so little failed, and all of it by name, that a second look is worth it.
    fn is_accident(&self) -> bool {
        (1..=ACCIDENTS).contains(&self.failed) && self.names.len() == self.failed
    }

    fn listed(&self) -> String {
        self.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Moves the tests that skipped themselves from passed to skipped, and adds the parts that others left out. What skipped
    /// twice is one. A test that failed is neither: it was not counted as passed.
    fn skip(&mut self, reports: &str) {
        let lines = || reports.lines().filter(|line| !line.trim().is_empty());
        let parts: BTreeSet<&str> = lines().filter_map(|line| line.strip_prefix("LEFT OUT: ")).collect();
        let whole: BTreeSet<&str> = lines()
            .filter(|line| !line.starts_with("LEFT OUT: "))
            .map(|line| line.strip_prefix("SKIPPED: ").unwrap_or(line))
            .map(|report| report.split_once(": ").map_or(report, |(name, _)| name))
            .filter(|name| !self.has_failed(name))
            .collect();
        self.passed = self.passed.saturating_sub(whole.len());
        self.skipped += whole.len() + parts.len();
    }

    /// A report may have the name of its program or module in front, or lack it.
    fn has_failed(&self, name: &str) -> bool {
        let within = |long: &str, short: &str| {
            long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
        };
        self.names.iter().any(|failed| within(failed, name) || within(name, failed))
    }
}

/// How the run of cargo ended.
struct End {
    status: ExitStatus,
    leaked: bool,
}

/// Runs all tests of the workspace. `BLASTBOX_BIN_DIR` tells the integration tests where the built programs are.
pub(crate) fn test() -> io::Result<Outcome> {
    let root = house::root()?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let programs =
        std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(|| target.join("blastbox"), |dir| root.join(dir));
    let skips = target.join("skips.txt");
    empty(&skips)?;

    let tests = |only: &BTreeSet<String>| -> io::Result<(Sum, End)> {
        let mut cargo = run::cargo(&root);
        cargo.args(["test", "--workspace", "--no-fail-fast"]);
        if !only.is_empty() {
            cargo.args(["--", "--exact", "--test-threads=1"]).args(only);
        }
        cargo.env("BLASTBOX_BIN_DIR", &programs).env("BLASTBOX_SKIPS", &skips).stdout(Stdio::piped());
        let mut sum = Sum::default();
        let end = follow(cargo.spawn()?, &mut sum)?;
        Ok((sum, end))
    };
    let (mut sum, mut end) = tests(&BTreeSet::new())?;
    let (mut unsteady, mut said) = (BTreeSet::new(), Vec::new());
    if sum.is_accident() && !end.leaked {
        println!("\ntried once more, alone: {}\n", sum.listed());
        let (again, ended) = tests(&sum.names)?;
        if ended.status.success() && !ended.leaked && again.passed >= sum.names.len() {
            sum.failed = 0;
            unsteady = std::mem::take(&mut sum.names);
            said = std::mem::take(&mut sum.said);
            end = ended;
        }
    }

    let reports = std::fs::read_to_string(&skips)?;
    print!("{reports}");
    sum.skip(&reports);
    if end.leaked {
        println!("a process that a test started is still alive and holds the output: the test must end it");
    }
    if !end.status.success() && sum.failed == 0 {
        println!("cargo test ended with {} before every test could report", end.status);
    }
    if !unsteady.is_empty() {
        println!("\nwhat they said when they failed:\n{}\n", said.join("\n"));
    }
    for name in &unsteady {
        println!("UNSTEADY: {name}: failed once and passed alone; somebody has to find out why");
    }
    println!(
        "\n{} passed, {} failed, {} skipped, {} unsteady",
        sum.passed,
        sum.failed,
        sum.skipped,
        unsteady.len()
    );
    Ok(if end.status.success() && !end.leaked { Outcome::Clean } else { Outcome::Findings })
}

/// An empty file that tests of every user may append to: some of them run as an ordinary user.
fn empty(skips: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let named = |source: io::Error| {
        io::Error::new(source.kind(), format!("cannot write {}: {source}", skips.display()))
    };
    std::fs::create_dir_all(skips.parent().map(PathBuf::from).unwrap_or_default()).map_err(named)?;
    std::fs::write(skips, "").map_err(named)?;
    std::fs::set_permissions(skips, std::fs::Permissions::from_mode(0o666)).map_err(named)
}

/// Shows the output of cargo as it comes and adds up the results.
fn follow(mut cargo: Child, sum: &mut Sum) -> io::Result<End> {
    let lines = read_aside(cargo.stdout.take().ok_or_else(|| io::Error::other("cargo test has no output"))?);
    let mut ended = None;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                sum.add(&line);
                println!("{line}");
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(End { status: cargo.wait()?, leaked: false }),
            // Silent for a while: either a test takes its time, or cargo is gone and somebody else holds the pipe.
            Err(RecvTimeoutError::Timeout) => match ended {
                Some(status) => return Ok(End { status, leaked: true }),
                None => ended = cargo.try_wait()?,
            },
        }
    }
}

/// Reads lines on a thread of its own, so that a pipe that never closes cannot hold us.
fn read_aside(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str =
        "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
    const BAD: &str =
        "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s";

    #[test]
    fn results_of_several_programs_add_up() {
        let mut sum = Sum::default();
        for line in ["running 6 tests", OK, "test result says nothing", BAD] {
            sum.add(line);
        }
        assert_eq!((sum.passed, sum.failed, sum.skipped), (7, 3, 1));
    }

    #[test]
    fn only_a_few_named_failures_get_a_second_look() {
        let failed = |names: &[&str], failed| {
            let mut sum = Sum { failed, ..Sum::default() };
            for name in names {
                sum.add(&format!("test {name} ... FAILED"));
            }
            sum.is_accident()
        };
        assert!(failed(&["a::b"], 1) && failed(&["a", "b", "c"], 3));
        assert!(!failed(&[], 0), "nothing failed");
        assert!(!failed(&["a"], 2), "one of them cannot be named");
        assert!(!failed(&["a", "b", "c", "d"], 4), "too many");
    }

    #[test]
    fn what_a_failed_test_said_is_kept() {
        let mut sum = Sum::default();
        let printed = "test a::b ... FAILED\n\nfailures:\n\n---- a::b stdout ----\nleft: 1\n\n\nfailures:\n    a::b\n\nnext";
        printed.lines().for_each(|line| sum.add(line));
        assert_eq!(sum.said, ["---- a::b stdout ----", "left: 1", "", ""]);
        (0..1_000).for_each(|_| sum.add("---- a::c stdout ----"));
        assert_eq!(sum.said.len(), MOST_SAID);
    }

    #[test]
    fn a_skipped_test_is_not_a_passed_test() {
        let mut sum = Sum { passed: 5, skipped: 1, ..Sum::default() };
        sum.skip("SKIPPED: jail::holds: no root\nSKIPPED: jail::holds: no cgroup\n\nSKIPPED: vm: no /dev/kvm: none\n");
        assert_eq!((sum.passed, sum.skipped), (3, 3));
    }

    #[test]
    fn two_tests_of_one_name_are_two() {
        let mut sum = Sum { passed: 5, ..Sum::default() };
        sum.skip("SKIPPED: jail::holds: no root\nSKIPPED: gvisor::holds: no runsc\nSKIPPED: jail::holds: no root\n");
        assert_eq!((sum.passed, sum.skipped), (3, 2));
    }

    #[test]
    fn a_part_that_was_left_out_is_skipped_beside_its_test() {
        let mut sum = Sum { passed: 5, ..Sum::default() };
        sum.skip("LEFT OUT: crash: paused: no freezer\nLEFT OUT: crash: resumed: no freezer\nLEFT OUT: crash: paused: no freezer\n");
        assert_eq!((sum.passed, sum.skipped), (5, 2));
    }

    #[test]
    fn a_test_that_said_it_skips_and_then_failed_has_failed() {
        let mut sum = Sum { passed: 5, failed: 2, ..Sum::default() };
        sum.add("test holds::as_root ... FAILED");
        sum.add("test boxes::are_made ... FAILED");
        sum.skip("SKIPPED: jail::holds::as_root: no root\nSKIPPED: are_made: no warden\nSKIPPED: made: no warden\n");
        assert_eq!((sum.passed, sum.failed, sum.skipped), (4, 2, 1));
    }

    #[test]
    fn no_reports_mean_no_skips() {
        let mut sum = Sum { passed: 5, ..Sum::default() };
        sum.skip("");
        assert_eq!((sum.passed, sum.skipped), (5, 0));
    }
}
