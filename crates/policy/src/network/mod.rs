//! The network boundary: what may be reached. Nothing, until a rule names it.

mod change;
mod floor;
mod govern;
mod host;
mod problem;
mod range;
mod resolver;
mod rule;

pub use change::{BadChange, Denied, RuleChange};
pub use floor::{Below, below_floor, may_dial};
pub use govern::{Destination, Ungoverned};
pub use host::{BadHost, Host};
pub use problem::BadRule;
pub use range::{Network, PrivateOpening};
pub use resolver::{ResolverUse, is_resolver_port};
pub use rule::{AllowRule, HostPattern, PathPattern, Protocol, RuleParts, TlsMode};

use crate::words::spoken;
use crate::{Bytes, ThreatLevel};

/// Most rules of one policy.
const MOST_RULES: usize = 256;
/// Most characters in the hosts, methods and paths of all rules: a policy that is written out in full can be read back.
const MOST_CHARACTERS: usize = 24 * 1024;

/// What the box may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRules {
    /// The way out.
    pub mode: NetworkMode,
    /// The way to itself.
    pub loopback: Loopback,
    /// What may be reached.
    pub allow: Vec<AllowRule>,
    /// Private addresses that names may lead to.
    pub dangerously_allow_private: Vec<PrivateOpening>,
    /// How much may pass.
    pub limits: NetworkLimits,
}

/// The way out of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkMode {
    /// Nothing outside the box can be reached.
    #[default]
    Off,
    /// What a rule allows can be reached, through the gateway.
    Allow,
    /// Every public address can be reached on every TCP port, through the gateway, which still dials nothing below the
    /// address floor and asks no resolver but its own. The network is no boundary then, and is reported as none.
    Open,
}

spoken!(NetworkMode, "network mode", { Off = "off", Allow = "allow", Open = "dangerously-open" });

/// Whether processes of the box can reach each other over `127.0.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Loopback {
    /// No interface at all, not even loopback.
    #[default]
    None,
    /// A loopback interface in a network namespace of the box's own.
    Own,
}

spoken!(Loopback, "loopback", { None = "none", Own = "own" });

/// How much may pass the gateway of one box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkLimits {
    /// Connections at the same time.
    pub flows: u32,
    /// New connections in a second; as many more may come at once after a pause.
    pub connections_per_second: u32,
    /// DNS questions in a second; as many more may come at once after a pause.
    pub questions_per_second: u32,
    /// Different names that may be asked for under one wildcard.
    pub names_per_wildcard: u32,
    /// Bytes in a second, both ways together.
    pub bandwidth: Bytes,
    /// Bytes in the life of the box, both ways together. Counted anew when it goes on from disk, with a new gateway.
    pub bytes: Bytes,
    /// Bytes in the life of the box to and from one host.
    pub bytes_per_host: Bytes,
}

impl NetworkRules {
    /// The closed defaults of a level: nothing, at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self {
            mode: NetworkMode::Off,
            loopback: Loopback::None,
            allow: Vec::new(),
            dangerously_allow_private: Vec::new(),
            limits: NetworkLimits {
                flows: 256,
                connections_per_second: 200,
                questions_per_second: 100,
                names_per_wildcard: 256,
                bandwidth: Bytes(1 << 30),
                bytes: Bytes(64 << 30),
                bytes_per_host: Bytes(64 << 30),
            },
        }
    }
}

impl NetworkRules {
    /// Whether some connection is ended by the gateway with an authority of the box's own, which the box must believe.
    #[must_use]
    pub fn needs_authority(&self) -> bool {
        let inspects = |rule: &AllowRule| match rule.protocol() {
            Protocol::Https | Protocol::Ws => rule.tls() == TlsMode::Inspect,
            Protocol::Http | Protocol::Tcp => false,
        };
        self.allow.iter().any(inspects)
    }
}

/// Checks what no rule can see alone: that rules and mode fit, and that no two rules disagree about a connection.
/// Each complaint comes with the key that it is about.
pub(crate) fn check(rules: &NetworkRules) -> Result<(), (String, BadRule)> {
    let NetworkRules { mode, loopback: _, allow, dangerously_allow_private, limits: _ } = rules;
    match mode {
        NetworkMode::Off if !allow.is_empty() || !dangerously_allow_private.is_empty() => {
            return Err(("network.mode".to_owned(), BadRule::RulesWhileOff));
        }
        NetworkMode::Allow if allow.is_empty() => {
            return Err(("network.mode".to_owned(), BadRule::NothingAllowed));
        }
        NetworkMode::Off | NetworkMode::Allow | NetworkMode::Open => {}
    }
    if allow.len() > MOST_RULES || dangerously_allow_private.len() > MOST_RULES {
        let list = if allow.len() > MOST_RULES { "allow" } else { "dangerously_allow_private" };
        return Err((format!("network.{list}"), BadRule::TooManyRules { most: MOST_RULES }));
    }
    let written = |rule: &AllowRule| {
        let methods: usize = rule.methods().iter().map(|method| method.len() + 4).sum();
        let paths: usize = rule.paths().iter().map(|path| path.as_str().len() + 4).sum();
        rule.host().to_string().len() + methods + paths
    };
    if allow.iter().map(written).sum::<usize>() > MOST_CHARACTERS {
        return Err(("network.allow".to_owned(), BadRule::TooLong { most: MOST_CHARACTERS }));
    }
    for (index, rule) in allow.iter().enumerate() {
        let about = |index: usize| move |problem| (format!("network.allow[{index}]"), problem);
        check_address(rule, dangerously_allow_private).map_err(about(index))?;
        for (later, other) in allow.iter().enumerate().skip(index + 1) {
            agree(rule, other).map_err(about(later))?;
        }
    }
    Ok(())
}

/// A rule for a private address, or for a name of the host itself, needs the dangerous word as well, for each of its ports.
fn check_address(rule: &AllowRule, opened: &[PrivateOpening]) -> Result<(), BadRule> {
    for port in rule.ports() {
        match rule.host() {
            HostPattern::Address(address) => {
                if let Err(class) = may_dial(*address, *port, opened) {
                    return Err(BadRule::PrivateAddress { address: *address, class, port: *port });
                }
            }
            HostPattern::Exact(name) | HostPattern::Under(name) if name.is_local() => {
                let opens = |open: &PrivateOpening| open.range().is_loopback() && open.ports().contains(port);
                if !opened.iter().any(opens) {
                    return Err(BadRule::LocalName { name: name.clone(), port: *port });
                }
            }
            HostPattern::Exact(_) | HostPattern::Under(_) | HostPattern::Any => {}
        }
    }
    Ok(())
}

/// Two rules for the same hosts and a common port must treat the connection alike: who reads first decides.
fn agree(one: &AllowRule, other: &AllowRule) -> Result<(), BadRule> {
    let Some(port) = one.ports().iter().find(|port| other.ports().contains(port)) else { return Ok(()) };
    let treatment = |rule: &AllowRule| match rule.protocol() {
        Protocol::Https | Protocol::Ws => format!("tls = \"{}\"", rule.tls()),
        plain @ (Protocol::Http | Protocol::Tcp) => format!("protocol = \"{plain}\""),
    };
    let (first, second) = (treatment(one), treatment(other));
    if one.host() != other.host() || first == second {
        return Ok(());
    }
    Err(BadRule::Disagree { host: one.host().to_string(), port: *port, one: first, other: second })
}
