//! Carries out one attempt in a box, and has the host's side judge what became of it.

use std::io;
use std::time::Instant;

use crate::ask::{Ask, read};
use crate::attempt::{Attempt, Script};
use crate::frames::{Agent, ask_liar};
use crate::judge::{Seen, ended_well, judge, judge_copy, unfit};
use crate::performance::{First, Performance, perform};
use crate::process::{Ended, Input, Kind};
use crate::props::Props;
use crate::reply::Copying;
use crate::report::{Cell, Verdict};

/// What the receipt of the first of two boxes says.
fn first_box(attempt: &Attempt, ended: Ended) -> First {
    let boxed = read(ended);
    match &boxed.receipt {
        Some(receipt) if ended_well(receipt) => First::Left,
        Some(receipt) if receipt.outcome.as_str() == "refused" => {
            let reason = receipt.reason.as_ref();
            First::Unfit(reason.map_or_else(String::new, |reason| format!("refused: {}", reason.message)))
        }
        Some(receipt) => unfit(attempt, receipt).map_or(First::Failed, First::Unfit),
        None => First::Failed,
    }
}

/// One attempt in a box.
pub(crate) fn in_box(attempt: &Attempt, ask: &Ask) -> Cell {
    let began = Instant::now();
    let done = in_box_with(attempt, ask, attempt.options, ask.kernel());
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match done {
        Ok((verdict, evidence, denied)) => Cell { denied, millis, ..Cell::new(verdict, evidence) },
        Err(error) => {
            let evidence = format!("it could not be set up: {error}");
            Cell { millis, ..Cell::new(Verdict::CouldNotRun, evidence) }
        }
    }
}

/// `kernel`: who answers there, if what is only answered is not to count.
pub(crate) fn in_box_with(
    attempt: &Attempt,
    ask: &Ask,
    options: &[&str],
    kernel: Option<&'static str>,
) -> io::Result<(Verdict, String, Vec<String>)> {
    if let Script::Frames(lie, ending) = attempt.script {
        let (verdict, evidence) = ask_liar(attempt, (lie, ending), ask, Agent::Lying)?;
        return Ok((verdict, evidence, Vec::new()));
    }
    let mut props = Props::for_attempt(attempt, ask)?;
    if let Some(copying) = &props.copying {
        let (ended, asked) = copy(copying, ask)?;
        let signs = props.signs(&format!("{}{}", ended.stdout, ended.stderr));
        let (verdict, evidence) = judge_copy(&ended, asked, &signs);
        return Ok((verdict, evidence, Vec::new()));
    }
    let boxed = {
        let performance = Performance { attempt, props: &props };
        let run = |phase, whole| performance.in_box(ask, options, phase, whole);
        match perform(attempt, ask, Kind::Blastbox, run, |ended| first_box(attempt, ended))? {
            Ok(ended) => read(ended),
            Err(reason) => return Ok((Verdict::NotApplicable, reason, Vec::new())),
        }
    };
    let signs = props.signs(&format!("{}{}", boxed.stdout, boxed.stderr));
    let receipt = boxed.receipt.as_ref();
    let (output, complaint) = (boxed.stdout.as_str(), boxed.stderr.as_str());
    let compared = props.can_compare();
    let seen = Seen { output, complaint, signs: &signs, receipt, kernel, compared };
    let (verdict, evidence) = judge(attempt, seen);
    let denied = receipt.map(|receipt| receipt.denied.iter().filter_map(|call| call.name.clone()).collect());
    Ok((verdict, evidence, denied.unwrap_or_default()))
}

/// `blastbox cp` from somebody who lies; and whether it came as far as being lied to.
fn copy(copying: &Copying, ask: &Ask) -> io::Result<(Ended, bool)> {
    let liar = copying.lie()?;
    let question = copying.question();
    let running = ask.start((Kind::Blastbox, &ask.program), question, Vec::new(), Input::Text(""))?;
    Ok((running.end()?, liar.was_asked()))
}
