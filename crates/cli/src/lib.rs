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
mod docker;
mod doctor;
mod escape;
mod explain;
mod fresh_file;
mod guest;
mod image;
mod kernel;
mod lent;
mod mcp;
mod output;
mod papers;
mod plan;
mod policy;
mod problem;
mod pump;
mod reach;
mod receipt_file;
mod regular;
mod run;
mod seal;
mod siblings;
mod snippet;
mod summary;
mod terminal;
mod tether;
mod tool;
mod unrun;
mod unseen;
mod whole_file;

use std::ffi::OsString;
use std::time::Duration;

use blastbox_engine::EXIT_REFUSED;
use blastbox_isolation::{Warden, WardenError};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, FromArgMatches as _, Parser as _};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::args::{Cli, RunArgs, Verb};
use crate::problem::Problem;

/// The program that knows every verb.
const FULL: &str = "blastbox-full";
/// How long a warden that is not needed after all may take to get ready.
const SETTLE: Duration = Duration::from_secs(1);
/// How long what still runs of a verb that has said its last word may take to end.
const GOODBYE: Duration = Duration::from_millis(200);

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
        Verb::Mcp(args) => {
            let runtime = runtime()?;
            let served = runtime.block_on(mcp::mcp(&args));
            // A read of standard input that nobody answers any more cannot be called off: it is not waited for.
            runtime.shutdown_timeout(GOODBYE);
            served
        }
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
            let printed = output::print(&error.render().to_string());
            printed.map_or_else(|error| complain(&error.into()), |()| 0)
        }
        kind => {
            output::say(&error.render().to_string());
            let unknown = match error.get(ContextKind::InvalidArg) {
                // What is said there is true of `run`.
                Some(ContextValue::String(option))
                    if kind == ErrorKind::UnknownArgument
                        && std::env::args_os().nth(1).is_some_and(|verb| verb == "run") =>
                {
                    docker::hint(option)
                }
                Some(_) | None => None,
            };
            if let Some(hint) = unknown {
                output::say(&format!("\nhint: {hint}\n"));
            }
            EXIT_REFUSED
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every verb that people are shown, with its whole path.
    fn verbs() -> Vec<(String, clap::Command)> {
        fn visit(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
            let shown = |verb: &&clap::Command| !verb.is_hide_set() && verb.get_name() != "help";
            for verb in command.get_subcommands().filter(shown) {
                let path = format!("{path} {}", verb.get_name());
                found.push((path.clone(), verb.clone()));
                visit(verb, &path, found);
            }
        }
        let mut found = Vec::new();
        visit(&Cli::command(), "blastbox", &mut found);
        assert!(found.len() > 30, "{}", found.len());
        found
    }

    fn paths(of: impl Fn(&str, &clap::Command) -> bool) -> Vec<String> {
        verbs().into_iter().filter(|(path, verb)| of(path, verb)).map(|(path, _)| path).collect()
    }

    #[test]
    fn every_verb_shows_in_its_help_how_it_is_used() {
        let shows = |verb: &clap::Command| {
            verb.get_after_help().is_some_and(|help| help.to_string().contains("Example"))
        };
        let without = paths(|_, verb| !shows(verb));
        assert!(without.is_empty(), "no example in the help of {without:?}");
    }

    #[test]
    fn every_verb_that_prints_a_result_can_print_it_as_json() {
        // They pass on what a box says, speak a protocol, have forms of their own or print nothing.
        const OTHERWISE: [&str; 6] = [
            "blastbox attach",
            "blastbox mcp",
            "blastbox serve",
            "blastbox audit export",
            "blastbox module rm",
            "blastbox snapshot rm",
        ];
        let without = paths(|path, verb| {
            let json = verb.get_arguments().any(|argument| argument.get_long() == Some("json"));
            let leaf = verb.get_subcommands().next().is_none();
            leaf && !json && !OTHERWISE.contains(&path)
        });
        assert!(without.is_empty(), "no --json in {without:?}");
    }

    #[test]
    fn words_of_docker_are_told_what_they_are_called_here() {
        for words in [
            &["-v", "/a:/b"][..],
            &["--rm"],
            &["-p", "80:80"],
            &["--name", "x"],
            &["--net=none"],
            &["--network", "x"],
        ] {
            let all = ["blastbox", "run"].iter().chain(words).chain(&["--", "true"]);
            let error = Cli::try_parse_from(all).unwrap_err();
            let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
                panic!("{error:?}")
            };
            assert!(docker::hint(option).is_some(), "{option}");
        }
        assert_eq!(docker::hint("--memroy"), None);
    }

    /// The words of a line of a shell, as far as the documents have them: quotes, and a comment or a second command behind it.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for letter in line.chars() {
            match letter {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                _ if quoted => word.get_or_insert_default().push(letter),
                '#' | '&' | '|' | ';' | '>' | ')' if word.is_none() => break,
                ')' | ';' => break,
                ' ' => words.extend(word.take()),
                _ => word.get_or_insert_default().push(letter),
            }
        }
        words.extend(word);
        words.into_iter().map(|word| word.replace("$box", "bx_aaaaaaaaaaaaaaaaaaaa")).collect()
    }

    #[test]
    fn every_command_of_the_documents_is_understood() {
        let mut seen = 0;
        for (page, text) in [
            ("README.md", include_str!("../../../README.md")),
            ("docs/policy.md", include_str!("../../../docs/policy.md")),
            ("docs/operate.md", include_str!("../../../docs/operate.md")),
            ("docs/e2b.md", include_str!("../../../docs/e2b.md")),
        ] {
            let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
            for line in blocks.flat_map(str::lines) {
                // Also one whose output is kept, or that something is piped into.
                let Some(at) = line.find("blastbox ").filter(|at| !line[..*at].contains(['#', '/'])) else {
                    continue;
                };
                if !line[..at].is_empty() && !line[..at].ends_with("| ") && !line[..at].ends_with("$(") {
                    continue;
                }
                let words = words(&line[at..]);
                let parsed = Cli::try_parse_from(&words).map(|_| ());
                let shown = parsed.as_ref().is_err_and(|error| error.kind() == ErrorKind::DisplayHelp);
                assert!(parsed.is_ok() || shown, "{page}: {line}\n{words:?}: {parsed:?}");
                seen += 1;
            }
        }
        assert!(seen > 25, "{seen}");
    }
}
