//! `blastbox explain`: what a policy means on this host, boundary by boundary.

use std::fmt::Write as _;

use blastbox_engine::Engine;
use blastbox_isolation::{BoundaryReport, Choice, Lowered, Verdict, Warden};
use blastbox_policy::{MIN_EFFECTIVE_BOUNDARIES, Refusal, SealedPolicy};
use serde::Serialize;

use crate::args::BoxArgs;
use crate::output;
use crate::problem::Problem;

/// What a policy and a host make of each other.
pub(crate) struct Weighed {
    pub(crate) policy: SealedPolicy,
    pub(crate) image: String,
    pub(crate) choice: Choice,
}

/// Holds what was asked against this host, without starting a box.
pub(crate) async fn weigh(args: &BoxArgs, warden: Warden) -> Result<Weighed, Problem> {
    let engine = Engine::with_warden(warden)?;
    let policy = args.policy.seal(args.source.workspace.as_ref())?;
    let image = args.store.image(&args.source.image)?;
    let workspace = match &args.source.workspace {
        Some(flag) => Some(flag.open()?.access()),
        None => None,
    };
    let choice = engine.choose(&policy, &image, workspace, &[]).await?;
    Ok(Weighed { policy, image: image.label(), choice })
}

#[derive(Serialize)]
struct Explanation<'a> {
    threat: blastbox_policy::ThreatLevel,
    policy: blastbox_policy::PolicyDigest,
    image: &'a str,
    effective: usize,
    #[serde(flatten)]
    choice: &'a Choice,
}

/// Prints it. A policy that would be refused exits with 125, like a run of it.
pub(crate) async fn explain(args: &BoxArgs, warden: Warden) -> Result<u8, Problem> {
    let Weighed { policy, image, choice } = weigh(args, warden).await?;
    let effective = choice.chosen.as_ref().map_or(0, |lowered| lowered.effective().len());
    if args.json {
        let (threat, digest) = (policy.level(), policy.digest());
        output::print_json(&Explanation {
            threat,
            policy: digest,
            image: &image,
            effective,
            choice: &choice,
        })?;
    } else {
        output::print(&text(&policy, &image, &choice))?;
    }
    Ok(if choice.chosen.is_ok() { 0 } else { blastbox_engine::EXIT_REFUSED })
}

fn text(policy: &SealedPolicy, image: &str, choice: &Choice) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    writeln!(text, "threat level {} · image {} · {}", policy.level(), output::plain(image), policy.digest())
        .ok();
    text.push_str("\nTiers considered\n");
    for one in &choice.considered {
        let (mark, why) = match &one.verdict {
            Verdict::Chosen => ("✓", "chosen".to_owned()),
            Verdict::Refused(refusal) => ("✗", refusal.to_string()),
            Verdict::PassedOver(refusal) => ("–", format!("passed over: {refusal}")),
            Verdict::NotNeeded => ("–", "not needed: a stronger one was chosen".to_owned()),
        };
        writeln!(text, "  {mark} {:<8} {}", one.tier, output::plain(&why)).ok();
    }
    match &choice.chosen {
        Ok(lowered) => held(&mut text, lowered),
        Err(refusal) => refused(&mut text, refusal),
    }
    text
}

fn held(text: &mut String, lowered: &Lowered) {
    let effective = lowered.effective().len();
    writeln!(
        text,
        "\nBoundaries: {effective} of {} effective (at least {MIN_EFFECTIVE_BOUNDARIES} must be)",
        lowered.report.len()
    )
    .ok();
    for BoundaryReport { boundary, effective, how, gaps } in &lowered.report {
        let mark = if *effective { "✓" } else { "✗" };
        let mut lines = how.iter().map(|line| output::plain(line));
        writeln!(text, "  {mark} {boundary:<12} {}", lines.next().unwrap_or_default()).ok();
        lines.for_each(|line| {
            writeln!(text, "{:17}{line}", "").ok();
        });
        for gap in gaps {
            writeln!(text, "{:17}gap {gap}", "").ok();
        }
    }
    if lowered.gaps.is_empty() {
        text.push_str("\nNo gaps.\n");
        return;
    }
    text.push_str("\nGaps, each accepted by name\n");
    for gap in &lowered.gaps {
        writeln!(text, "  {gap} ({})\n      {}\n      fix: {}", gap.boundary(), gap.explain(), gap.fix())
            .ok();
    }
}

fn refused(text: &mut String, refusal: &Refusal) {
    writeln!(
        text,
        "\nRefused: {}\nfix: {}",
        output::plain(&refusal.to_string()),
        output::plain(&refusal.fix())
    )
    .ok();
}
