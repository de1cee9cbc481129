//! The positive control of an attempt: the same attempt where what should stop it is switched off on purpose.

use std::io;
use std::path::Path;

use blastbox_wire::receipt::{Outcome, Receipt};

use crate::ask::{Ask, read};
use crate::attempt::{Attempt, Control, Script};
use crate::carry_out::in_box_with;
use crate::frames::{Agent, ask_liar};
use crate::judge::{Said, said};
use crate::performance::{First, Performance, perform};
use crate::process::{Ended, Kind};
use crate::props::Props;
use crate::report::{ControlState, Verdict};

/// The positive control of an attempt.
pub(crate) fn control(attempt: &Attempt, ask: &Ask, python: Option<&Path>) -> ControlState {
    let root = rustix::process::geteuid().is_root();
    let surround = match attempt.control {
        Control::Box(options) => {
            // A control is to succeed, whoever answers.
            return match in_box_with(attempt, ask, options, None) {
                Ok((Verdict::Escaped, evidence, _)) => ControlState::Fired(evidence),
                Ok((Verdict::NotApplicable, evidence, _)) => ControlState::Unavailable(evidence),
                Ok((_, evidence, _)) => ControlState::Failed(evidence),
                Err(error) => ControlState::Failed(error.to_string()),
            };
        }
        Control::Believed(outcome, code) => {
            return believed(attempt, ask, outcome, code)
                .unwrap_or_else(|error| ControlState::Failed(error.to_string()));
        }
        Control::Honest => {
            let Script::Frames(lie, ending) = attempt.script else {
                return ControlState::Failed("only an agent can be honest".to_owned());
            };
            return match ask_liar(attempt, (lie, ending), ask, Agent::Honest) {
                Ok((Verdict::Escaped, evidence)) => ControlState::Fired(evidence),
                Ok((Verdict::NotApplicable, evidence)) => ControlState::Unavailable(evidence),
                Ok((_, evidence)) => ControlState::Failed(evidence),
                Err(error) => ControlState::Failed(error.to_string()),
            };
        }
        Control::Plain | Control::PlainRoot => "plain",
        Control::Namespaces => "namespaces",
        Control::OwnNet => "net",
    };
    let Some(python) = python else {
        return ControlState::Unavailable(
            "this host has no python3 in /usr/bin or /usr/local/bin".to_owned(),
        );
    };
    match (outside(attempt, ask, python, surround), attempt.control) {
        (Ok(state), Control::PlainRoot) if !root => by_a_user(state),
        (Ok(state), _) => state,
        (Err(error), _) => ControlState::Failed(format!("it could not be set up: {error}")),
    }
}

/// What wants root says something even where a user tries it: that the host has no such thing, or that it lets everybody do it.
fn by_a_user(state: ControlState) -> ControlState {
    match state {
        ControlState::Fired(_) | ControlState::Absent(_) => state,
        ControlState::Unavailable(_) | ControlState::Failed(_) => {
            ControlState::Unavailable("only root could do it outside a box".to_owned())
        }
    }
}

/// The receipt of the box as somebody would write it who believed the lie: it must not pass, and the true one must.
fn believed(attempt: &Attempt, ask: &Ask, outcome: Outcome, code: u8) -> io::Result<ControlState> {
    let props = Props::for_attempt(attempt, ask)?;
    let performance = Performance { attempt, props: &props };
    let boxed = read(performance.in_box(ask, attempt.options, "look", true)?.end()?);
    let Some(receipt) = boxed.receipt else {
        return Ok(ControlState::Failed("there is no receipt".to_owned()));
    };
    if let Said::NotApplicable(reason) = said(&boxed.stdout) {
        return Ok(ControlState::Unavailable(reason));
    }
    let forged = Receipt { outcome, exit_code: code, ..receipt.clone() };
    Ok(match ((attempt.lie)(&receipt), (attempt.lie)(&forged)) {
        (None, Some(found)) => {
            ControlState::Fired(format!("a receipt that believed it is found out: {found}"))
        }
        (Some(lie), _) => ControlState::Failed(lie),
        (None, None) => {
            ControlState::Failed(format!("a receipt that says {outcome} ({code}) passes as well"))
        }
    })
}

fn outside(attempt: &Attempt, ask: &Ask, python: &Path, surround: &str) -> io::Result<ControlState> {
    let mut props = Props::for_attempt(attempt, ask)?;
    let ended = {
        let performance = Performance { attempt, props: &props };
        let run = |phase, _| performance.outside(ask, python, surround, phase);
        let first = |ended: Ended| if ended.code == Some(0) { First::Left } else { First::Failed };
        match perform(attempt, ask, Kind::Control, run, first)? {
            Ok(ended) => ended,
            Err(reason) => return Ok(ControlState::Unavailable(reason)),
        }
    };
    let signs = props.signs(&ended.stdout);
    Ok(match (signs.first(), said(&ended.stdout)) {
        (Some(_), _) => ControlState::Fired(signs.join("; ")),
        (None, Said::Escaped(evidence)) => ControlState::Fired(evidence),
        (None, Said::NotApplicable(reason)) => ControlState::Unavailable(reason),
        (None, Said::Absent(reason)) => ControlState::Absent(reason),
        (None, Said::Held(evidence)) => ControlState::Failed(evidence),
        (None, Said::Nothing) => {
            let last: String = ended.stderr.lines().last().unwrap_or_default().chars().take(200).collect();
            let how = if ended.overdue { "it took too long".to_owned() } else { format!("{:?}", ended.code) };
            ControlState::Failed(format!("it said nothing ({how}, signal {:?}): {last}", ended.signal))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_may_not_do_is_not_broken_and_what_is_not_there_is_said() {
        let told = |state: fn(String) -> ControlState| by_a_user(state("EPERM".to_owned()));
        assert_eq!(told(ControlState::Absent), ControlState::Absent("EPERM".to_owned()));
        assert_eq!(told(ControlState::Fired), ControlState::Fired("EPERM".to_owned()));
        for refused in [ControlState::Failed, ControlState::Unavailable] {
            assert!(matches!(told(refused), ControlState::Unavailable(why) if why.contains("only root")));
        }
    }
}
