//! From what an attempt said and what the host saw to a verdict. Pure.

use blastbox_policy::{Gap, Tier};
use blastbox_wire::receipt::{LimitName, Receipt};

use crate::attempt::{Attempt, Class, Prop, Word};
use crate::process::Ended;
use crate::report::Verdict;

/// SIGSYS: the filter of system calls ends what it does not answer.
const SIGSYS: u8 = 31;

/// What a caller without a group for its boxes has to accept.
const UNCOUNTED: &[Gap] = &[Gap::NoMemoryLimit];

/// The last typed line of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Escaped(String),
    Held(String),
    NotApplicable(String),
    /// The host has nothing of the kind. Only a control can know.
    Absent(String),
    Nothing,
}

/// Reads the typed line. One that says ESCAPED counts wherever it stands.
pub(crate) fn said(output: &str) -> Said {
    let mut last = Said::Nothing;
    for line in output.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim().to_owned();
        match word {
            "ESCAPED" => return Said::Escaped(rest),
            "HELD" => last = Said::Held(rest),
            "NA" => last = Said::NotApplicable(rest),
            "ABSENT" => last = Said::Absent(rest),
            _ => {}
        }
    }
    last
}

/// What there is to judge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) output: &'a str,
    pub(crate) complaint: &'a str,
    /// What the host saw on its own side.
    pub(crate) signs: &'a [String],
    pub(crate) receipt: Option<&'a Receipt>,
    /// Who answers system calls there, if it is not the host's kernel.
    pub(crate) kernel: Option<&'static str>,
    /// Whether the host had something to compare with what was read.
    pub(crate) compared: bool,
}

/// What became of an attempt in a box.
pub(crate) fn judge(attempt: &Attempt, seen: Seen<'_>) -> (Verdict, String) {
    let Seen { output, complaint, signs, receipt, kernel, compared } = seen;
    // Limits of single processes are a matter of the kernel that has the processes: behind another one than the host's there is
    // nothing but the box's group.
    let by_process = attempt.class == Class::Resources && matches!(attempt.name, "memory" | "fork-bomb");
    let uncounted = if kernel.is_some() && by_process { UNCOUNTED } else { &[] };
    let accepted = |receipt: &Receipt| {
        let mut gaps = attempt.unless.iter().chain(uncounted);
        gaps.find(|gap| receipt.gaps.iter().any(|line| line.code == **gap)).map(|gap| gap.code())
    };
    let lie = match receipt {
        // It had nothing to try, said so, and ended well: there is nothing that the receipt could be wrong about.
        Some(receipt) if ended_well(receipt) && matches!(said(output), Said::NotApplicable(_)) => None,
        Some(receipt) => (attempt.lie)(receipt),
        None if attempt.class == Class::ControlPlane => Some("blastbox itself did not survive it".to_owned()),
        None => None,
    };
    let success = match (signs.first(), lie, said(output)) {
        (Some(_), _, _) => Some(signs.join("; ")),
        (None, Some(lie), _) => Some(lie),
        (None, None, Said::Escaped(evidence)) => {
            if let Some(told) = receipt.and_then(|receipt| by_gateway(attempt, receipt, &evidence)) {
                return told;
            }
            let kernel = kernel.filter(|_| receipt.is_some());
            match kernel.and_then(|kernel| answered(attempt.word(), compared, kernel, &evidence)) {
                Some(told) => return told,
                None => Some(evidence),
            }
        }
        (None, None, _) => None,
    };
    if let Some(evidence) = success {
        // A gap makes expected what the attempt itself saw. What changed on the host is nothing that a policy can accept.
        let excuse = if signs.is_empty() { receipt.and_then(accepted) } else { None };
        return match excuse {
            Some(gap) => (Verdict::NotApplicable, format!("gap {gap} is accepted by the policy: {evidence}")),
            None => (Verdict::Escaped, evidence),
        };
    }
    let Some(receipt) = receipt else {
        return (Verdict::CouldNotRun, format!("there is no receipt: {}", first_line(complaint)));
    };
    let outcome = receipt.outcome.as_str();
    if attempt.stopped_by.contains(&outcome) {
        // A clock that ended the box while it was still being made has stopped nothing.
        return if outcome == "timed_out" && !output.contains("BEGUN") {
            (Verdict::CouldNotRun, "the box ended before the attempt began".to_owned())
        } else {
            (Verdict::Held, format!("the box ended: {outcome}"))
        };
    }
    match said(output) {
        Said::Held(evidence) => (Verdict::Held, evidence),
        Said::NotApplicable(reason) | Said::Absent(reason) => (Verdict::NotApplicable, reason),
        Said::Escaped(_) | Said::Nothing if receipt.signal == Some(SIGSYS) => {
            (Verdict::Held, "ended by the filter of system calls (SIGSYS)".to_owned())
        }
        Said::Escaped(_) | Said::Nothing => match accepted(receipt) {
            Some(gap) if outcome == "lost" && attempt.class == Class::Resources => {
                let told =
                    format!("gap {gap} is accepted by the policy: the box ended before it had more (lost)");
                (Verdict::NotApplicable, told)
            }
            _ => silent(attempt, receipt, complaint),
        },
    }
}

/// What became of a lie to `blastbox cp`. `asked`: whether it came as far as being lied to.
pub(crate) fn judge_copy(ended: &Ended, asked: bool, signs: &[String]) -> (Verdict, String) {
    let said = first_line(&ended.stderr);
    match (signs.first(), ended.code) {
        (Some(_), _) => (Verdict::Escaped, signs.join("; ")),
        (None, _) if ended.overdue => (Verdict::CouldNotRun, format!("the copy took too long: {said}")),
        (None, _) if !asked => (Verdict::CouldNotRun, format!("nobody asked for the lie: {said}")),
        // 0: what was harmless in it was taken; 1: and the rest left out; 125: all of it was refused.
        (None, Some(code @ (0 | 1 | 125))) => (
            Verdict::Held,
            format!("blastbox cp ended with {code}: {said}").trim_end_matches([' ', ':']).to_owned(),
        ),
        (None, _) => (Verdict::Escaped, format!("blastbox itself did not survive it: {said}")),
    }
}

/// What the gateway of a box with network made of it: there a packet that was taken has come as far as the gateway, which is the
/// host's and tells by itself what it let through.
fn by_gateway(attempt: &Attempt, receipt: &Receipt, evidence: &str) -> Option<(Verdict, String)> {
    let network = &receipt.network;
    if attempt.class != Class::Network || network.gateway_lost || network.untold > 0 {
        return None;
    }
    // Only what the attempt itself says it has reached: whatever else was refused or let through proves nothing of it.
    let named = |target: &str, port: u16| {
        let name = format!("{target}:{port}");
        evidence.split_whitespace().any(|word| word == name)
    };
    if let Some(passed) = network.allowed.iter().find(|one| named(&one.target, one.port)) {
        let (target, port, rule) = (&passed.target, passed.port, &passed.rule);
        // A rule that names this very target was written for it. What a wider one, or one for another name, lets through came out.
        return Some(match rule == target {
            true => (Verdict::NotApplicable, format!("the policy names {target}:{port}: {evidence}")),
            false => {
                let told = format!("the rule for {rule} let {target}:{port} through: {evidence}");
                (Verdict::Escaped, told)
            }
        });
    }
    let stopped = network.denied.iter().find(|one| named(&one.target, one.port))?;
    let (target, port, reason) = (&stopped.target, stopped.port, &stopped.reason);
    Some((Verdict::Held, format!("the gateway refused {target}:{port} ({reason}): {evidence}")))
}

/// How a word is taken where another kernel than the host's has answered; `None` where it counts nevertheless.
fn answered(word: Word, compared: bool, kernel: &str, evidence: &str) -> Option<(Verdict, String)> {
    match word {
        Word::Counts => None,
        Word::Content if compared => {
            Some((Verdict::Held, format!("what {kernel} shows there is not the host's: {evidence}")))
        }
        Word::Content => {
            let why = "this host has nothing there, or shows it to nobody, that it could be compared with";
            Some((Verdict::NotApplicable, format!("answered by {kernel}: {evidence}; {why}")))
        }
        Word::Answer(judges) => Some((
            Verdict::NotApplicable,
            format!(
                "answered by {kernel}, not by the host: {evidence}; what it could reach is judged by {judges}"
            ),
        )),
    }
}

/// The engine's words before those of an agent that gave up, and the first of a worker's whose workspace has links, pipes or sockets.
const UNFIT: &str = "the agent of the box gave up: workspace_unfit: ";

/// Why a tier does not take the workspace of an attempt at all, before anything ran, if it does not. Only the tier `wasm` has
/// such a word: elsewhere whatever an agent says may be the payload's.
pub(crate) fn unfit(attempt: &Attempt, receipt: &Receipt) -> Option<String> {
    let reason = receipt.reason.as_ref()?;
    let given = receipt.tier == Some(Tier::Wasm) && attempt.has(Prop::Workspace);
    (given && reason.message.starts_with(UNFIT)).then(|| format!("refused: {}", reason.message))
}

/// An attempt that ended without a word.
fn silent(attempt: &Attempt, receipt: &Receipt, complaint: &str) -> (Verdict, String) {
    let outcome = receipt.outcome.as_str();
    let met = receipt.limits_hit.iter().find(|name| matches!(name, LimitName::Memory | LimitName::Pids));
    if let (Class::Resources, Some(limit)) = (attempt.class, met) {
        // Another kernel than the host's notes no signal when the host ends one of its processes at a limit.
        return (Verdict::Held, format!("ended at the limit of the box: {} ({outcome})", limit.as_str()));
    }
    let why = receipt.reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default();
    if let Some(told) = unfit(attempt, receipt) {
        return (Verdict::NotApplicable, told);
    }
    if outcome == "refused" {
        return (Verdict::NotApplicable, format!("refused: {why}"));
    }
    let code = receipt.exit_code;
    (Verdict::CouldNotRun, format!("{outcome} ({code}) without a word: {why} {}", first_line(complaint)))
}

/// Whether what ran in a box came to its own end, and a good one.
pub(crate) fn ended_well(receipt: &Receipt) -> bool {
    receipt.outcome.as_str() == "exited" && receipt.exit_code == 0
}

fn first_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests;
