//! `cargo xtask test`: runs every test and ends with one line that says how many passed, failed and were skipped.
//!
//! libtest swallows what a passing test prints, so a test that cannot run on this host appends
//! `SKIPPED: <name>: <reason>` to the file that `BLASTBOX_SKIPS` names (`tests/skips`). Such a test counts as skipped, not as
//! passed. `LEFT OUT: <name>: <part>: <reason>` is a part of a test that ran without it, which counts as skipped beside it.
//!
//! A few tests that failed are tried once more, alone. One that passes then is *unsteady*: named in the last lines and counted
//! apart, with what it said when it failed. It is a defect of the test or of what it tests, but says nothing about the change at hand.
//!
//! A test program of which nothing comes any more is ended, also before its first test and after its last, and what it hung in has
//! failed. Where that is in vain twice the run is given up.

mod hung;
mod sum;

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use self::sum::Sum;
use crate::{Outcome, house, run};

/// How long the output may stay open after cargo has ended before it counts as held by a leaked process.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long nothing may come of a test program before it is ended: several times what the longest of them takes altogether. A test that
/// waits for ever would otherwise take the whole run with it.
const SILENCE: Duration = Duration::from_secs(480);

/// How often in a row something that hangs is ended in vain (its process waits in the kernel, where no signal reaches it).
const MOST_IN_VAIN: usize = 2;

/// How the run of cargo ended.
enum End {
    /// By itself.
    Over(ExitStatus),
    /// The same, and somebody else still holds its output.
    Leaked(ExitStatus),
    /// Something hangs that cannot be ended.
    GivenUp,
}

impl End {
    fn is_clean(&self) -> bool {
        matches!(self, Self::Over(status) if status.success())
    }
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
    if sum.is_accident() && matches!(end, End::Over(_)) {
        println!("\ntried once more, alone: {}\n", sum.listed());
        let (again, ended) = tests(&sum.names)?;
        if ended.is_clean() && again.passed >= sum.names.len() {
            sum.failed = 0;
            unsteady = std::mem::take(&mut sum.names);
            said = std::mem::take(&mut sum.said);
            end = ended;
        }
    }

    let reports = std::fs::read_to_string(&skips)?;
    print!("{reports}");
    sum.skip(&reports);
    match &end {
        End::Over(_) => {}
        End::Leaked(_) => {
            println!(
                "a process that a test started is still alive and holds the output: the test must end it"
            );
        }
        End::GivenUp => println!(
            "given up: what hangs (named above) was ended {MOST_IN_VAIN} times and nothing came after; tests behind it did not run"
        ),
    }
    if sum.unheard() > 0 {
        println!("{} tests had not had their turn when their program was ended", sum.unheard());
    }
    if let End::Over(status) | End::Leaked(status) = &end
        && !status.success()
        && sum.failed == 0
    {
        println!("cargo test ended with {status} before every test could report");
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
    Ok(if end.is_clean() { Outcome::Clean } else { Outcome::Findings })
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
    let mut heard = Instant::now();
    let mut in_vain = 0;
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                (heard, in_vain) = (Instant::now(), 0);
                sum.add(&line);
                println!("{line}");
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                if sum.is_running() {
                    sum.hung("its program ended without summing up");
                }
                return Ok(End::Over(cargo.wait()?));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Silent for a while: cargo compiles, or a test takes its time, or cargo is gone and somebody else holds the pipe.
        if let Some(status) = ended {
            return Ok(End::Leaked(status));
        }
        ended = cargo.try_wait()?;
        let programs = hung::test_programs_of(cargo.id())?;
        // Cargo compiles everything before the first program runs, which may take long, and tells of it elsewhere: nobody is silent.
        if programs.is_empty() && !sum.is_running() && in_vain == 0 {
            heard = Instant::now();
        }
        if ended.is_some() || heard.elapsed() <= SILENCE {
            continue;
        }
        if in_vain == MOST_IN_VAIN {
            cargo.kill()?;
            return Ok(End::GivenUp);
        }
        let why = format!("nothing came of it for {} s, and it was ended", SILENCE.as_secs());
        println!("hangs: {}: {why}", if programs.is_empty() { "?".to_owned() } else { programs.join(", ") });
        hung::end_programs_of(cargo.id())?;
        if in_vain == 0 {
            sum.hung(&why);
        }
        (heard, in_vain) = (Instant::now(), in_vain + 1);
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
