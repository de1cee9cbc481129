//! Writing the whole effective policy as TOML: every key, so that nothing is left to a default.

use crate::{CredentialRules, FileRules, KernelRules, LifetimeRules, NetworkRules, SealedPolicy};

/// The whole effective policy, in a fixed order. [`parse`](crate::parse) and sealing give the same policy back.
pub fn to_toml(policy: &SealedPolicy) -> String {
    // No `..` in any of these: a rule that is added does not compile until it is written out.
    let KernelRules { tier, cpus, memory, pids, on_denied_syscall } = policy.kernel();
    let FileRules { workspace, disk, inodes, file_size, open_files, exec } = policy.files();
    let NetworkRules { mode: network_mode, loopback } = policy.network();
    let CredentialRules { mode: credential_mode } = policy.credentials();
    let LifetimeRules { timeout, output } = policy.lifetime();
    let accepted: Vec<String> = policy.accepted().iter().map(|gap| format!("\"{gap}\"")).collect();
    format!(
        r#"threat = "{level}"
accept = [{accepted}]

[kernel]
tier = "{tier}"
cpus = {cpus}
memory = "{memory}"
pids = {pids}
on_denied_syscall = "{on_denied_syscall}"

[files]
workspace = "{workspace}"
disk = "{disk}"
inodes = {inodes}
file_size = "{file_size}"
open_files = {open_files}
exec = "{exec}"

[network]
mode = "{network_mode}"
loopback = "{loopback}"

[credentials]
mode = "{credential_mode}"

[lifetime]
timeout = "{timeout}"
output = "{output}"
"#,
        level = policy.level(),
        accepted = accepted.join(", "),
    )
}
