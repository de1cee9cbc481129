//! `blastbox plan`: the exact steps that would make a box, as data.

use std::fmt::Write as _;

use blastbox_isolation::{Lowered, Warden};
use blastbox_policy::Refusal;
use blastbox_wire::plan::{Cgroups, Exec, First, Plan, Step, WorkspaceAccess};

use crate::args::BoxArgs;
use crate::explain::{Weighed, weigh};
use crate::output;
use crate::problem::Problem;

/// Prints it. A policy that would be refused has no plan, and exits with 125.
pub(crate) async fn plan(args: &BoxArgs, warden: Warden) -> Result<u8, Problem> {
    let Weighed { choice, .. } = weigh(args, warden).await?;
    let lowered = match &choice.chosen {
        Ok(lowered) => lowered,
        Err(refusal) => return Err(refused(refusal.clone(), choice.clone())),
    };
    if args.json {
        output::print_json(&lowered.plan)?;
    } else {
        output::print(&text(lowered))?;
    }
    Ok(0)
}

fn refused(refusal: Refusal, choice: blastbox_isolation::Choice) -> Problem {
    Problem::Create(blastbox_engine::CreateError::Refused { refusal, choice: Box::new(choice) })
}

fn text(lowered: &Lowered) -> String {
    let Plan { box_id, template, own, ids, network, cgroups, limits, landlock, denials, first } =
        &lowered.plan;
    let mut text = String::new();
    // Writing to a string does not fail.
    writeln!(text, "box {box_id} · tier {}", lowered.tier).ok();
    section(&mut text, "Shared by boxes of this image", template);
    section(&mut text, "Of this box alone", own);
    let cgroups = match cgroups {
        Cgroups::Absent => "none: limits of single processes only".to_owned(),
        Cgroups::Enforce { memory, cpu, pids } => {
            let held = [(memory, "memory"), (cpu, "cpu"), (pids, "pids")];
            let names: Vec<&str> = held.iter().filter(|(held, _)| **held).map(|(_, name)| *name).collect();
            format!("must hold {}", names.join(", "))
        }
    };
    text.push_str("\nAround it\n");
    match first {
        First::Agent => writeln!(text, "  becomes   the agent").ok(),
        First::Monitor(monitor) => {
            writeln!(text, "  becomes   {}", output::plain(&monitor.arguments.join(" "))).ok()
        }
    };
    writeln!(text, "  users     {ids:?}\n  network   {network:?}\n  cgroups   {cgroups}").ok();
    writeln!(
        text,
        "  limits    {} millicpus, {} of memory, {} processes, {} open files, files up to {}",
        limits.millicpus,
        blastbox_policy::Bytes(limits.memory),
        limits.pids,
        limits.open_files,
        blastbox_policy::Bytes(limits.file_size)
    )
    .ok();
    writeln!(text, "  denials   {denials:?}\n  landlock  version {} at least", landlock.least_abi).ok();
    for grant in &landlock.grants {
        writeln!(text, "            {:?} {}", grant.access, output::plain(grant.at.as_str())).ok();
    }
    text
}

fn section(text: &mut String, title: &str, steps: &[Step]) {
    writeln!(text, "\n{title}").ok();
    for (number, step) in steps.iter().enumerate() {
        writeln!(text, "  {:>3}  {}", number + 1, output::plain(&line(step))).ok();
    }
}

fn line(step: &Step) -> String {
    let exec = |exec: &Exec| match exec {
        Exec::Allowed => "exec",
        Exec::Denied => "noexec",
    };
    match step {
        Step::Directory { at } => format!("directory  {at}"),
        Step::Cover { at, text } => format!("cover      {at} ({} bytes of ours)", text.len()),
        Step::File { at, text } => format!("file       {at} ({} bytes of ours)", text.len()),
        Step::Link { at, to } => format!("link       {at} -> {to}"),
        Step::HostView { path } => format!("show       {path} of the host, read-only"),
        Step::Image { slot } => format!("show       the image (descriptor {}), read-only", slot.0),
        Step::Show { slot, at } => format!("show       {at} (descriptor {}), read-only", slot.0),
        Step::Device { name } => format!("device     /dev/{}", name.as_str()),
        Step::Scratch { bytes, inodes } => {
            format!("scratch    {} in memory, {inodes} inodes, nosuid, nodev", blastbox_policy::Bytes(*bytes))
        }
        Step::ScratchDirectory { at, owner, exec: rule } => {
            format!("scratch at {at} ({owner:?}, {})", exec(rule))
        }
        Step::Processes => "proc       /proc, own processes only".to_owned(),
        Step::ProcessesAt { at } => format!("proc       {at}, own processes only"),
        Step::Terminals => "terminals  /dev/pts of its own".to_owned(),
        Step::Trust { .. } => {
            "trust      the box's own authority, behind every bundle of authorities".to_owned()
        }
        Step::Writable { at } => format!("writable   {at} by root of the box; changes stay in memory"),
        Step::Volume { slot, at, exec: rule } => {
            format!("volume     {at} (descriptor {}), written for good, {}", slot.0, exec(rule))
        }
        Step::Workspace { slot, at, access, exec: rule } => {
            let access = match access {
                WorkspaceAccess::ReadOnly => "read-only",
                WorkspaceAccess::CopyOnWrite => "copy-on-write",
            };
            format!("workspace  {at} (descriptor {}, {access}, {})", slot.0, exec(rule))
        }
    }
}
