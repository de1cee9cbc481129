//! Writing the receipt: everything that is known of one command in one box, in one place.

use std::time::{Duration, SystemTime};

use blastbox_isolation::{CgroupKind, Choice, Facts, Lowered};
use blastbox_policy::{FileRules, KernelRules, LifetimeRules, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::agent::Usage as ExecUsage;
use blastbox_wire::receipt::{
    BoundaryLine, CgroupFlavour, Durations, GapLine, Host, LimitName, Limits, NetworkUse, Outcome, Output,
    Reason, Receipt, Usage, VERSION, echo_command, rfc3339,
};
use blastbox_wire::warden::Spent;

use crate::desk::Ended;
use crate::outcome::{EXIT_REFUSED, Ending, Loss, outcome};

/// What a receipt is written from.
#[derive(Debug)]
pub struct Account<'a> {
    /// The policy.
    pub policy: &'a SealedPolicy,
    /// The image's name.
    pub image: String,
    /// The host.
    pub facts: &'a Facts,
    /// What was weighed, where it came so far.
    pub choice: Option<&'a Choice>,
    /// The box, where one was made.
    pub box_id: Option<BoxId>,
    /// Program and arguments.
    pub arguments: &'a [Vec<u8>],
    /// When the box was asked for.
    pub started: SystemTime,
    /// How the command ended.
    pub ending: Ending,
    /// What the command's process used, where it ran.
    pub usage: Option<ExecUsage>,
    /// What is known of the box, where one was made.
    pub ended: Option<&'a Ended>,
}

const SEE_CONSOLE: &str =
    "see what its kernel said: `blastbox run --console FILE` with the same tier and image";

/// Writes the receipt.
#[must_use]
pub fn receipt(account: &Account<'_>) -> Receipt {
    let spent = account.ended.map_or(Spent::default(), |ended| ended.spent);
    let mut verdict = outcome(&account.ending, &spent);
    let lowered = account.choice.and_then(|choice| choice.chosen.as_ref().ok());
    // Of all that can be lost, a kernel alone says why where nobody has listened.
    if let (Ending::Lost(Loss::AgentGone | Loss::NeverSpoke(_)), Some(reason)) =
        (&account.ending, &mut verdict.reason)
        && lowered.is_some_and(Lowered::has_own_kernel)
        && !account.facts.hears_console
    {
        reason.fix = Some(SEE_CONSOLE.to_owned());
    }
    let boundaries = lowered.map(|lowered| lowered.report.as_slice()).unwrap_or_default().iter();
    Receipt {
        version: VERSION,
        box_id: account.box_id.clone(),
        outcome: verdict.outcome,
        exit_code: verdict.exit_code,
        signal: verdict.signal,
        reason: verdict.reason,
        command: echo_command(account.arguments),
        image: account.image.clone(),
        tier: lowered.map(|lowered| lowered.tier),
        threat: Some(account.policy.level()),
        policy: Some(account.policy.digest()),
        started_at: rfc3339(account.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        durations: durations(account.ended),
        boundaries: boundaries
            .map(|line| BoundaryLine {
                boundary: line.boundary,
                effective: line.effective,
                how: line.how.clone(),
                gaps: line.gaps.clone(),
            })
            .collect(),
        gaps: lowered.map(|l| l.gaps.iter().copied().map(GapLine::from).collect()).unwrap_or_default(),
        denied: account.ended.map(|ended| ended.tally.denied_calls()).unwrap_or_default(),
        unexpected_writes: account.ended.map(|ended| ended.tally.unexpected_writes()).unwrap_or_default(),
        network: account.ended.map(|ended| ended.network.clone()).unwrap_or_default(),
        tools: account.ended.map(|ended| ended.tally.tools()).unwrap_or_default(),
        tools_refused: account.ended.map(|ended| ended.tally.refused_calls()).unwrap_or_default(),
        limits: Some(limits(account.policy)),
        limits_hit: limits_hit(verdict.limits_hit, account.ended),
        usage: usage(&spent, account.usage),
        output: account.ended.map(|ended| ended.tally.output).unwrap_or_default(),
        host: host(account.facts),
    }
}

/// What is known of a run that ended before a box was asked for.
#[derive(Debug)]
pub struct Unasked<'a> {
    /// The policy, where it could be sealed.
    pub policy: Option<&'a SealedPolicy>,
    /// The image, as it was named.
    pub image: String,
    /// The host, as far as it was looked at.
    pub facts: &'a Facts,
    /// Program and arguments.
    pub arguments: &'a [Vec<u8>],
    /// When it ended.
    pub at: SystemTime,
    /// In a word: whoever asked got a no, or we failed.
    pub outcome: Outcome,
    /// Why.
    pub reason: Reason,
}

/// Writes the receipt of a run that ended before a box was asked for: nothing was made, and nothing was used.
#[must_use]
pub fn receipt_unasked(about: Unasked<'_>) -> Receipt {
    let Unasked { policy, image, facts, arguments, at, outcome, reason } = about;
    Receipt {
        version: VERSION,
        box_id: None,
        outcome,
        exit_code: EXIT_REFUSED,
        signal: None,
        reason: Some(reason),
        command: echo_command(arguments),
        image,
        tier: None,
        threat: policy.map(SealedPolicy::level),
        policy: policy.map(SealedPolicy::digest),
        started_at: rfc3339(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()),
        durations: Durations::default(),
        boundaries: Vec::new(),
        gaps: Vec::new(),
        denied: Vec::new(),
        unexpected_writes: Vec::new(),
        network: NetworkUse::default(),
        tools: Vec::new(),
        tools_refused: 0,
        limits: policy.map(limits),
        limits_hit: Vec::new(),
        usage: Usage::default(),
        output: Output::default(),
        host: host(facts),
    }
}

/// What decides about the outcome, and what the box says of its scratch space and of memory that was refused in it.
fn limits_hit(mut decisive: Vec<LimitName>, ended: Option<&Ended>) -> Vec<LimitName> {
    for limit in ended.into_iter().flat_map(|ended| ended.tally.filled()) {
        if !decisive.contains(&limit) {
            decisive.push(limit);
        }
    }
    decisive
}

fn durations(ended: Option<&Ended>) -> Durations {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    ended.map_or(Durations::default(), |ended| Durations {
        setup_micros: micros(ended.setup),
        run_micros: micros(ended.run),
        teardown_micros: micros(ended.teardown),
    })
}

fn limits(policy: &SealedPolicy) -> Limits {
    // No `..`: a limit that is added does not compile until the receipt names it.
    let KernelRules {
        tier: _,
        cpus,
        memory,
        pids,
        on_denied_syscall: _,
        root: _,
        gpu: _,
        deterministic: _,
        fuel,
        guest: _,
        gvisor_platform: _,
    } = policy.kernel();
    let FileRules { workspace: _, disk, inodes, file_size, open_files, exec: _, report_writes: _ } =
        policy.files();
    let LifetimeRules { timeout, output, survives_daemon: _ } = policy.lifetime();
    Limits {
        millicpus: cpus.millis(),
        memory_bytes: memory.0,
        pids: *pids,
        disk_bytes: disk.0,
        inodes: *inodes,
        file_size_bytes: file_size.0,
        open_files: *open_files,
        output_bytes: output.0,
        timeout_seconds: timeout.0,
        fuel: *fuel,
    }
}

fn usage(spent: &Spent, command: Option<ExecUsage>) -> Usage {
    // 0 is how the warden says that nobody counted.
    let counted = |value: u64| (value != 0).then_some(value);
    Usage {
        cpu_micros: counted(spent.cpu_micros),
        memory_peak_bytes: counted(spent.memory_peak),
        command_user_micros: command.map(|usage| usage.user_micros),
        command_system_micros: command.map(|usage| usage.system_micros),
        command_peak_bytes: command.map(|usage| usage.peak_bytes),
        command_fuel: command.and_then(|usage| usage.fuel),
        oom_kills: spent.oom_kills,
        pids_refused: spent.pids_refused,
    }
}

fn host(facts: &Facts) -> Host {
    Host {
        kernel: facts.kernel.clone(),
        cgroups: match facts.cgroups {
            CgroupKind::None => CgroupFlavour::None,
            CgroupKind::V1 => CgroupFlavour::V1,
            CgroupKind::V2 => CgroupFlavour::V2,
            CgroupKind::Hybrid => CgroupFlavour::Hybrid,
        },
        landlock_abi: facts.landlock_abi,
        privileged: facts.privileged,
    }
}
