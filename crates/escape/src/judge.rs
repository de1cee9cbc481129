//! From what an attempt said and what the host saw to a verdict. Pure.

use blastbox_wire::receipt::Receipt;

use crate::attempt::{Attempt, Class};
use crate::report::Verdict;

/// SIGSYS: the filter of system calls ends what it does not answer.
const SIGSYS: u8 = 31;

/// The last typed line of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Escaped(String),
    Held(String),
    NotApplicable(String),
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
            _ => {}
        }
    }
    last
}

/// What became of an attempt in a box.
pub(crate) fn judge(
    attempt: &Attempt,
    output: &str,
    complaint: &str,
    signs: &[String],
    receipt: Option<&Receipt>,
) -> (Verdict, String) {
    let accepted = |receipt: &Receipt| {
        let found = attempt.unless.iter().find(|gap| receipt.gaps.iter().any(|line| line.code == **gap));
        found.map(|gap| gap.code())
    };
    let lie = match receipt {
        Some(receipt) => (attempt.lie)(receipt),
        None if attempt.class == Class::ControlPlane => Some("blastbox itself did not survive it".to_owned()),
        None => None,
    };
    let success = match (signs.first(), lie, said(output)) {
        (Some(_), _, _) => Some(signs.join("; ")),
        (None, Some(lie), _) => Some(lie),
        (None, None, Said::Escaped(evidence)) => Some(evidence),
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
        return (Verdict::Held, format!("the box ended: {outcome}"));
    }
    match said(output) {
        Said::Held(evidence) => (Verdict::Held, evidence),
        Said::NotApplicable(reason) => (Verdict::NotApplicable, reason),
        Said::Escaped(_) | Said::Nothing if receipt.signal == Some(SIGSYS) => {
            (Verdict::Held, "ended by the filter of system calls (SIGSYS)".to_owned())
        }
        Said::Escaped(_) | Said::Nothing => {
            let why = receipt.reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default();
            let verdict = if outcome == "refused" { Verdict::NotApplicable } else { Verdict::CouldNotRun };
            let code = receipt.exit_code;
            (verdict, format!("{outcome} ({code}) without a word: {why} {}", first_line(complaint)))
        }
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn attempt() -> Attempt {
        catalogue::all().into_iter().find(|attempt| attempt.id() == "kernel.ptrace").unwrap()
    }

    #[test]
    fn a_success_counts_wherever_it_is_said_and_the_last_word_otherwise() {
        assert_eq!(said("ESCAPED a\nHELD b\n"), Said::Escaped("a".to_owned()));
        assert_eq!(said("noise\nNA x\nHELD b\n"), Said::Held("b".to_owned()));
        assert_eq!(said("HELDER b\n"), Said::Nothing);
    }

    #[test]
    fn what_the_host_saw_weighs_more_than_what_the_attempt_says() {
        let (verdict, evidence) = judge(&attempt(), "HELD fine\n", "", &["canary changed".to_owned()], None);
        assert_eq!((verdict, evidence.as_str()), (Verdict::Escaped, "canary changed"));
    }

    #[test]
    fn without_a_receipt_nothing_is_held() {
        let (verdict, _) = judge(&attempt(), "HELD fine\n", "", &[], None);
        assert_eq!(verdict, Verdict::CouldNotRun);
        let lying = catalogue::all().into_iter().find(|one| one.class == Class::ControlPlane).unwrap();
        assert_eq!(judge(&lying, "HELD fine\n", "", &[], None).0, Verdict::Escaped);
    }
}
