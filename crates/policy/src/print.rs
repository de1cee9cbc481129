//! Writing the whole effective policy as TOML: every key, so that nothing is left to a default.

use crate::{
    AllowRule, Binding, CredentialRules, FileRules, Given, GuestName, KernelRules, LifetimeRules,
    NetworkLimits, NetworkRules, PathPattern, ResolverUse, SealedPolicy, Slot,
};

/// The whole effective policy, in a fixed order. [`parse`](crate::parse) and sealing give the same policy back.
pub fn to_toml(policy: &SealedPolicy) -> String {
    // No `..` in any of these: a rule that is added does not compile until it is written out.
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
    let NetworkLimits {
        flows,
        connections_per_second,
        questions_per_second,
        names_per_wildcard,
        bandwidth,
        bytes,
        bytes_per_host,
    } = limits;
    let CredentialRules { mode: credential_mode, bind } = policy.credentials();
    let LifetimeRules { timeout, output, survives_daemon } = policy.lifetime();
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
root = "{root}"
gpu = "{gpu}"
deterministic = {deterministic}
fuel = {fuel}
guest = "{guest}"
gvisor_platform = "{gvisor_platform}"

[files]
workspace = "{workspace}"
disk = "{disk}"
inodes = {inodes}
file_size = "{file_size}"
open_files = {open_files}
exec = "{exec}"
report_writes = {report_writes}

[network]
mode = "{network_mode}"
loopback = "{loopback}"
allow = [{allow}]
dangerously_allow_private = [{private}]

[network.limits]
flows = {flows}
connections_per_second = {connections_per_second}
questions_per_second = {questions_per_second}
names_per_wildcard = {names_per_wildcard}
bandwidth = "{bandwidth}"
bytes = "{bytes}"
bytes_per_host = "{bytes_per_host}"

[credentials]
mode = "{credential_mode}"
bind = [{bind}]

[lifetime]
timeout = "{timeout}"
output = "{output}"
survives_daemon = "{survives_daemon}"
"#,
        level = policy.level(),
        // 0 is how a policy says that nobody counts.
        fuel = fuel.unwrap_or(0),
        // No name is how one says that no guest is alone.
        guest = guest.as_ref().map_or("", GuestName::as_str),
        accepted = accepted.join(", "),
        allow = lines(allow, rule),
        bind = lines(bind, binding),
        private = lines(dangerously_allow_private, |open| {
            format!("{{ cidr = \"{}\", ports = {:?} }}", open.range(), open.ports())
        }),
    )
}

/// Each item on a line of its own; nothing where there is none.
fn lines<T>(items: &[T], each: impl Fn(&T) -> String) -> String {
    let lines: String = items.iter().map(|item| format!("  {},\n", each(item))).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// One rule as an inline table. Hosts, methods and paths hold no character that TOML would escape.
fn rule(rule: &AllowRule) -> String {
    let methods = rule.methods().iter().map(String::as_str).collect();
    let paths = rule.paths().iter().map(PathPattern::as_str).collect();
    let resolver = match rule.resolver() {
        ResolverUse::Refused => "",
        ResolverUse::DangerouslyAllowed => ", resolver = \"dangerously-allowed\"",
    };
    format!(
        "{{ host = \"{}\", ports = {:?}, protocol = \"{}\", tls = \"{}\", methods = [{}], paths = [{}]{resolver} }}",
        rule.host(),
        rule.ports(),
        rule.protocol(),
        rule.tls(),
        quoted(methods),
        quoted(paths)
    )
}

fn quoted(parts: Vec<&str>) -> String {
    parts.iter().map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(", ")
}

/// One binding as an inline table; a key that means nothing for it is left out.
fn binding(binding: &Binding) -> String {
    let methods = binding.methods().iter().map(String::as_str).collect();
    let paths = binding.paths().iter().map(PathPattern::as_str).collect();
    let slot = match binding.slot() {
        Slot::Bearer => String::new(),
        Slot::Basic { user } => format!(", user = \"{user}\""),
        Slot::Header(name) => format!(", header = \"{name}\""),
    };
    let given = match binding.given() {
        Given::Nothing => String::new(),
        Given::Placeholder { prefix, env: None } => format!(", placeholder = \"{prefix}\""),
        Given::Placeholder { prefix, env: Some(env) } => {
            format!(", placeholder = \"{prefix}\", env = \"{env}\"")
        }
    };
    format!(
        "{{ secret = \"{}\", host = \"{}\", port = {}, methods = [{}], paths = [{}], as = \"{}\"{slot}{given} }}",
        binding.secret(),
        binding.host(),
        binding.port(),
        quoted(methods),
        quoted(paths),
        binding.slot().as_str(),
    )
}
