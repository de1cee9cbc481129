//! The `blastbox` command, in two programs.
//!
//! One file per verb ([`run`], [`explain`], [`plan`], [`doctor`], [`escape`], [`policy`], [`audit`], [`mcp`], [`image`], [`kernel`]), those that need a daemon in [`daemon`]; `output` is the only room that
//! writes to the terminal. `blastbox` is small, because it is started for every run: it runs boxes, and becomes `blastbox-full`, which
//! lies beside it, for whatever else is asked. The warden is started before anything else is looked at, so that it gets ready meanwhile.

mod args;
mod audit;
mod capture;
mod clerk;
mod codes;
mod console;
mod daemon;
mod doctor;
mod escape;
mod explain;
mod fresh_file;
mod guest;
mod image;
mod kernel;
mod mcp;
mod output;
mod papers;
mod plan;
mod policy;
mod problem;
mod pump;
mod reach;
mod receipt_file;
mod run;
mod seal;
mod siblings;
mod summary;
mod terminal;
mod tether;
mod tool;
mod unrun;
mod whole_file;

use std::ffi::OsString;
use std::time::Duration;

use blastbox_engine::EXIT_REFUSED;
use blastbox_isolation::{Warden, WardenError};
use clap::error::ErrorKind;
use clap::{Args as _, FromArgMatches as _, Parser as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Cli, RunArgs, Verb};
use crate::problem::Problem;

/// The program that knows every verb.
const FULL: &str = "blastbox-full";
/// How long a warden that is not needed after all may take to get ready.
const SETTLE: Duration = Duration::from_secs(1);

/// The program that is started for every run. Its exit code.
#[must_use]
pub fn front() -> u8 {
    harden();
    let words: Vec<OsString> = std::env::args_os().collect();
    if !is_run(&words) {
        return hand_over(&words);
    }
    // A warden takes longer to get ready than a command line to be read: where it could be, it was started before this program was.
    let early = Warden::start_for_one();
    match parse_run(&words) {
        Some(args) => ended(run_box(&args, early)),
        None => {
            settle(early);
            hand_over(&words)
        }
    }
}

/// The program that knows every verb. Its exit code.
#[must_use]
pub fn full() -> u8 {
    harden();
    // As people look for it, whichever of the two programs it is.
    rustix::thread::set_name(c"blastbox").ok();
    match Cli::try_parse() {
        Ok(cli) => ended(act(cli)),
        Err(error) => usage(&error),
    }
}

fn is_run(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|verb| verb == "run")
}

/// Reads the options of `run`, the verb that is called most, without putting together those of all others. `None`: whatever
/// is wrong with them, or help, is for the whole to say.
fn parse_run(words: &[OsString]) -> Option<RunArgs> {
    let run = RunArgs::augment_args(clap::Command::new("run"));
    let found = run.try_get_matches_from(words.iter().skip(1)).ok()?;
    RunArgs::from_arg_matches(&found).ok()
}

/// One that loses its caller while it gets ready says so; a wrong option is not its trouble.
fn settle(warden: Result<Warden, WardenError>) {
    if let Ok(mut warden) = warden {
        warden.wait_ready(SETTLE).ok();
    }
}

fn run_box(args: &RunArgs, warden: Result<Warden, WardenError>) -> Result<u8, Problem> {
    let told = |problem| unrun::told(args, problem);
    let warden = warden.map_err(|error| told(error.into()))?;
    let runtime = runtime().map_err(told)?;
    // Dropped afterwards, and with it whoever still listens to the warden: the last one to let go of the line waits until its process
    // has ended.
    runtime.block_on(run::run(args, warden))
}

/// Becomes the program that knows every verb.
fn hand_over(words: &[OsString]) -> u8 {
    let failed = |source| Problem::HandOver { program: FULL, source };
    ended(
        siblings::of(FULL)
            .and_then(|full| siblings::become_it(&full, words))
            .map_err(failed)
            .map(|never| match never {}),
    )
}

fn ended(how: Result<u8, Problem>) -> u8 {
    how.unwrap_or_else(|problem| complain(&problem))
}

/// Verbs that start a control that is to make a core, which nobody without CAP_SYS_RESOURCE could once the hard limit is given up.
const KEEP_HARD: [&str; 2] = ["escape", "tether"];

/// What passes through this process is nobody else's business: a crash leaves no image of it on a disk.
fn harden() {
    let keeps = std::env::args_os().nth(1).is_some_and(|verb| KEEP_HARD.iter().any(|one| verb == *one));
    let maximum = if keeps { getrlimit(Resource::Core).maximum } else { Some(1) };
    // 1 and not 0: a piped core_pattern takes a core even where the limit is 0, and boxes inherit this limit. Fails only
    // where the limit is 0 already.
    setrlimit(Resource::Core, Rlimit { current: Some(1), maximum }).ok();
}

fn act(cli: Cli) -> Result<u8, Problem> {
    match cli.verb {
        Verb::Audit(verb) => audit::audit(&verb),
        Verb::Image(verb) => image::image(&verb, runtime),
        Verb::Kernel(verb) => kernel::kernel(&verb),
        Verb::Escape(args) => escape::escape(*args, runtime),
        Verb::Daemon(verb) => daemon::daemon(verb, runtime),
        Verb::Papers(verb) => papers::papers(&verb),
        Verb::Tether(args) => tether::tether(args),
        Verb::Clerk => clerk::clerk(),
        Verb::Policy(verb) => policy::policy(&verb),
        Verb::Run(args) => run_box(&args, Warden::start_for_one()),
        Verb::Mcp(args) => runtime()?.block_on(mcp::mcp(&args)),
        Verb::Explain(args) => {
            let warden = Warden::start()?;
            runtime()?.block_on(explain::explain(&args, warden))
        }
        Verb::Plan(args) => {
            let warden = Warden::start()?;
            runtime()?.block_on(plan::plan(&args, warden))
        }
        Verb::Doctor(args) => {
            let warden = Warden::start();
            runtime()?.block_on(doctor::doctor(&args, warden))
        }
    }
}

/// One thread and one epoll are enough: a box costs its owner a few system calls.
fn runtime() -> Result<Runtime, Problem> {
    Builder::new_current_thread().enable_io().enable_time().build().map_err(Problem::Runtime)
}

fn complain(problem: &Problem) -> u8 {
    let fix = problem.fix().map(|fix| format!("fix: {}\n", output::plain(&fix))).unwrap_or_default();
    let code = problem.code().map(|code| format!("code: {code}\n")).unwrap_or_default();
    output::say(&format!("error: {}\n{code}{fix}", output::plain(&problem.line())));
    EXIT_REFUSED
}

/// Bad usage is 125 like every other no: 2 might be the program's own.
fn usage(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output::print(&error.render().to_string());
            0
        }
        _ => {
            output::say(&error.render().to_string());
            EXIT_REFUSED
        }
    }
}
