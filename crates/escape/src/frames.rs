//! An agent that lies to the engine: a box whose first process is a test build's, and what the host made of its words.

use std::ffi::OsString;
use std::io;

use blastbox_policy::Tier;
use blastbox_wire::receipt::Receipt;

use crate::attempt::Attempt;
use crate::carry_out::{Ask, read, words};
use crate::process::{Input, Kind};
use crate::props::Props;
use crate::report::Verdict;

/// Which agent is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    Lying,
    /// The control: what no lie has stopped comes to its end.
    Honest,
}

/// Outcomes by which a lie was found out, or outlasted.
const FOUND_OUT: [&str; 4] = ["lost", "failed", "timed_out", "output_limit"];

/// Runs a command in a box whose agent lies.
pub(crate) fn ask_liar(
    attempt: &Attempt,
    lie: &str,
    ask: &Ask,
    agent: Agent,
) -> io::Result<(Verdict, String)> {
    if ask.tier != Tier::Jail {
        return Ok((Verdict::NotApplicable, "the agent that lies is one of a jail".to_owned()));
    }
    let program = match (agent, &ask.liar) {
        (Agent::Honest, _) => &ask.program,
        (Agent::Lying, Ok(program)) => program,
        (Agent::Lying, Err(why)) => return Ok((Verdict::NotApplicable, why.clone())),
    };
    let mut props = Props::for_attempt(attempt, ask)?;
    let mut arguments: Vec<OsString> = words(["run", "--json", "--quiet", "--timeout", "3s"]).collect();
    arguments.extend(ask.options.iter().cloned());
    arguments.extend([OsString::from("--env"), format!("ESCAPE_LIE={lie}").into()]);
    arguments.extend(words(["--", "/bin/true"]));
    let ended = ask.start((Kind::Blastbox, program), arguments, Vec::new(), Input::Text(""))?.end()?;
    let (overdue, code) = (ended.overdue, ended.code);
    let boxed = read(ended);
    let signs = props.signs(&format!("{}{}", boxed.stdout, boxed.stderr));
    Ok(judge_lie(boxed.receipt.as_ref(), &signs, overdue, code))
}

fn judge_lie(
    receipt: Option<&Receipt>,
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
    let why = receipt.reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default();
    match FOUND_OUT.contains(&outcome) {
        true => (Verdict::Held, format!("the box ended: {outcome} {why}").trim_end().to_owned()),
        false => (Verdict::Escaped, format!("the receipt says {outcome} ({})", receipt.exit_code)),
    }
}

/// Where the build is whose agent lies, or why there is none.
pub(crate) fn liar(order: &crate::Order) -> Result<std::path::PathBuf, String> {
    let Some(place) = &order.lifted else {
        return Err("no test build whose agent lies was named (make escape)".to_owned());
    };
    let program = place.join(LIAR).join("blastbox");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("there is no test build whose agent lies in {}", place.display())),
    }
}

/// The directory of that build, beside those that lack a layer.
const LIAR: &str = "liar";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lie_is_held_where_it_was_found_out_and_nowhere_else() {
        let receipt = |outcome: &str| -> Receipt {
            let text = include_str!("../tests/receipt.json").replace("\"exited\"", &format!("\"{outcome}\""));
            serde_json::from_str(&text).unwrap()
        };
        let of = |outcome: &str| judge_lie(Some(&receipt(outcome)), &[], false, Some(125)).0;
        assert_eq!(of("lost"), Verdict::Held);
        assert_eq!(of("exited"), Verdict::Escaped, "it was believed");
        assert_eq!(judge_lie(None, &[], false, Some(101)).0, Verdict::Escaped, "a host that fell over");
        assert_eq!(judge_lie(Some(&receipt("lost")), &[], true, None).0, Verdict::Escaped, "one that hung");
        let signs = ["canary changed".to_owned()];
        assert_eq!(judge_lie(Some(&receipt("lost")), &signs, false, Some(125)).0, Verdict::Escaped);
    }
}
