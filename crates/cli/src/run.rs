//! `blastbox run`: one command in one box, from the command line to the receipt.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use blastbox_engine::leases::{Broker, Sources};
use blastbox_engine::{
    Account, BoxSpec, Command, CreateError, EXIT_REFUSED, Ended, Ending, Engine, LiveBox, Loss, Stream,
    USUAL_PATH, WorkspaceDir, causes, receipt,
};
use blastbox_images::Image;
use blastbox_isolation::{Choice, Warden};
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::{Io, Usage, User};
use blastbox_wire::limits::{MAX_ARGUMENT, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS};
use blastbox_wire::plan::{Plan, Step};
use blastbox_wire::receipt::{Outcome, Reason, Receipt};

use crate::args::{RunArgs, Variable};
use crate::capture::{Capture, Document, MOST_IN_JSON};
use crate::codes::OUTPUT_UNWRITABLE;
use crate::console::Console;
use crate::output::{OutputError, Printer, shell_word};
use crate::problem::{Problem, output_fix};
use crate::pump::{Input, Pump, Pumped, Signals};
use crate::receipt_file::ReceiptFile;
use crate::snippet::{self, Snippet};
use crate::terminal::{self, RawTerminal};
use crate::{guest, lent, output, summary, unrun, unseen};

/// Exit code of a process that a signal ended, less the signal's number.
pub(crate) const SIGNALLED: u8 = 128;
const WORKSPACE: &str = "/workspace";
/// Most letters of a command that an image says is its own.
const LONGEST_USUAL: usize = 300;
const HOME: &str = "/home/user";

/// Everything that was asked, checked before anything is started.
struct Wanted {
    policy: SealedPolicy,
    image: Image,
    workspace: Option<WorkspaceDir>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    receipt: Option<ReceiptFile>,
    console: Option<(Console, OwnedFd)>,
    input: Input,
    /// The program of `--lang`, where it lies in a file.
    program: Option<Arc<File>>,
    /// Where the command starts.
    directory: Option<Vec<u8>>,
    /// Who lends secrets. Without a daemon nobody is left to revoke leases after a crash: then they end by themselves.
    broker: Option<Arc<Broker>>,
}

/// What became of it.
struct Story {
    box_id: Option<blastbox_wire::BoxId>,
    choice: Option<Choice>,
    ending: Ending,
    usage: Option<Usage>,
    ended: Option<Ended>,
    capture: Capture,
    /// Why output was lost, where it was.
    unwritten: Option<OutputError>,
    /// What is wrong with leases of its secrets.
    leases: Vec<String>,
}

/// Runs the command. The warden was started before anything was checked and gets ready meanwhile.
pub(crate) async fn run(args: &RunArgs, warden: Warden) -> Result<u8, Problem> {
    let Ready { wanted, signals, engine, console, raw } =
        begin(args, warden).map_err(|problem| unrun::told(args, problem))?;
    let started = SystemTime::now();
    let story = live(&engine, &wanted, args, signals).await;
    // Before anything is said: lines in raw mode are stairs.
    drop(raw);
    // Also where everything else is quiet: whoever runs it is the only one who can revoke them.
    for line in &story.leases {
        output::say_last(&format!("{line}\n"));
    }
    let mut receipt = receipt(&Account {
        policy: &wanted.policy,
        image: wanted.image.label(),
        facts: engine.facts(),
        choice: story.choice.as_ref(),
        box_id: story.box_id.clone(),
        arguments: &wanted.arguments,
        started,
        ending: story.ending,
        usage: story.usage,
        ended: story.ended.as_ref(),
    });
    if let Some(error) = &story.unwritten {
        unwritten(&mut receipt, error);
    }
    // Where no box began, nobody had a console.
    let heard = console.filter(|_| story.box_id.is_some()).map_or(Ok(()), Console::write);
    let words = args.command.iter().skip(usize::from(wanted.program.is_some()));
    let hint = unseen::tell(args, words.map(Path::new), &mut receipt);
    let code = hand_out(args, wanted.receipt, &receipt, story.capture, hint.as_deref()).await?;
    heard.map(|()| code)
}

/// Everything that a run needs before its box is asked for.
struct Ready {
    wanted: Wanted,
    signals: Signals,
    engine: Engine,
    console: Option<Console>,
    raw: Option<RawTerminal>,
}

fn begin(args: &RunArgs, mut warden: Warden) -> Result<Ready, Problem> {
    let mut wanted = match check(args) {
        Ok(wanted) => wanted,
        Err(problem) => {
            // A warden that loses its caller while it gets ready says so; the caller's own mistake is not its trouble.
            warden.wait_ready(crate::SETTLE).ok();
            return Err(problem);
        }
    };
    let signals = Signals::catch(args.tty)?;
    let engine = Engine::with_warden(warden)?;
    let engine = match wanted.broker.clone() {
        Some(broker) => engine.lending(broker),
        None => engine,
    };
    let (engine, console) = match wanted.console.take() {
        Some((console, theirs)) => (engine.with_console(theirs), Some(console)),
        None => (engine, None),
    };
    let raw = if args.tty { Some(RawTerminal::enter()?) } else { None };
    Ok(Ready { wanted, signals, engine, console, raw })
}

/// Hands out everything that is known of the run. The exit code: the run's own, or that of a signal that came meanwhile.
async fn hand_out(
    args: &RunArgs,
    file: Option<ReceiptFile>,
    receipt: &Receipt,
    capture: Capture,
    hint: Option<&str>,
) -> Result<u8, Problem> {
    if let Some(file) = file {
        file.write(receipt)?;
    }
    if args.json {
        let text = output::json(&Document::new(receipt, capture))?;
        // Signals are caught for good, so a reader that stalls must not keep them from ending us.
        let mut signals = Signals::catch(false)?;
        let mut writing = Printer::default().write(Stream::Stdout, text);
        tokio::select! {
            biased;
            // A reader that went away has seen enough.
            written = writing.end() => drop(written?),
            signal = signals.told_to_end() => return Ok(SIGNALLED.saturating_add(signal)),
        }
    }
    let quiet = args.quiet || args.json;
    let hint = hint.filter(|_| !quiet).map(|hint| format!("  hint: {hint}\n"));
    output::say_last(&(summary::text(receipt, quiet) + hint.as_deref().unwrap_or_default()));
    Ok(receipt.exit_code)
}

/// Holds everything that was asked against what can be done, before anything is started.
fn check(args: &RunArgs) -> Result<Wanted, Problem> {
    if args.tty && !terminal::on_stdin() {
        return Err(Problem::NotATerminal);
    }
    let policy = args.policy.seal(args.source.workspace.as_ref())?;
    let limit = policy.lifetime().output;
    if args.json && limit > MOST_IN_JSON {
        return Err(Problem::MuchForJson { limit });
    }
    let broker = match &args.secrets {
        Some(path) => Some(Broker::new(Sources::load(path)?, None)),
        None => None,
    };
    let image = guest::image(&policy, &args.store, &args.source.image)?;
    let workspace = match &args.source.workspace {
        Some(flag) => Some(flag.open()?),
        None => None,
    };
    // What the box lacks is told before what the caller lacks.
    let interpreter = args.lang.map(|language| guest::interpreter(&policy, &image, language)).transpose()?;
    let find = |_| snippet::find(&args.command, args.policy.spends_stdin());
    let (program, words) = match args.lang.map(find).transpose()? {
        Some(Snippet::File(file)) => (Some(Arc::new(file)), args.command.get(1..).unwrap_or_default()),
        Some(Snippet::Stdin) | None => (None, args.command.as_slice()),
    };
    let command = words.iter().map(|word| word.clone().into_vec());
    let interpreter = interpreter.into_iter().flatten().map(String::into_bytes);
    let arguments: Vec<Vec<u8>> = interpreter.chain(command).collect();
    if arguments.first().is_none_or(Vec::is_empty) {
        return Err(Problem::NoCommand { usual: usual(&image) });
    }
    let environment = environment(args.tty, &args.env);
    check_length(&arguments, &environment)?;
    guest::tools(&policy, &args.tool)?;
    let image = guest::image_of(&policy, image, arguments.first())?;
    let receipt = args.receipt.as_deref().map(ReceiptFile::prepare).transpose()?;
    let console = args.console.as_deref().map(Console::open).transpose()?;
    let input = match (args.tty, args.lang) {
        (true, _) => Input::Terminal,
        (false, Some(_)) => Input::Program,
        (false, None) if args.interactive => Input::Pipe,
        (false, None) => Input::None,
    };
    if args.lang.is_some() && program.is_none() && terminal::on_stdin() {
        output::say("type the program, end with Ctrl-D\n");
    }
    let directory = args.cwd.clone().map(OsString::into_vec);
    Ok(Wanted {
        broker,
        policy,
        image,
        workspace,
        arguments,
        environment,
        receipt,
        console,
        input,
        program,
        directory,
    })
}

/// What an image says that its command is, as a shell would be told; cut, since it is a stranger's text.
fn usual(image: &Image) -> Option<String> {
    let words = &image.config()?.command;
    let line: String = words
        .iter()
        .map(|word| shell_word(word))
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(LONGEST_USUAL)
        .collect();
    (!line.is_empty()).then(|| crate::output::plain(&line))
}

/// The environment of the box, built from nothing. A variable that is given twice has its last value.
fn environment(tty: bool, given: &[Variable]) -> Vec<Vec<u8>> {
    let ours = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let mut all =
        vec![ours("HOME", HOME), ours("USER", "user"), ours("LANG", "C.UTF-8"), ours("PATH", USUAL_PATH)];
    if tty {
        let term = std::env::var("TERM").ok().filter(|term| is_plain_word(term));
        all.push(ours("TERM", term.as_deref().unwrap_or("xterm-256color")));
    }
    for Variable { name, value } in given {
        all.retain(|(other, _)| other != name);
        all.push((name.clone(), value.clone()));
    }
    all.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect()
}

fn is_plain_word(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 64
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-+._".contains(&b))
}

/// The kernel's own limits, so that the answer is a sentence and not an errno from inside the box.
fn check_length(arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Result<(), Problem> {
    let count = arguments.len().max(environment.len());
    if count > MAX_ARGUMENTS {
        return Err(Problem::ManyArguments { count });
    }
    let all = || arguments.iter().chain(environment);
    // The terminating zero counts, and so does the pointer to each.
    if let Some((number, long)) = all().enumerate().find(|(_, text)| text.len() >= MAX_ARGUMENT) {
        return Err(Problem::LongArgument { number, length: long.len() });
    }
    let bytes = all().map(|text| text.len() + 1 + size_of::<usize>()).sum();
    if bytes > MAX_ARGUMENT_BYTES { Err(Problem::LongCommand { bytes }) } else { Ok(()) }
}

async fn live(engine: &Engine, wanted: &Wanted, args: &RunArgs, signals: Signals) -> Story {
    let workspace = wanted.workspace.as_ref();
    let spec =
        BoxSpec { policy: &wanted.policy, image: &wanted.image, workspace, volumes: &[], secrets: &[] };
    let (launched, news) = engine.launch_heard(spec).await;
    let live = match launched {
        Ok(live) => live,
        // What was minted for it is revoked already, or is not.
        Err(error) => return not_launched(error, lent::troubles(news).await),
    };
    let choice = live.choice().clone();
    let box_id = Some(live.id().clone());
    let tools = args.tool.iter().map(|tool| tool.name.clone()).collect();
    let exec = live.exec_last(command(wanted, &live), tools).await;
    let capture = args.json.then(Capture::default);
    let (input, program) = (wanted.input, wanted.program.clone());
    let pump = Pump { exec, signals, input, program, capture, tools: args.tool.clone() };
    let Pumped { ending, usage, capture, gave_up, unwritten } = pump.run(&live).await;
    engine.dismiss();
    let ended = live.end().await;
    let leases = lent::troubles(news).await;
    let ending = match &ended.ending {
        // What was printed did not all arrive: why the box was stopped says more than how the command ended.
        Some(stopped) if gave_up => stopped.clone(),
        // Nobody can say that nothing is left, and that is the worse news.
        Some(lost @ Ending::Lost(Loss::NotReleased)) => lost.clone(),
        _ => ending,
    };
    Story { box_id, choice: Some(choice), ending, usage, ended: Some(ended), capture, unwritten, leases }
}

/// The command was ended because what it printed was lost: that is nothing it did, and nothing its reader did.
fn unwritten(receipt: &mut Receipt, error: &OutputError) {
    let fix = match error {
        OutputError::Write { source, .. } => output_fix(source),
        OutputError::Json(_) => None,
    };
    receipt.outcome = Outcome::Failed;
    receipt.exit_code = EXIT_REFUSED;
    receipt.signal = None;
    receipt.reason = Some(Reason {
        code: OUTPUT_UNWRITABLE.to_owned(),
        message: format!("the box was ended because its output was lost: {}", causes(error)),
        fix,
    });
}

fn not_launched(error: CreateError, leases: Vec<String>) -> Story {
    let (ending, choice) = match error {
        CreateError::Refused { refusal, choice } => (Ending::Refused(refusal), Some(*choice)),
        CreateError::NotReady(ending) => (ending, None),
        other => (Ending::LaunchFailed { tried: Problem::from(other).line(), errno: 0 }, None),
    };
    let capture = Capture::default();
    Story { box_id: None, choice, ending, usage: None, ended: None, capture, unwritten: None, leases }
}

fn command(wanted: &Wanted, live: &LiveBox) -> Command {
    let has_workspace = live.choice().chosen.as_ref().is_ok_and(|lowered| has_workspace(&lowered.plan));
    let io = match wanted.input {
        Input::None => Io::Pipes,
        Input::Pipe | Input::Program => Io::PipesWithStdin,
        Input::Terminal => {
            let (rows, columns) = terminal::size();
            Io::Terminal { rows, columns }
        }
    };
    Command {
        arguments: wanted.arguments.clone(),
        environment: wanted.environment.clone(),
        directory: beneath(if has_workspace { WORKSPACE } else { HOME }, wanted.directory.as_deref()),
        io,
        user: User::Payload,
    }
}

/// Where a command starts: there, or where it was told to, counted from there.
fn beneath(usual: &str, told: Option<&[u8]>) -> Vec<u8> {
    let usual = usual.as_bytes();
    match told {
        None | Some([]) => usual.to_vec(),
        Some(absolute @ [b'/', ..]) => absolute.to_vec(),
        Some(relative) => [usual, relative].join(&b'/'),
    }
}

fn has_workspace(plan: &Plan) -> bool {
    plan.own.iter().any(|step| match step {
        Step::ScratchDirectory { at, .. } | Step::Workspace { at, .. } => at.as_str() == WORKSPACE,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_built_from_nothing() {
        let given = [("PATH", "/x"), ("A", "1"), ("A", "2")]
            .map(|(name, value)| Variable { name: name.into(), value: value.into() });
        let built: Vec<String> =
            environment(false, &given).into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
        assert_eq!(built, ["HOME=/home/user", "USER=user", "LANG=C.UTF-8", "PATH=/x", "A=2"]);
        assert!(environment(true, &[]).iter().any(|text| text.starts_with(b"TERM=")));
    }

    #[test]
    fn a_command_starts_where_it_is_told_to_counted_from_the_usual_place() {
        let at = |told: Option<&str>| String::from_utf8(beneath(WORKSPACE, told.map(str::as_bytes))).unwrap();
        assert_eq!(
            [at(None), at(Some("")), at(Some("/tmp")), at(Some("src/a"))],
            ["/workspace", "/workspace", "/tmp", "/workspace/src/a"]
        );
    }

    #[test]
    fn a_command_line_over_the_kernels_limit_is_named_before_anything_starts() {
        let long = vec![b"x".to_vec(), vec![b'a'; MAX_ARGUMENT]];
        assert!(matches!(check_length(&long, &[]), Err(Problem::LongArgument { number: 1, .. })));
        let many = vec![vec![b'a'; 100_000]; 21];
        assert!(matches!(check_length(&many, &[]), Err(Problem::LongCommand { .. })));
        assert!(check_length(&[vec![b'a'; MAX_ARGUMENT - 1]], &[]).is_ok());
        assert!(matches!(
            check_length(&vec![Vec::new(); MAX_ARGUMENTS + 1], &[]),
            Err(Problem::ManyArguments { .. })
        ));
    }
}
