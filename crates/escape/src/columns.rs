//! Which columns a host has: tiers and policies under which a box can really be had, and why the others are not there.

use std::ffi::OsString;

use blastbox_policy::{Gap, Profile, Tier};

use crate::ask::{Ask, Boxed, probe};
use crate::attempt::Attempt;
use crate::campaign::{EscapeError, Order};
use crate::frames::{Liar, find_liar};
use crate::judge::ended_well;
use crate::report::{Column, Missing};

/// The jail first: it is what every host has, and whose layers are lifted.
const TIERS: [Tier; 4] = [Tier::Jail, Tier::Gvisor, Tier::Microvm, Tier::Wasm];

pub(crate) type Columns = (Vec<Ask>, Vec<Column>, Vec<Missing>);

/// A policy by its name, and the option that asks for it.
struct Policy {
    name: String,
    option: [OsString; 2],
    /// A shipped one. What somebody has written is taken as it stands.
    shipped: bool,
}

/// What a tier cannot do by its nature. No shipped profile accepts it, and without it there would be no column: it is
/// accepted for the campaign, and the report says so.
fn nature(tier: Tier) -> &'static [Gap] {
    match tier {
        Tier::Jail => &[],
        Tier::Gvisor => &[Gap::SilentDenials, Gap::NoPidsLimit],
        Tier::Microvm => &[Gap::EmulatedCpu],
        Tier::Wasm => &[Gap::SilentDenials],
    }
}

/// Attempts that are tried besides every known case (CVE) where a box is a machine on an emulated processor, which takes seconds and is
/// no boundary: at least one of every class, those that the host judges by itself.
const FEW: [&str; 26] = [
    "kernel.nested-root",
    "kernel.unshare-user",
    "kernel.bpf",
    "kernel.io-uring-setup",
    "kernel.packet",
    "files.read-secret",
    "files.write-canary",
    "files.disk",
    "files.dev-mem",
    "network.host-loopback-tcp",
    "network.host-loopback-udp",
    "network.abstract-socket",
    "network.metadata-v4",
    "credentials.environment",
    "credentials.environment-proc",
    "lifecycle.orphan",
    "lifecycle.daemon",
    "lifecycle.kill-host-process",
    "resources.output",
    "information.boot-id",
    "information.kernel-command-line",
    "information.host-name",
    "persistence.tmp",
    "persistence.process",
    "control.lie-timed-out",
    "control.kill-agent",
];

/// Whether it stands for a case that has a number.
fn is_known(attempt: &Attempt) -> bool {
    attempt.stands_for.contains("CVE-")
}

/// Why an attempt is not tried in a column, if it is not.
pub(crate) fn left_out(attempt: &Attempt, ask: &Ask) -> Option<String> {
    let id = attempt.id();
    if ask.tier == Tier::Wasm && id == "resources.memory-pipes" {
        return Some("the guest has no pipes, and a worker does not start with so little memory".to_owned());
    }
    let tried = !ask.few
        || FEW.contains(&id.as_str())
        || is_known(attempt)
        || matches!(attempt.script, crate::Script::Reply(_) | crate::Script::Frames(..));
    (!tried).then(|| {
        "left out on an emulated processor, which is no boundary and takes seconds a box: `--tier microvm --only` and its name tries it".to_owned()
    })
}

/// Which columns there are on this host, and why the others are not.
pub(crate) fn columns(order: &Order) -> Result<Columns, EscapeError> {
    let mut tiers = if order.tiers.is_empty() { TIERS.to_vec() } else { order.tiers.clone() };
    tiers.sort_by_key(|tier| TIERS.iter().position(|one| one == tier));
    tiers.dedup();
    let policies = policies(order);
    let (mut asks, mut columns, mut missing) = (Vec::new(), Vec::new(), Vec::<Missing>::new());
    for tier in tiers {
        let mut found = 0_usize;
        for policy in &policies {
            // The jail is tried under every shipped profile; another tier differs from it by its kernel, and not by those.
            if found > 0 && tier != Tier::Jail && policy.shipped && order.profiles.is_empty() {
                break;
            }
            match column(order, tier, policy)? {
                Ok((ask, column)) => {
                    asks.push(ask);
                    columns.push(column);
                    found = found.saturating_add(1);
                }
                Err(why) => {
                    let what = format!("{tier}/{}", policy.name);
                    match missing.iter_mut().find(|line| line.why == why) {
                        Some(line) => line.what.push_str(&format!(", {what}")),
                        None => missing.push(Missing { what, why }),
                    }
                }
            }
        }
    }
    if asks.is_empty() {
        let why = missing.iter().map(|line| format!("{}: {}", line.what, line.why)).collect::<Vec<_>>();
        return Err(EscapeError::NoColumn(why.join("; ")));
    }
    Ok((asks, columns, missing))
}

fn policies(order: &Order) -> Vec<Policy> {
    if let Some(file) = &order.policy {
        let option = ["--policy".into(), file.clone().into()];
        return vec![Policy { name: file.display().to_string(), option, shipped: false }];
    }
    let named = if order.profiles.is_empty() { Profile::ALL.to_vec() } else { order.profiles.clone() };
    let shipped = |profile: Profile| {
        let option = ["--profile".into(), OsString::from(profile.as_str())];
        Policy { name: profile.to_string(), option, shipped: true }
    };
    named.into_iter().map(shipped).collect()
}

/// One column, or why it is not to be had.
fn column(order: &Order, tier: Tier, policy: &Policy) -> Result<Result<(Ask, Column), String>, EscapeError> {
    let mut options = policy.option.to_vec();
    options.extend(["--tier".into(), OsString::from(tier.as_str())]);
    for gap in &order.accept {
        options.extend(["--accept".into(), OsString::from(gap.as_str())]);
    }
    if tier == Tier::Microvm {
        for (option, value) in [
            ("--image", order.machine_image.clone().map(OsString::from)),
            ("--store", order.store.clone().map(OsString::from)),
        ] {
            options.extend(value.into_iter().flat_map(|value| [option.into(), value]));
        }
    }
    let (program, tether, stop) = (order.program.clone(), order.tether.clone(), order.stop.clone());
    let liar = Liar::Unasked;
    let mut ask =
        Ask { program, tier, options, lifted: None, liar, gaps: Vec::new(), few: false, tether, stop };
    let mut boxed = try_out(order, &ask)?;
    let as_it_is = is_had(&boxed, tier);
    if !as_it_is && policy.shipped && !nature(tier).is_empty() {
        let (mut bolder, before) = (ask.clone(), boxed);
        for gap in nature(tier) {
            bolder.options.extend(["--accept".into(), OsString::from(gap.as_str())]);
        }
        boxed = try_out(order, &bolder)?;
        if is_had(&boxed, tier) {
            ask = bolder;
        } else if matches!(&boxed.receipt, Some(receipt) if receipt.reason.is_none()) {
            // Refused by name before says more than a box that ended.
            boxed = before;
        }
    }
    let Some(receipt) = boxed.receipt.as_ref().filter(|_| is_had(&boxed, tier)) else {
        return Ok(Err(why_not(&boxed, tier)));
    };
    let found: Vec<Gap> = receipt.gaps.iter().map(|line| line.code).collect();
    let accepted: Vec<String> = match as_it_is {
        true => Vec::new(),
        false => nature(tier).iter().filter(|gap| found.contains(gap)).map(ToString::to_string).collect(),
    };
    let (gaps, digest) = (
        found.iter().map(ToString::to_string).collect(),
        receipt.policy.map(|name| name.to_string()).unwrap_or_default(),
    );
    let column = Column { tier, policy: policy.name.clone(), digest, gaps, accepted };
    let few = found.contains(&Gap::EmulatedCpu) && order.only.is_empty();
    // The agent that lies is one of a jail.
    let liar = find_liar(order.lifted.as_deref().filter(|_| tier == Tier::Jail), &ask);
    Ok(Ok((Ask { gaps: found, few, liar, ..ask }, column)))
}

fn try_out(order: &Order, ask: &Ask) -> Result<Boxed, EscapeError> {
    probe(ask).map_err(|source| match order.stop.is_said() {
        true => EscapeError::Stopped,
        false => EscapeError::Start { program: order.program.clone(), source },
    })
}

fn is_had(boxed: &Boxed, tier: Tier) -> bool {
    let good = |receipt: &blastbox_wire::receipt::Receipt| receipt.tier == Some(tier) && ended_well(receipt);
    boxed.receipt.as_ref().is_some_and(good)
}

fn why_not(boxed: &Boxed, tier: Tier) -> String {
    let said = boxed.receipt.as_ref().and_then(|receipt| receipt.reason.as_ref());
    if let Some(reason) = said {
        return reason.message.clone();
    }
    let first = boxed.stderr.lines().next().unwrap_or_default();
    match (&boxed.receipt, tier) {
        (Some(_), Tier::Microvm) => format!("the image has no python3 that starts: {first}"),
        (Some(receipt), _) => format!("a first box ended: {} {first}", receipt.outcome.as_str()),
        (None, _) => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    #[test]
    fn the_few_are_in_the_catalogue_and_every_class_has_one() {
        let all = crate::catalogue::all();
        for id in FEW {
            assert!(all.iter().any(|attempt| attempt.id() == id), "{id}");
        }
        for class in Class::ALL {
            let few = FEW.iter().filter(|id| id.starts_with(&format!("{}.", class.as_str()))).count();
            // What a machine does with its output is the same whatever is printed.
            assert!(few >= 2 || class == Class::Resources && few == 1, "{class:?}");
        }
        // The number is in docs/attacks/README.md.
        let known = |attempt: &&Attempt| is_known(attempt) || FEW.contains(&attempt.id().as_str());
        let copied =
            all.iter().filter(|attempt| matches!(attempt.script, crate::Script::Reply(_)) && !known(attempt));
        assert_eq!(all.iter().filter(known).count() + copied.count(), 81);
    }

    #[test]
    fn the_jail_comes_first_and_every_tier_comes() {
        assert_eq!(TIERS[0], Tier::Jail);
        assert!(Tier::ALL.iter().all(|tier| TIERS.contains(tier)));
    }
}
