//! One test program, from its start to its end: what came of it, and what it hung in.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, ChildStdout, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::sum::Sum;
use super::{hung, work};

/// How long the output may stay open after the program has ended before it counts as held by a leaked process.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long nothing may come of a test program before it is ended: several times what the longest of them takes altogether. A test that
/// waits for ever would otherwise take the whole run with it.
const SILENCE: Duration = Duration::from_secs(480);

/// How often in a row something that hangs is ended in vain (its process waits in the kernel, where no signal reaches it).
pub(super) const MOST_IN_VAIN: usize = 2;

/// How a program ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself, or because it was killed.
    Over(ExitStatus),
    /// The same, and somebody else still holds its output.
    Leaked,
    /// It hangs and cannot be ended.
    GivenUp,
}

impl End {
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Self::Over(status) if status.success())
    }
}

/// What came of one program.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) sum: Sum,
    pub(super) end: End,
    pub(super) lines: Vec<String>,
    pub(super) took: Duration,
    /// Seconds of processors that it took with everybody whom it has waited for: what others do on the host changes them little.
    pub(super) worked: u64,
}

impl Heard {
    /// The tests that failed, where a second look at them would say something about this program: they have names, and it ended.
    pub(super) fn worth_a_second_look(&self) -> Option<&BTreeSet<String>> {
        let over = matches!(self.end, End::Over(_));
        (over && self.sum.is_accident()).then_some(&self.sum.names)
    }
}

/// Listens to a program until it is over, and adds up its results.
pub(super) fn follow(mut program: Child) -> io::Result<Heard> {
    let begun = Instant::now();
    let output = program.stdout.take().ok_or_else(|| io::Error::other("a test program has no output"))?;
    let (lines, mut sum, mut kept) = (read_aside(output), Sum::default(), Vec::new());
    let (mut ended, mut heard, mut in_vain, mut worked) = (None, Instant::now(), 0, 0);
    let end = loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                (heard, in_vain) = (Instant::now(), 0);
                sum.add(&line);
                kept.push(line);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if sum.is_running() {
                    sum.hung("its program ended without summing up");
                }
                // Gone it has none any more: who has closed its output is ending, or waits for us.
                worked = work::seconds(program.id());
                break End::Over(program.wait()?);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Silent for a while: a test takes its time, or the program is gone and somebody else holds the pipe.
        if ended.is_some() {
            break End::Leaked;
        }
        ended = program.try_wait()?;
        if ended.is_some() || heard.elapsed() <= SILENCE {
            continue;
        }
        if in_vain == MOST_IN_VAIN {
            break End::GivenUp;
        }
        let why = format!("nothing came of it for {} s, and it was ended", SILENCE.as_secs());
        hung::end(program.id())?;
        kept.push(format!("hangs: {why}"));
        if in_vain == 0 {
            sum.hung(&why);
        }
        (heard, in_vain) = (Instant::now(), in_vain + 1);
    };
    Ok(Heard { sum, end, lines: kept, took: begun.elapsed(), worked })
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
    use std::path::Path;
    use std::process::Stdio;

    use super::*;
    use crate::run;

    fn heard(script: &str) -> Heard {
        let mut shell = run::program("sh", Path::new("/"));
        follow(shell.args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap()).unwrap()
    }

    #[test]
    fn a_program_is_followed_to_its_end() {
        let fine =
            heard("echo running 1 test; echo 'test a ... ok'; echo 'test result: ok. 1 passed; 0 failed'");
        assert!(fine.end.is_clean() && fine.worth_a_second_look().is_none());
        assert_eq!((fine.sum.passed, fine.lines.len()), (1, 3));
        let bad = heard(
            "echo running 1 test; echo 'test a ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed'; exit 1",
        );
        assert!(!bad.end.is_clean() && bad.worth_a_second_look().is_some_and(|names| names.contains("a")));
        let dead = heard("echo running 1 test; kill -9 $$");
        assert!(!dead.end.is_clean() && dead.worth_a_second_look().is_none());
        assert_eq!(dead.sum.failed, 1);
    }

    #[test]
    fn a_program_is_told_with_the_work_of_those_whom_it_waited_for() {
        let heard =
            heard("sh -c 'n=0; while [ $n -lt 1500000 ]; do n=$((n + 1)); done'; echo 'running 0 tests'");
        assert!(heard.worked >= 1, "it took {:?}", heard.took);
    }

    #[test]
    fn a_process_that_a_test_left_is_told() {
        let leaked = heard("sleep 12 & exit 0");
        assert!(matches!(leaked.end, End::Leaked) && leaked.worth_a_second_look().is_none());
    }
}
