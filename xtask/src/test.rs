//! `cargo xtask test`: runs every test and ends with one line that says how many passed, failed and were skipped.
//!
//! Two programs run at a time, as far as they suit each other (`lanes`).
//!
//! libtest swallows what a passing test prints, so a test that cannot run on this host appends
//! `SKIPPED: <name>: <reason>` to the file that `BLASTBOX_SKIPS` names (`tests/skips`). Such a test counts as skipped, not as
//! passed. `LEFT OUT: <name>: <part>: <reason>` is a part of a test that ran without it, which counts as skipped beside it.
//!
//! A few tests that failed are tried once more, alone. One that passes then is *unsteady*: named in the last lines and counted
//! apart, with what it said when it failed. It is a defect of the test or of what it tests, but says nothing about the change at hand.
//!
//! A test program of which nothing comes any more is ended, also before its first test and after its last, and what it hung in has
//! failed. Where that is in vain twice it is given up, and the others go on.

mod follow;
mod hung;
mod lanes;
mod programs;
mod sum;
mod work;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::follow::{End, Heard, MOST_IN_VAIN, follow};
use self::programs::Program;
use self::sum::Sum;
use crate::{Outcome, house};

/// How many of those that took longest are named.
const LONGEST: usize = 8;

/// Runs all tests of the workspace, or those of some programs. `BLASTBOX_BIN_DIR` tells the integration tests where the built programs are.
pub(crate) fn test(only: &[&str]) -> io::Result<Outcome> {
    let root = house::root()?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let built =
        std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(|| target.join("blastbox"), |dir| root.join(dir));
    let skips = target.join("skips.txt");
    empty(&skips)?;

    let start = |program: &Program, only: &BTreeSet<String>| {
        let mut command = program.command(only);
        command.env("BLASTBOX_BIN_DIR", &built).env("BLASTBOX_SKIPS", &skips);
        command
    };
    let wanted = programs::wanted(programs::compiled(&root)?, only)?;
    let begun = Instant::now();
    let mut heard = lanes::run(wanted, &|program| start(program, &BTreeSet::new()))?;
    let took = begun.elapsed().as_secs();
    let unsteady = second_look(&mut heard, |program, only| follow(start(program, only).spawn()?))?;

    let reports = std::fs::read_to_string(&skips)?;
    print!("{reports}");
    tell_longest(&mut heard);
    let clean = heard.iter().all(|(_, heard)| heard.end.is_clean());
    let mut sum = Sum::default();
    for (program, heard) in heard {
        tell_end(&program.name, &heard);
        sum.join(heard.sum);
    }
    sum.skip(&reports);
    if sum.unheard() > 0 {
        println!("{} tests had not had their turn when their program was ended", sum.unheard());
    }
    if !unsteady.names.is_empty() {
        println!("\nwhat they said when they failed:\n{}\n", unsteady.said.join("\n"));
    }
    for name in &unsteady.names {
        println!("UNSTEADY: {name}: failed once and passed alone; somebody has to find out why");
    }
    println!(
        "\n{} passed, {} failed, {} skipped, {} unsteady, in {took} s",
        sum.passed,
        sum.failed,
        sum.skipped,
        unsteady.names.len()
    );
    // A program that ends well in the middle of a test has failed.
    Ok(if clean && sum.failed == 0 { Outcome::Clean } else { Outcome::Findings })
}

/// A few tests that failed are tried once more, alone. Returns those that passed then, with what they had said.
fn second_look(
    heard: &mut [(Program, Heard)],
    again: impl Fn(&Program, &BTreeSet<String>) -> io::Result<Heard>,
) -> io::Result<Sum> {
    let mut unsteady = Sum::default();
    let failed: usize = heard.iter().map(|(_, heard)| heard.sum.failed).sum();
    let bad = || heard.iter().filter(|(_, heard)| !heard.end.is_clean());
    // What failed without a name, or left something, has failed whatever a second look says: no time for one.
    if failed > sum::ACCIDENTS || !bad().all(|(_, heard)| heard.worth_a_second_look().is_some()) {
        return Ok(unsteady);
    }
    for (program, heard) in heard.iter_mut().filter(|(_, heard)| !heard.end.is_clean()) {
        println!("\ntried once more, alone: {}: {}", program.name, heard.sum.listed());
        let second = again(program, &heard.sum.names)?;
        println!("{}", second.lines.join("\n"));
        if second.end.is_clean() && second.sum.passed >= heard.sum.names.len() {
            heard.sum.failed = 0;
            unsteady.names.extend(std::mem::take(&mut heard.sum.names));
            unsteady.said.extend(std::mem::take(&mut heard.sum.said));
            heard.end = second.end;
        }
    }
    Ok(unsteady)
}

/// A word about an end that its tests do not tell of.
fn tell_end(program: &str, heard: &Heard) {
    match &heard.end {
        End::Over(status) if !status.success() && heard.sum.failed == 0 => {
            println!("{program} ended with {status} before every test could report");
        }
        End::Over(_) => {}
        End::Leaked => println!(
            "{program}: a process that a test started is still alive and holds the output: the test must end it"
        ),
        End::GivenUp => println!("{program}: given up: it was ended {MOST_IN_VAIN} times and is still there"),
    }
}

fn tell_longest(heard: &mut [(Program, Heard)]) {
    heard.sort_by_key(|(_, heard)| std::cmp::Reverse(heard.took));
    let longest = heard.iter().take(LONGEST);
    let told = |(program, heard): &(Program, Heard)| {
        format!("{} {} s ({} s of processors)", program.name, heard.took.as_secs(), heard.worked)
    };
    let told: Vec<String> = longest.map(told).collect();
    println!("\nlongest: {}", told.join(", "));
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
