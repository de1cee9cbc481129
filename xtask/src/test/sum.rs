//! What the test programs report, line by line, added up.

use std::collections::BTreeSet;

/// More than so many failures are no accident.
pub(super) const ACCIDENTS: usize = 3;
/// Lines of what failed tests said that are kept.
const MOST_SAID: usize = 400;

/// What the test programs reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    /// The tests that failed.
    pub(super) names: BTreeSet<String>,
    /// What they said: libtest prints it between two lines of its own.
    pub(super) said: Vec<String>,
    /// Whether that is what comes now.
    saying: bool,
    /// The program that runs, until it sums up.
    running: Option<Program>,
    /// Tests of which nothing is known: their program was ended before their turn.
    unheard: usize,
}

/// What one test program has told so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Program {
    tests: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Those that take long.
    slow: BTreeSet<String>,
}

impl Program {
    /// Takes down what became of one test.
    fn add(&mut self, line: &str) {
        let Some(line) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = line.split_once(" has been running for over ") {
            self.slow.insert(name.to_owned());
        }
        let Some((name, end)) = line.rsplit_once(" ... ") else { return };
        match end.split(',').next() {
            Some("ok") => self.passed += 1,
            Some("FAILED") => self.failed += 1,
            Some("ignored") => self.ignored += 1,
            _ => return,
        }
        self.slow.remove(name);
    }
}

impl Sum {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and the name of a test that failed; other
    /// lines change nothing.
    pub(super) fn add(&mut self, line: &str) {
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
        if let Some(tests) =
            line.strip_prefix("running ").and_then(|rest| rest.split(' ').next()?.parse().ok())
            // What a failed test said may look like anything.
            && !self.saying
        {
            if self.is_running() {
                self.hung("its program ended without summing up");
            }
            self.running = Some(Program { tests, ..Program::default() });
        }
        if let Some(program) = &mut self.running {
            program.add(line);
        }
        let Some(result) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        self.running = None;
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

    /// Whether a test program has begun and not summed up.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The program that runs was ended, because nothing came of it any more, or died: it will not sum up, and those that it ran have failed.
    /// Where it ran none that is known (before its first test, between two, after its last) it has failed itself, and a second look at
    /// other tests says nothing about that.
    pub(super) fn hung(&mut self, why: &str) {
        let Some(program) = self.running.take() else {
            self.failed += 1;
            return;
        };
        let told = program.passed + program.failed + program.ignored + program.slow.len();
        self.passed += program.passed;
        self.failed += program.failed + program.slow.len().max(1);
        self.skipped += program.ignored;
        self.unheard += program.tests.saturating_sub(told);
        self.said.extend(program.slow.iter().map(|name| format!("{name} never ended: {why}")));
        self.names.extend(program.slow);
    }

    /// Takes over what was heard of another program, which is over.
    pub(super) fn join(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unheard += other.unheard;
        self.names.extend(other.names);
        self.said.extend(other.said);
        self.said.truncate(MOST_SAID);
    }

    /// How many tests nobody heard of.
    pub(super) fn unheard(&self) -> usize {
        self.unheard
    }

    /// Whether so little failed, and all of it by name, that a second look is worth it.
    pub(super) fn is_accident(&self) -> bool {
        (1..=ACCIDENTS).contains(&self.failed) && self.names.len() == self.failed && self.unheard == 0
    }

    pub(super) fn listed(&self) -> String {
        self.names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Moves the tests that skipped themselves from passed to skipped, and adds the parts that others left out. What skipped
    /// twice is one. A test that failed is neither: it was not counted as passed.
    pub(super) fn skip(&mut self, reports: &str) {
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
    fn what_two_programs_said_is_one_sum() {
        let heard = |name: &str| {
            let mut sum = Sum::default();
            for line in ["running 10 tests", &format!("test {name} ... FAILED"), OK] {
                sum.add(line);
            }
            sum.failed += 1;
            sum.unheard = 2;
            sum
        };
        let mut both = heard("a");
        both.join(heard("b"));
        assert_eq!((both.passed, both.failed, both.skipped, both.unheard()), (10, 2, 2, 4));
        assert_eq!(both.listed(), "a, b");
    }

    #[test]
    fn a_program_that_dies_has_failed_and_gets_no_second_look() {
        let added = |lines: &[&str]| {
            let mut sum = Sum::default();
            lines.iter().for_each(|line| sum.add(line));
            sum
        };
        let flaky = ["running 1 test", "test b ... FAILED", "test result: FAILED. 0 passed; 1 failed"];
        assert!(added(&flaky).is_accident());
        // All told and no sum, or nothing told at all: a second look at `b` would say nothing about it.
        for died in
            [&["running 1 test", "test a ... ok"][..], &["running 1 test"][..], &["running 0 tests"][..]]
        {
            let sum = added(&[died, &flaky[..]].concat());
            assert_eq!((sum.failed, sum.is_accident()), (2, false), "{died:?}");
        }
        let said =
            ["running 1 test", "test b ... FAILED", "---- b stdout ----", "running 7 tests", "failures:"];
        assert!(added(&[&said[..], &flaky[2..]].concat()).is_accident(), "what a test said is no program");
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
    fn a_program_that_was_ended_has_failed_by_the_name_of_what_it_hung_in() {
        let heard = |tests: usize| {
            let mut sum = Sum::default();
            sum.add(&format!("running {tests} tests"));
            for line in
                ["test a ... ok", "test b has been running for over 60 seconds", "test c ... ignored, why"]
            {
                sum.add(line);
            }
            sum.add("test d has been running for over 60 seconds");
            sum.add("test d ... ok");
            assert!(sum.is_running());
            sum.hung("silent");
            sum
        };
        let whole = heard(4);
        assert_eq!((whole.passed, whole.failed, whole.skipped), (2, 1, 1));
        assert!(!whole.is_running() && whole.is_accident() && whole.listed() == "b");
        assert_eq!(whole.said, ["b never ended: silent"]);
        let cut = heard(9);
        assert!(
            cut.unheard() == 5 && !cut.is_accident(),
            "a second look at one says nothing about the others"
        );
    }

    #[test]
    fn a_program_that_hung_outside_its_tests_has_failed_and_gets_no_second_look() {
        let mut sum = Sum::default();
        for line in ["running 6 tests", "test a ... FAILED", OK] {
            sum.add(line);
        }
        sum.failed = 1;
        assert!(!sum.is_running() && sum.is_accident());
        sum.hung("silent");
        assert_eq!((sum.passed, sum.failed, sum.unheard()), (5, 2, 0));
        assert!(!sum.is_accident(), "one of the two cannot be named");
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
