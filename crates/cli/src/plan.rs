//! `blastbox plan`: the exact steps that would make a box, as data.

use std::fmt::Write as _;

use blastbox_isolation::{Lowered, Warden};
use blastbox_policy::Refusal;
use blastbox_wire::plan::{
    Cgroups, Denials, Exec, First, GrantAccess, Ids, Network, Owner, Plan, Step, WorkspaceAccess,
};

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
    writeln!(text, "  users     {}\n  network   {}\n  cgroups   {cgroups}", users(*ids), wired(*network))
        .ok();
    writeln!(
        text,
        "  limits    {} cpus, {} of memory, {} processes, {} open files, files up to {}",
        f64::from(limits.millicpus) / 1000.0,
        blastbox_policy::Bytes(limits.memory),
        limits.pids,
        limits.open_files,
        blastbox_policy::Bytes(limits.file_size)
    )
    .ok();
    writeln!(text, "  denials   {}", heard(*denials)).ok();
    match landlock.least_abi {
        0 => writeln!(text, "  landlock  as far as the kernel has it").ok(),
        least => writeln!(text, "  landlock  version {least} at least").ok(),
    };
    for grant in &landlock.grants {
        writeln!(text, "            {}  {}", output::plain(grant.at.as_str()), granted(grant.access)).ok();
    }
    text
}

fn users(ids: Ids) -> &'static str {
    match ids {
        Ids::OwnRange => "ids of the host that no other box has",
        Ids::OwnBlock => "65,536 ids of the host that no other box has, one of them for its root",
        Ids::CallerOnly => "the caller's own id, for everything",
    }
}

fn wired(network: Network) -> &'static str {
    match network {
        Network::Empty => "none, not even a loopback",
        Network::Loopback => "a loopback of its own",
        Network::Gateway { loopback: false, .. } => "one interface, which ends in its gateway",
        Network::Gateway { loopback: true, .. } => {
            "one interface, which ends in its gateway, and a loopback of its own"
        }
        Network::Card { .. } => "the machine's card, which ends in its gateway",
    }
}

fn heard(denials: Denials) -> &'static str {
    match denials {
        Denials::Reported => "answered with an error, and reported",
        Denials::WithWrites => "answered with an error, and reported, as is what is written",
        Denials::Silent => "answered with an error; nobody learns of them",
    }
}

fn granted(access: GrantAccess) -> &'static str {
    match access {
        GrantAccess::Read => "read",
        GrantAccess::ReadExecute => "read, start programs",
        GrantAccess::ReadWrite => "read, write",
        GrantAccess::ReadWriteExecute => "read, write, start programs",
        GrantAccess::Devices => "read and write devices",
        GrantAccess::Terminals => "read and write terminals",
        GrantAccess::Shared => "read, write, start programs; no sockets, no pipes",
    }
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
            let owner = match owner {
                Owner::Payload => "the payload's",
                Owner::Root => "of root of the box",
                Owner::Everybody => "everybody's",
            };
            format!("scratch at {at} ({owner}, {})", exec(rule))
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
