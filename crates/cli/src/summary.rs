//! The few lines that a person reads after a run.

use std::time::Duration;

use blastbox_engine::DISMISSED;
use blastbox_wire::receipt::{LimitName, Outcome, Receipt};

use crate::output::plain;

/// Denied calls that are named; the receipt has all of them.
const MOST_DENIED: usize = 5;
const LONGEST_NAME: usize = 80;

/// The summary. Quiet: only what went wrong on our side.
pub(crate) fn text(receipt: &Receipt, quiet: bool) -> String {
    let ours = match receipt.outcome {
        Outcome::Refused | Outcome::NotStarted | Outcome::Failed | Outcome::Lost => true,
        Outcome::Exited
        | Outcome::Signalled
        | Outcome::TimedOut
        | Outcome::OutOfMemory
        | Outcome::PidsExhausted
        | Outcome::OutputLimit
        | Outcome::FuelSpent => false,
    };
    let mut text = String::new();
    if ours {
        let message = receipt.reason.as_ref().map_or(receipt.outcome.as_str(), |reason| &reason.message);
        // Which one, where the message is about the command and not about blastbox.
        let what = match (receipt.outcome, receipt.command.first()) {
            (Outcome::NotStarted, Some(command)) => format!("{}: ", short(&plain(command))),
            _ => String::new(),
        };
        text.push_str(&format!("error: {}: {what}{}\n", word(receipt), plain(message)));
        if let Some(fix) = receipt.reason.as_ref().and_then(|reason| reason.fix.as_deref()) {
            text.push_str(&format!("fix: {fix}\n"));
        }
    } else if !quiet {
        text.push_str(&format!("blastbox: {}\n", facts(receipt).join(" · ")));
        if let Some(reason) = &receipt.reason {
            text.push_str(&format!("  {}\n", plain(&reason.message)));
        }
    }
    text
}

/// The one line: what happened, how long it took, where, what was weaker, what was denied, what was met.
fn facts(receipt: &Receipt) -> Vec<String> {
    let durations = receipt.durations;
    let micros =
        durations.setup_micros.saturating_add(durations.run_micros).saturating_add(durations.teardown_micros);
    let mut facts = vec![format!("{} in {}", word(receipt), time(Duration::from_micros(micros)))];
    if let Some(tier) = receipt.tier {
        facts.push(tier.to_string());
    }
    let gaps: Vec<&str> = receipt.gaps.iter().map(|gap| gap.code.as_str()).collect();
    match gaps.len() {
        0 => {}
        1 => facts.push(format!("1 gap accepted ({})", gaps.join(", "))),
        count => facts.push(format!("{count} gaps accepted ({})", gaps.join(", "))),
    }
    if !receipt.denied.is_empty() {
        facts.push(format!("denied: {} (kernel)", denied(receipt)));
    }
    if let Some(first) = receipt.unexpected_writes.first() {
        let more = match receipt.unexpected_writes.len() - 1 {
            0 => String::new(),
            more => format!(", {more} more"),
        };
        let path = if first.path.is_empty() { &first.reason } else { &first.path };
        facts.push(format!("unexpected writes: {path} ×{}{more} (files)", first.count));
    }
    if !receipt.network.denied.is_empty() {
        facts.push(format!("kept from: {} (network)", kept_from(receipt)));
    }
    if receipt.network.gateway_lost {
        facts.push("its gateway was lost".to_owned());
    }
    if !receipt.limits_hit.is_empty() {
        let names: Vec<&str> = receipt.limits_hit.iter().copied().map(LimitName::as_str).collect();
        facts.push(format!("limits met: {}", names.join(", ")));
    }
    facts
}

fn word(receipt: &Receipt) -> String {
    match receipt.outcome {
        Outcome::Exited => format!("exited {}", receipt.exit_code),
        Outcome::Signalled if receipt.reason.as_ref().is_some_and(|reason| reason.code == DISMISSED) => {
            "ended by request".to_owned()
        }
        Outcome::Signalled => format!("ended by signal {}", receipt.signal.unwrap_or(0)),
        Outcome::TimedOut => {
            format!("timed out after {} s", receipt.limits.map_or(0, |limits| limits.timeout_seconds))
        }
        Outcome::OutOfMemory => "out of memory".to_owned(),
        Outcome::PidsExhausted => format!("exited {} after its limit on processes", receipt.exit_code),
        Outcome::OutputLimit => "ended for too much output".to_owned(),
        Outcome::FuelSpent => {
            let fuel = receipt.limits.and_then(|limits| limits.fuel).unwrap_or(0);
            format!("ended after all its work ({fuel} units)")
        }
        Outcome::Refused => "refused".to_owned(),
        Outcome::NotStarted => "not started".to_owned(),
        Outcome::Failed => "failed".to_owned(),
        Outcome::Lost => "lost".to_owned(),
    }
}

fn denied(receipt: &Receipt) -> String {
    let name = |call: &blastbox_wire::receipt::DeniedCall| {
        let name = call.name.clone().unwrap_or_else(|| format!("system call {}", call.number));
        format!("{name} ×{}", call.count)
    };
    let mut names: Vec<String> = receipt.denied.iter().take(MOST_DENIED).map(name).collect();
    if receipt.denied.len() > MOST_DENIED {
        names.push(format!("{} more", receipt.denied.len() - MOST_DENIED));
    }
    names.join(", ")
}

fn kept_from(receipt: &Receipt) -> String {
    let denied = &receipt.network.denied;
    let name = |line: &blastbox_wire::receipt::DeniedTarget| {
        let target = if line.target.is_empty() { "no target" } else { &line.target };
        format!("{}:{} ({}) ×{}", short(&plain(target)), line.port, line.reason, line.count)
    };
    let mut names: Vec<String> = denied.iter().take(MOST_DENIED).map(name).collect();
    if denied.len() > MOST_DENIED {
        names.push(format!("{} more", denied.len() - MOST_DENIED));
    }
    names.join(", ")
}

/// So much of a name that a line stays a line.
fn short(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn time(time: Duration) -> String {
    match time.as_millis() {
        0..10 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        10..10_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use blastbox_engine::{Account, Ending, receipt};
    use blastbox_isolation::{CgroupKind, Facts, KernelVersion, Swap, UserNamespaces};
    use blastbox_policy::{Gap, Profile, Refusal};
    use blastbox_wire::agent::Exit;
    use blastbox_wire::receipt::{DeniedCall, GapLine, UnexpectedWrite};

    use super::*;

    fn sample(ending: Ending) -> Receipt {
        let facts = Facts {
            tun: blastbox_isolation::Tun::Usable,
            machines: blastbox_isolation::Machines::default(),
            kernel: "6.1.0".into(),
            version: KernelVersion::new(6, 1),
            arch: "x86_64".into(),
            privileged: true,
            cgroups: CgroupKind::V2,
            memory: true,
            cpu: true,
            pids: true,
            landlock_abi: 4,
            seccomp_user_notif: true,
            reads_own_children: true,
            swap: Swap::Absent,
            user_namespaces: UserNamespaces::default(),
            gvisor: blastbox_isolation::Gvisor::default(),
            wasm: None,
            gpu: None,
            reads_directories: true,
            hears_console: false,
        };
        let policy = Profile::Default.draft().unwrap().seal().unwrap();
        receipt(&Account {
            policy: &policy,
            image: "host".into(),
            facts: &facts,
            choice: None,
            box_id: None,
            arguments: &[b"true".to_vec()],
            started: std::time::SystemTime::UNIX_EPOCH,
            ending,
            usage: None,
            ended: None,
        })
    }

    #[test]
    fn a_receipt_reads_back_as_it_was_written() {
        let mut receipt = sample(Ending::Refused(Refusal::not_accepted(Gap::SharedKernel)));
        receipt.gaps.push(GapLine::from(Gap::HostImage));
        receipt.denied.push(mount(1));
        receipt.limits_hit.push(LimitName::Memory);
        let text = serde_json::to_string(&receipt).unwrap();
        assert_eq!(serde_json::from_str::<Receipt>(&text).unwrap(), receipt);
        assert!(
            text.contains(r#""outcome":"refused""#) && text.contains(r#""code":"gap_not_accepted""#),
            "{text}"
        );
    }

    #[test]
    fn the_write_that_others_trust_is_named_first() {
        let mut receipt = sample(Ending::Exited(Exit::Code(0)));
        let write = |path: &str, reason: &str| UnexpectedWrite {
            path: path.to_owned(),
            reason: reason.to_owned(),
            syscall: "openat".to_owned(),
            count: 2,
            first_pid: 2,
        };
        receipt.unexpected_writes =
            vec![write("/workspace/.bashrc", "poisons-tools"), write("", "unreadable")];
        let line = text(&receipt, false);
        assert!(line.contains("unexpected writes: /workspace/.bashrc ×2, 1 more (files)"), "{line}");
        receipt.unexpected_writes.remove(0);
        assert!(text(&receipt, false).contains("unexpected writes: unreadable ×2 (files)"));
    }

    fn mount(count: u64) -> DeniedCall {
        DeniedCall { number: 165, name: Some("mount".into()), count, first_pid: 2, first_arguments: [0; 3] }
    }

    #[test]
    fn a_run_is_one_line_and_quiet_is_none() {
        let mut receipt = sample(Ending::Exited(Exit::Code(0)));
        receipt.gaps = vec![GapLine::from(Gap::SharedKernel), GapLine::from(Gap::HostImage)];
        receipt.denied.push(mount(1));
        receipt.durations.run_micros = 41_000;
        assert_eq!(
            text(&receipt, false),
            "blastbox: exited 0 in 41 ms · 2 gaps accepted (shared-kernel, host-image) · denied: mount ×1 (kernel)\n"
        );
        assert_eq!(text(&receipt, true), "");
    }

    #[test]
    fn a_box_that_its_owner_ends_reads_as_no_failure() {
        let said = text(&sample(Ending::Dismissed), false);
        assert!(said.starts_with("blastbox: ended by request in ") && !said.contains("signal"), "{said}");
        let killed = text(&sample(Ending::Exited(Exit::Signal(9))), false);
        assert!(killed.starts_with("blastbox: ended by signal 9 in "), "{killed}");
    }

    #[test]
    fn a_refusal_is_said_even_when_quiet_and_says_what_to_do() {
        let said = text(&sample(Ending::Refused(Refusal::TooFewBoundaries { effective: 2 })), true);
        assert!(said.starts_with("error: refused: only 2 of the five") && said.contains("\nfix: "), "{said}");
    }

    #[test]
    fn a_time_reads_like_one() {
        assert_eq!(time(Duration::from_micros(1_240)), "1.2 ms");
        assert_eq!(time(Duration::from_millis(41)), "41 ms");
        assert_eq!(time(Duration::from_millis(12_340)), "12.3 s");
    }
}
