//! A policy's name: SHA-256 over a canonical text that holds every rule once, in base units.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

use crate::words::clip;
use crate::{
    AllowRule, Binding, BoxRoot, CredentialRules, FileRules, Gap, Given, Gpu, GvisorPlatform, KernelRules,
    LifetimeRules, NetworkLimits, NetworkRules, PathPattern, PrivateOpening, ResolverUse, SealedPolicy, Slot,
    SurvivesDaemon,
};

/// The digest of a sealed policy, in every ledger line and receipt. Prints as `sha256:<hex>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyDigest([u8; 32]);

impl PolicyDigest {
    const PREFIX: &'static str = "sha256:";

    /// Of no policy.
    pub(crate) const NONE: Self = Self([0; 32]);

    pub(crate) fn of(policy: &SealedPolicy) -> Self {
        Self(Sha256::digest(canonical(policy).as_bytes()).into())
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// One rule a line. Values are words without spaces or bare numbers, so no two policies share a text.
/// The first line changes whenever the form does: digests of different forms must not be compared.
fn canonical(policy: &SealedPolicy) -> String {
    // No `..` in any of these: a rule that is added does not compile until it is part of the digest.
    let KernelRules {
        tier,
        cpus,
        memory,
        pids,
        on_denied_syscall,
        root,
        gpu,
        deterministic,
        fuel,
        guest,
        gvisor_platform,
    } = policy.kernel();
    let FileRules { workspace, disk, inodes, file_size, open_files, exec, report_writes } = policy.files();
    let NetworkRules { mode: network_mode, loopback, allow, dangerously_allow_private, limits } =
        policy.network();
    let CredentialRules { mode: credential_mode, bind } = policy.credentials();
    let LifetimeRules { timeout, output, survives_daemon } = policy.lifetime();
    // By code, so that the digest does not hang on the order of declaration.
    let mut accepted: Vec<&str> = policy.accepted().iter().map(Gap::code).collect();
    accepted.sort_unstable();
    format!(
        "blastbox-policy 2\n\
         threat {level}\n\
         accept {accepted}\n\
         kernel.tier {tier}\n\
         kernel.millicpus {cpus}\n\
         kernel.memory {memory}\n\
         kernel.pids {pids}\n\
         kernel.on_denied_syscall {on_denied_syscall}\n\
         {root}\
         {gpu}\
         {counted}\
         {metered}\
         {alone}\
         {platform}\
         files.workspace {workspace}\n\
         files.disk {disk}\n\
         files.inodes {inodes}\n\
         files.file_size {file_size}\n\
         files.open_files {open_files}\n\
         files.exec {exec}\n\
         {watched}\
         network.mode {network_mode}\n\
         network.loopback {loopback}\n\
         {reach}\
         credentials.mode {credential_mode}\n\
         {bound}\
         lifetime.timeout {timeout}\n\
         lifetime.output {output}\n\
         {survives}",
        level = policy.level(),
        accepted = accepted.join(","),
        cpus = cpus.millis(),
        memory = memory.0,
        disk = disk.0,
        file_size = file_size.0,
        timeout = timeout.0,
        output = output.0,
        // A line of its own where it is given, and none where it is not: policies without it keep their name.
        root = match root {
            BoxRoot::None => String::new(),
            BoxRoot::Allowed => format!("kernel.root {root}\n"),
        },
        gpu = match gpu {
            Gpu::None => String::new(),
            Gpu::One => format!("kernel.gpu {gpu}\n"),
        },
        // A line only where it is asked for, as with entries of a list: what was sealed before keeps its digest.
        counted = if *deterministic { "kernel.deterministic true\n" } else { "" },
        metered = fuel.map(|fuel| format!("kernel.fuel {fuel}\n")).unwrap_or_default(),
        alone = guest.as_ref().map(|guest| format!("kernel.guest {guest}\n")).unwrap_or_default(),
        platform = match gvisor_platform {
            GvisorPlatform::Systrap => String::new(),
            other => format!("kernel.gvisor_platform {other}\n"),
        },
        watched = if *report_writes { "files.report_writes true\n" } else { "" },
        // Only where it is so: the names of policies that were there before this rule stay.
        survives = match survives_daemon {
            SurvivesDaemon::No => "",
            SurvivesDaemon::Yes => "lifetime.survives_daemon yes\n",
        },
        reach = reach(allow, dangerously_allow_private, limits),
        bound = bound(bind),
    )
}

/// The rules of the network section, each a line. The order of rules means nothing, so it is not part of the name.
fn reach(allow: &[AllowRule], opened: &[PrivateOpening], limits: &NetworkLimits) -> String {
    let NetworkLimits {
        flows,
        connections_per_second,
        questions_per_second,
        names_per_wildcard,
        bandwidth,
        bytes,
        bytes_per_host,
    } = limits;
    let mut lines: Vec<String> = allow
        .iter()
        .map(|rule| {
            let paths: Vec<&str> = rule.paths().iter().map(PathPattern::as_str).collect();
            // Only where it is so: the names of policies that were there before this word stay.
            let resolver = match rule.resolver() {
                ResolverUse::Refused => "",
                ResolverUse::DangerouslyAllowed => " resolver",
            };
            format!(
                "network.allow {} {} {} {} {} {}{resolver}\n",
                rule.host(),
                join(rule.ports()),
                rule.protocol(),
                rule.tls(),
                join(rule.methods()),
                join(&paths)
            )
        })
        .chain(opened.iter().map(|open| format!("network.private {} {}\n", open.range(), join(open.ports()))))
        .collect();
    lines.sort_unstable();
    lines.push(format!(
        "network.limits {flows} {connections_per_second} {questions_per_second} {names_per_wildcard} {} {} {}\n",
        bandwidth.0, bytes.0, bytes_per_host.0
    ));
    lines.concat()
}

/// The bindings, each a line. Their order means nothing either.
fn bound(bindings: &[Binding]) -> String {
    let mut lines: Vec<String> = bindings
        .iter()
        .map(|binding| {
            let paths: Vec<&str> = binding.paths().iter().map(PathPattern::as_str).collect();
            let slot = match binding.slot() {
                Slot::Bearer => "bearer".to_owned(),
                Slot::Basic { user } => format!("basic:{user}"),
                Slot::Header(name) => format!("header:{name}"),
            };
            let given = match binding.given() {
                Given::Nothing => "-".to_owned(),
                Given::Placeholder { prefix, env } => format!("{prefix}:{}", env.as_deref().unwrap_or("-")),
            };
            format!(
                "credentials.bind {} {} {} {} {} {slot} {given}\n",
                binding.secret(),
                binding.host(),
                binding.port(),
                join(binding.methods()),
                join(&paths)
            )
        })
        .collect();
    lines.sort_unstable();
    lines.concat()
}

/// Parts without spaces; `-` for none. A comma may stand in a path, so paths are told apart by `|`, which cannot.
fn join<T: fmt::Display>(parts: &[T]) -> String {
    if parts.is_empty() {
        return "-".to_owned();
    }
    parts.iter().map(T::to_string).collect::<Vec<_>>().join("|")
}

impl fmt::Display for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyDigest({self})")
    }
}

/// Text that is not a policy digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy digest; expected \"sha256:\" and 64 lower-case hexadecimal digits")]
pub struct BadDigest(String);

impl FromStr for PolicyDigest {
    type Err = BadDigest;
    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(clip(text));
        let hex = text.strip_prefix(Self::PREFIX).ok_or_else(bad)?.as_bytes();
        let (pairs, odd) = hex.as_chunks::<2>();
        if pairs.len() != 32 || !odd.is_empty() {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high).ok_or_else(bad)? << 4 | nibble(*low).ok_or_else(bad)?;
        }
        Ok(Self(bytes))
    }
}

/// Lower case only, so that a digest has one spelling.
const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

crate::words::serde_as_text!(PolicyDigest);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, ThreatLevel};

    #[test]
    fn the_canonical_form_changes_only_on_purpose() {
        let policy =
            Draft::at(ThreatLevel::High).accept(Gap::SharedUid).accept(Gap::HostImage).seal().unwrap();
        assert_eq!(
            canonical(&policy),
            "blastbox-policy 2\nthreat high\naccept host-image,shared-uid\nkernel.tier by-threat\n\
             kernel.millicpus 1000\nkernel.memory 536870912\nkernel.pids 128\nkernel.on_denied_syscall record\n\
             files.workspace scratch\nfiles.disk 268435456\nfiles.inodes 65536\nfiles.file_size 268435456\n\
             files.open_files 1024\nfiles.exec allowed\nnetwork.mode off\nnetwork.loopback none\n\
             network.limits 256 200 100 256 1073741824 68719476736 68719476736\n\
             credentials.mode none\nlifetime.timeout 300\nlifetime.output 16777216\n",
            "receipts that were written before would no longer match: change the first line too"
        );
    }

    #[test]
    fn a_policy_that_has_writes_reported_has_a_name_of_its_own_and_others_keep_theirs() {
        let canonical_of =
            |report| canonical(&Draft::at(ThreatLevel::High).report_writes(report).seal().unwrap());
        assert!(!canonical_of(false).contains("report_writes"));
        let watched = canonical_of(true);
        assert!(watched.contains("files.exec allowed\nfiles.report_writes true\nnetwork.mode"), "{watched}");
    }

    #[test]
    fn a_digest_prints_as_sha256_and_reads_back() {
        let digest = Draft::at(ThreatLevel::High).seal().unwrap().digest();
        let text = digest.to_string();
        assert!(text.starts_with("sha256:") && text.len() == 7 + 64, "{text}");
        assert_eq!(text.parse(), Ok(digest));
    }

    #[test]
    fn other_spellings_of_a_digest_are_refused() {
        let text = Draft::at(ThreatLevel::High).seal().unwrap().digest().to_string();
        let upper = format!("sha256:{}", text.trim_start_matches("sha256:").to_uppercase());
        for bad in ["", "sha256:", &text[7..], &text[..70], &format!("{text}0"), &format!("{text}00"), &upper]
        {
            assert!(bad.parse::<PolicyDigest>().is_err(), "{bad}");
        }
    }
}
