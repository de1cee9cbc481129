//! An agent that lies to the engine: a box whose first process is a test build's, and what the host made of its words.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use blastbox_policy::Tier;
use blastbox_wire::receipt::Receipt;

use crate::ask::{Ask, Boxed, read, words};
use crate::attempt::{Attempt, Ending};
use crate::lifted::lies;
use crate::process::{Ended, Input, Kind};
use crate::props::Props;
use crate::report::Verdict;

/// The directory of the build whose agent lies, beside those that lack a layer.
const LIAR: &str = "liar";
/// A lie that is over at once, by which such a build is known.
const SHORT: &str = "cut";
/// How long a box of it may take: many times what the slowest lie needs before the host finds it out.
const LIFE: &str = "15s";
/// The lie that has to be seen in the receipt.
const FLOOD: &str = "denied-flood";
/// The receipt's words for a box that was caught, and for one whose agent is gone.
const BROKE: &str = "guest_broke_protocol";
const GONE: &str = "agent_gone";
/// Outcomes of boxes that never came as far as being lied to.
const NEVER_LIED: [&str; 3] = ["refused", "failed", "not_started"];

/// The `blastbox` of a test build whose agent lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Liar {
    /// Nobody named any test builds.
    Unasked,
    /// There is none that lies where it should be, for this reason.
    Unusable(String),
    /// It has said itself that its agent lies.
    At(PathBuf),
}

/// Which agent is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    Lying,
    /// The control: what no lie has stopped comes to its end.
    Honest,
}

/// Looks for the build whose agent lies. One that does not say so itself shows nothing: an honest agent that ended for
/// another reason would pass for one that was found out.
pub(crate) fn find_liar(place: Option<&Path>, ask: &Ask) -> Liar {
    let Some(place) = place else { return Liar::Unasked };
    let program = place.join(LIAR).join("blastbox");
    if !program.is_file() {
        return Liar::Unusable(format!("there is no test build whose agent lies in {}", place.display()));
    }
    match run(ask, &program, SHORT).map(read) {
        Ok(boxed) if lies(&boxed.stderr) => Liar::At(program),
        Ok(Boxed { receipt: None, .. }) => Liar::Unusable(format!("the build in {LIAR} makes no box")),
        Ok(_) => Liar::Unusable(format!("the build in {LIAR} does not say that its agent lies, and no more")),
        Err(error) => Liar::Unusable(format!("the build in {LIAR} cannot be started: {error}")),
    }
}

fn run(ask: &Ask, program: &Path, lie: &str) -> io::Result<Ended> {
    let mut arguments: Vec<OsString> = words(["run", "--json", "--quiet", "--timeout", LIFE]).collect();
    // Half of what the most talkative lie sends.
    arguments.extend(words(["--output-limit", "4MiB"]));
    arguments.extend(ask.options.iter().cloned());
    arguments.extend([OsString::from("--env"), format!("ESCAPE_LIE={lie}").into()]);
    arguments.extend(words(["--", "/bin/true"]));
    ask.start((Kind::Blastbox, program), arguments, Vec::new(), Input::Text(""))?.end()
}

/// Runs a command in a box whose agent lies, which has to end in this way.
pub(crate) fn ask_liar(
    attempt: &Attempt,
    (lie, ending): (&str, Ending),
    ask: &Ask,
    agent: Agent,
) -> io::Result<(Verdict, String)> {
    if ask.tier != Tier::Jail {
        return Ok((Verdict::NotApplicable, "the agent that lies is one of a jail".to_owned()));
    }
    let program = match (agent, &ask.liar) {
        (Agent::Honest, _) => &ask.program,
        (Agent::Lying, Liar::At(program)) => program,
        (Agent::Lying, Liar::Unusable(why)) => return Ok((Verdict::CouldNotRun, why.clone())),
        (Agent::Lying, Liar::Unasked) => {
            let why = "no test build whose agent lies was named (make escape)";
            return Ok((Verdict::NotApplicable, why.to_owned()));
        }
    };
    let mut props = Props::for_attempt(attempt, ask)?;
    let ended = run(ask, program, lie)?;
    let (overdue, code) = (ended.overdue, ended.code);
    let boxed = read(ended);
    let signs = props.signs(&format!("{}{}", boxed.stdout, boxed.stderr));
    let (verdict, why) = judge_lie(boxed.receipt.as_ref(), ending, &signs, overdue, code);
    // The honest one tells none.
    match boxed.receipt.filter(|_| agent == Agent::Lying && signs.is_empty() && !overdue) {
        Some(receipt) => Ok(only_where_told(lie, &boxed.stdout, &receipt, (verdict, why))),
        None => Ok((verdict, why)),
    }
}

/// A lie that was not told was neither held nor believed. The agent prints its name before it tells it.
fn only_where_told(
    lie: &str,
    printed: &str,
    receipt: &Receipt,
    (verdict, why): (Verdict, String),
) -> (Verdict, String) {
    if printed.lines().next() != Some(lie) {
        return (
            Verdict::CouldNotRun,
            format!("the agent did not come to tell it, or does not know it: {why}"),
        );
    }
    if lie == FLOOD && verdict == Verdict::Held && receipt.denied.is_empty() {
        return (Verdict::CouldNotRun, format!("the receipt has none of the calls that it told of: {why}"));
    }
    (verdict, why)
}

fn judge_lie(
    receipt: Option<&Receipt>,
    ending: Ending,
    signs: &[String],
    overdue: bool,
    code: Option<i32>,
) -> (Verdict, String) {
    if !signs.is_empty() {
        return (Verdict::Escaped, signs.join("; "));
    }
    let Some(receipt) = receipt.filter(|_| !overdue) else {
        let how = if overdue {
            "it held blastbox up past the deadline"
        } else {
            "blastbox itself did not survive it"
        };
        return (Verdict::Escaped, format!("{how} ({code:?})"));
    };
    let outcome = receipt.outcome.as_str();
    let (word, why) = match &receipt.reason {
        Some(reason) => (reason.code.as_str(), reason.message.as_str()),
        None => ("", ""),
    };
    let ended = format!("the box ended: {outcome} {why}").trim_end().to_owned();
    match (outcome, word, ending) {
        ("lost", BROKE, Ending::FoundOut | Ending::Bounded | Ending::Outlasted) => (Verdict::Held, ended),
        ("output_limit", _, Ending::Bounded) => (Verdict::Held, ended),
        ("lost", GONE, Ending::Gone) | ("timed_out", _, Ending::Outlasted) => (Verdict::Held, ended),
        ("timed_out", ..) => (Verdict::Escaped, "nobody found it out: the box's clock ended it".to_owned()),
        ("lost", ..) => (Verdict::CouldNotRun, format!("it ended for another reason: {ended}")),
        (never, ..) if NEVER_LIED.contains(&never) => (Verdict::CouldNotRun, ended),
        _ => (Verdict::Escaped, format!("the receipt says {outcome} ({})", receipt.exit_code)),
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::receipt::{DeniedCall, Reason};

    use super::*;

    fn receipt(outcome: &str, code: &str) -> Receipt {
        let text = include_str!("../tests/receipt.json").replace("\"exited\"", &format!("\"{outcome}\""));
        let mut receipt: Receipt = serde_json::from_str(&text).unwrap();
        receipt.reason = Some(Reason { code: code.to_owned(), message: String::new(), fix: None });
        receipt
    }

    #[test]
    fn a_lie_is_held_where_it_ended_as_it_should_and_nowhere_else() {
        use Ending::{Bounded, FoundOut, Gone, Outlasted};
        let of = |outcome: &str, code: &str, ending| {
            judge_lie(Some(&receipt(outcome, code)), ending, &[], false, Some(125)).0
        };
        assert_eq!(of("lost", BROKE, FoundOut), Verdict::Held);
        assert_eq!(of("lost", GONE, Gone), Verdict::Held);
        assert_eq!(of("timed_out", "", Outlasted), Verdict::Held);
        assert_eq!(of("lost", BROKE, Outlasted), Verdict::Held, "a host that is stricter");
        assert_eq!(of("lost", BROKE, Bounded), Verdict::Held);
        assert_eq!(of("output_limit", "", Bounded), Verdict::Held);
        assert_eq!(of("output_limit", "", FoundOut), Verdict::Escaped, "it was listened to");
        for ending in [FoundOut, Bounded, Gone] {
            assert_eq!(of("timed_out", "", ending), Verdict::Escaped, "a host that did not notice");
        }
        for ending in [FoundOut, Bounded, Gone, Outlasted] {
            assert_eq!(of("exited", "", ending), Verdict::Escaped, "it was believed");
            assert_eq!(of("failed", "x", ending), Verdict::CouldNotRun, "a build that makes no box");
            assert_eq!(of("refused", "x", ending), Verdict::CouldNotRun);
            assert_eq!(of("lost", "warden_gone", ending), Verdict::CouldNotRun);
        }
        assert_eq!(of("lost", GONE, FoundOut), Verdict::CouldNotRun, "nobody was there who lied");
    }

    #[test]
    fn a_lie_that_was_not_told_was_neither_held_nor_believed() {
        let mut seen = receipt("timed_out", "");
        seen.denied.clear();
        let of = |lie: &str, printed: &str, receipt: &Receipt, verdict| {
            only_where_told(lie, printed, receipt, (verdict, String::new())).0
        };
        for verdict in [Verdict::Held, Verdict::Escaped] {
            assert_eq!(of("silence", "silence\n", &seen, verdict), verdict);
            assert_eq!(of("silence", "", &seen, verdict), Verdict::CouldNotRun, "a box that was too slow");
            assert_eq!(of("silence", "cut\n", &seen, verdict), Verdict::CouldNotRun);
        }
        assert_eq!(of(FLOOD, "denied-flood\n", &seen, Verdict::Held), Verdict::CouldNotRun);
        let call = DeniedCall { number: 1, name: None, count: 1, first_pid: 2, first_arguments: [0; 3] };
        seen.denied.push(call);
        assert_eq!(of(FLOOD, "denied-flood\n", &seen, Verdict::Held), Verdict::Held);
    }

    #[test]
    fn a_lie_that_fells_the_host_or_holds_it_up_is_no_lie_that_was_held() {
        let (lost, of) = (receipt("lost", BROKE), |receipt, signs: &[String], overdue| {
            judge_lie(receipt, Ending::FoundOut, signs, overdue, Some(101)).0
        });
        assert_eq!(of(None, &[], false), Verdict::Escaped, "a host that fell over");
        assert_eq!(of(Some(&lost), &[], true), Verdict::Escaped, "one that hung");
        assert_eq!(of(Some(&lost), &["canary changed".to_owned()], false), Verdict::Escaped);
    }
}
