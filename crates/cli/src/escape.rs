//! `blastbox escape`: break-out attempts under every shipped profile, and the matrix of what became of them.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use blastbox_escape::{
    Attempt, Control, EscapeError, Layer, Order, Progress, Second, Stop, Verdict, Whose, choose, page, run,
    text,
};
use blastbox_policy::{Gap, Profile, Tier};
use clap::Args;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::output;
use crate::problem::Problem;
use crate::pump::Signals;
use crate::run::SIGNALLED;
use crate::seal::Sealer;

pub(crate) const HELP: &str = "\
Examples:
  blastbox escape                                   every attempt in every tier that this host has: a column each
  blastbox escape --tier gvisor                     that tier alone
  blastbox escape --tier microvm --machine-image tools
  blastbox escape --profile default --only network  one class under one profile
  blastbox escape --policy mine.toml --html escape.html
  blastbox escape --program /usr/local/bin/blastbox  another blastbox than this one
  blastbox escape --state-dir DIR --json > report.json          signed, and recorded in DIR/ledger
  blastbox audit report report.json --ledger DIR/ledger
  blastbox escape --list --json

Outside a box run only controls that are chosen to harm nobody, and every attempt is bounded. Under a policy without network no packet leaves this host;
under one that opens it, attempts ask its gateway for addresses, and what the policy allows goes out. Held means stopped: a
cell is broken where the same attempt fails without what should stop it, counted as unproven where this caller cannot have that
control, and as nothing there where this host does not have what the attempt goes for.

Exit codes: 0 nothing came out; 1 something did, or a second layer fell; 2 more cells of a column than --tolerate says (0) prove
nothing because their control failed or they could not run, nothing was held, or a build that --lifted needs shows nothing; 125 it could not begin; 129, 130, 143 it was told to end (HUP, INT, TERM), and left nothing.";

#[derive(Debug, Args)]
pub(crate) struct EscapeArgs {
    /// Only this tier: jail, gvisor, microvm, wasm (repeatable; without it, every one that this host has)
    #[arg(long, value_name = "TIER")]
    tier: Vec<Tier>,
    /// Only this shipped profile (repeatable; without it, every one that this host can keep: for the jail all, else the first)
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    profile: Vec<Profile>,
    /// Accept a weakness by name besides those of the policy (repeatable)
    #[arg(long, value_name = "GAP")]
    accept: Vec<Gap>,
    /// The image of virtual machines, with python3 in it: without one there is no column for the tier microvm
    #[arg(long, value_name = "NAME")]
    machine_image: Option<String>,
    /// Where images and kernels lie [default: the state directory]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// A policy of your own instead
    #[arg(long, value_name = "FILE.toml")]
    policy: Option<PathBuf>,
    /// Only this attempt or class, such as kernel or kernel.ptrace (repeatable)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Name the attempts, with what each stands for, and run none
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the report as one page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Record the report in the ledger of this state directory, and sign it with the ledger's key
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Exit 0 although up to N cells of a column prove nothing (broken, or could not run); they are named
    #[arg(long, value_name = "N", default_value_t = 0)]
    tolerate: usize,
    /// The program that is put to the proof [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Directory of test builds that each lack one layer, made by `make escape`: shows that the next layer holds alone
    #[arg(long, value_name = "DIR")]
    lifted: Option<PathBuf>,
}

pub(crate) fn escape(args: EscapeArgs, runtime: fn() -> Result<Runtime, Problem>) -> Result<u8, Problem> {
    if args.list {
        let attempts = choose(&args.only)?;
        match args.json {
            true => output::print_json(&attempts.iter().map(listed).collect::<Vec<_>>())?,
            false => output::print(&list(&attempts))?,
        }
        return Ok(0);
    }
    let EscapeArgs {
        tier,
        profile,
        accept,
        machine_image,
        store,
        policy,
        only,
        list: _,
        json,
        html,
        lifted,
        state_dir,
        tolerate,
        program,
    } = args;
    let tether = std::env::current_exe().map_err(Problem::OwnProgram)?;
    let (program, whose) = match program {
        Some(program) => (program, Whose::Named),
        None => (crate::siblings::of("blastbox").map_err(Problem::OwnProgram)?, Whose::Own),
    };
    let sealer = state_dir.as_deref().map(Sealer::open).transpose()?;
    let stop = Stop::new().map_err(Problem::Runtime)?;
    let told = watch(stop.clone(), runtime()?)?;
    let (tiers, profiles) = (tier, profile);
    let order = Order {
        program,
        whose,
        tether,
        tiers,
        accept,
        machine_image,
        store,
        profiles,
        policy,
        only,
        lifted,
        stop,
    };
    let terminal = std::io::stderr().is_terminal();
    let report = run(&order, &|progress| {
        if terminal {
            output::say(&bar(&progress));
        }
    });
    if terminal {
        output::say("\r\x1b[2K");
    }
    let mut report = match report {
        Ok(report) => report,
        Err(error) => {
            sealer.map_or(Ok(()), Sealer::close)?;
            if !matches!(error, EscapeError::Stopped) {
                return Err(error.into());
            }
            output::say("told to end: what was running is ended, what was made for it is removed\n");
            return Ok(SIGNALLED.saturating_add(told.load(Ordering::Relaxed)));
        }
    };
    if let Some(sealer) = sealer {
        sealer.seal(&mut report)?;
    }
    if let Some(path) = &html {
        std::fs::write(path, page::page(&report))
            .map_err(|source| Problem::Page { path: path.clone(), source })?;
    }
    if json {
        output::print_json(&report)?;
    } else {
        output::print(&text::matrix(&report))?;
    }
    Ok(report.exit_code(tolerate))
}

/// Ends the campaign on a signal. Gives back where the signal's number will be.
fn watch(stop: Stop, runtime: Runtime) -> Result<Arc<AtomicU8>, Problem> {
    let mut signals = {
        let _inside = runtime.enter();
        Signals::catch(false)?
    };
    let told = Arc::new(AtomicU8::new(0));
    let tell = Arc::clone(&told);
    std::thread::spawn(move || {
        tell.store(runtime.block_on(signals.told_to_end()), Ordering::Relaxed);
        stop.say();
    });
    Ok(told)
}

/// One line that is written over: how far, and what was not held.
fn bar(progress: &Progress<'_>) -> String {
    let Progress { done, all, row } = progress;
    let full = if *all == 0 { 0 } else { done * 30 / all };
    let bar: String = (0..30).map(|at| if at < full { '█' } else { '░' }).collect();
    let bad = row.cells.iter().find(|cell| matches!(cell.verdict, Verdict::Escaped | Verdict::Broken));
    let news = bad.map_or(String::new(), |cell| {
        format!("\r\x1b[2K{} {}: {}\n", cell.verdict.as_str(), row.id, output::plain(&cell.evidence))
    });
    format!("{news}\r\x1b[2K{bar} {done}/{all} {}", row.id)
}

fn list(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        // Writing to a string does not fail.
        writeln!(text, "{}  [{} · {:?}]", attempt.id(), attempt.boundary, attempt.issue).ok();
        writeln!(text, "    {}. Stands for: {}.", attempt.title, attempt.stands_for).ok();
        writeln!(text, "    First: {}. Second: {}.", attempt.first, second(attempt)).ok();
        writeln!(text, "    Success: {}. Control: {}.", attempt.success(), control(attempt.control)).ok();
    }
    writeln!(text, "{} attempts, each with a control", attempts.len()).ok();
    text
}

fn second(attempt: &Attempt) -> String {
    match (attempt.second, attempt.second.reason()) {
        (Second::Unlifted(what, _), Some(why)) => format!("{what} (not proven: {why})"),
        (_, Some(why)) => format!("none ({why})"),
        (second, None) => {
            let layer = second.layer().map_or("", Layer::as_str);
            format!("{} (proven without {layer})", second.control())
        }
    }
}

/// The same for programs.
fn listed(attempt: &Attempt) -> Value {
    json!({
        "id": attempt.id().to_string(),
        "boundary": attempt.boundary.to_string(),
        "issue": format!("{:?}", attempt.issue),
        "title": attempt.title.to_string(),
        "stands_for": attempt.stands_for.to_string(),
        "first": attempt.first.to_string(),
        "second": second(attempt),
        "success": attempt.success().to_string(),
        "control": control(attempt.control),
    })
}

fn control(control: Control) -> String {
    match control {
        Control::Plain => "a plain process".to_owned(),
        Control::PlainRoot => "a plain process of root".to_owned(),
        Control::Namespaces => "root of namespaces of its own".to_owned(),
        Control::OwnNet => "a network of its own in which every address answers".to_owned(),
        Control::Box(options) => format!("a box with {}", options.join(" ")),
        Control::Believed(outcome, code) => format!("a receipt that believed it ({outcome}, {code})"),
        Control::Honest => "the same box with an agent that does not lie".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_tells_what_was_not_held() {
        let attempt = choose(&["kernel.ptrace".to_owned()]).unwrap();
        let cell = |verdict| blastbox_escape::Cell::new(verdict, "out\u{1b}[2J".to_owned());
        let row = |verdict| blastbox_escape::Row::of(&attempt[0], vec![cell(verdict)]);
        let held = row(Verdict::Held);
        let half = bar(&Progress { done: 1, all: 2, row: &held });
        assert_eq!(half.matches('█').count(), 15);
        assert!(half.contains("1/2 kernel.ptrace") && !half.contains('\n'), "{half}");
        let none = bar(&Progress { done: 0, all: 0, row: &held });
        assert_eq!(none.matches('░').count(), 30);
        let out = bar(&Progress { done: 2, all: 2, row: &row(Verdict::Escaped) });
        assert!(out.contains("ESCAPED kernel.ptrace: out") && !out.contains("\u{1b}[2J"), "{out}");
    }
}
