//! House rules that the compiler cannot check, and the chores around them: `cargo xtask check | test | tcb | licences`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer's program talks to a terminal")]

mod house;
mod lexer;
mod licences;
mod rules;
mod run;
mod tcb;
mod test;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <verb>

  check   hold the house rules; one line per finding
  test    run every test, then sum up what passed, failed and was skipped
  test NAME…  only the programs whose name has one of these in it; `machines`: those of virtual machines
  tcb     print the size of what runs with privilege or beside the payload; --line: as one line, for a build
  licences  print whose code the programs link, with the texts that must be kept";

/// What a verb found: it worked, or the reader has something to do. `Err` means that the verb itself broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Clean,
    Findings,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["check"] => rules::check(),
        ["test", only @ ..] => test::test(only),
        ["tcb"] => tcb::print(),
        ["tcb", "--line"] => tcb::print_line(),
        ["licences"] => licences::print(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::FAILURE,
        Err(broken) => {
            eprintln!("xtask: {broken}");
            ExitCode::from(2)
        }
    }
}
