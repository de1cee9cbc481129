//! The credentials boundary: which secrets are used on behalf of the box. None enters it.
//!
//! A policy names secrets and says where they may be used. What a name stands for (a file, a vault) is the operator's to
//! say, outside the policy: a policy can come from whoever may start boxes, and must not be able to read host files.

mod binding;
mod problem;

pub use binding::{Binding, BindingParts, Given, SecretName, Slot};
pub use problem::BadBinding;

use crate::words::spoken;
use crate::{AllowRule, HostPattern, Protocol, ThreatLevel, TlsMode};

/// Most bindings of one policy.
/// More secrets than this are bound to no box.
pub const MOST_BINDINGS: usize = 32;
/// Most characters in hosts, methods and paths of all bindings: the whole policy goes to the gateway in one message.
const MOST_CHARACTERS: usize = 4 * 1024;

/// Which secrets are used on behalf of the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRules {
    /// How secrets are lent.
    pub mode: CredentialMode,
    /// Which, and where.
    pub bind: Vec<Binding>,
}

/// How secrets are lent to the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CredentialMode {
    /// Not at all.
    #[default]
    None,
    /// The gateway puts them into requests that the policy allows; the box never sees them.
    Brokered,
}

spoken!(CredentialMode, "credential mode", { None = "none", Brokered = "brokered" });

impl CredentialRules {
    /// The closed defaults of a level: none, at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self { mode: CredentialMode::None, bind: Vec::new() }
    }
}

/// Checks what no binding can see alone: that each can be used, only where requests are read, and no two at once.
/// Each complaint comes with the key that it is about.
pub(crate) fn check(rules: &CredentialRules, allow: &[AllowRule]) -> Result<(), (String, BadBinding)> {
    let CredentialRules { mode, bind } = rules;
    let of_mode = |problem| Err(("credentials.mode".to_owned(), problem));
    let of_all = |problem| Err(("credentials.bind".to_owned(), problem));
    match mode {
        CredentialMode::None if !bind.is_empty() => return of_mode(BadBinding::BindingsWhileNone),
        CredentialMode::Brokered if bind.is_empty() => return of_mode(BadBinding::NothingBound),
        CredentialMode::None | CredentialMode::Brokered => {}
    }
    if bind.len() > MOST_BINDINGS {
        return of_all(BadBinding::TooMany { most: MOST_BINDINGS });
    }
    let written = |binding: &Binding| {
        let methods: usize = binding.methods().iter().map(|method| method.len() + 4).sum();
        let paths: usize = binding.paths().iter().map(|path| path.as_str().len() + 4).sum();
        binding.host().as_str().len() + methods + paths
    };
    if bind.iter().map(written).sum::<usize>() > MOST_CHARACTERS {
        return of_all(BadBinding::TooLong { most: MOST_CHARACTERS });
    }
    for (index, binding) in bind.iter().enumerate() {
        let about = |index: usize| format!("credentials.bind[{index}]");
        reachable(binding, allow).map_err(|problem| (about(index), problem))?;
        for (later, other) in bind.iter().enumerate().skip(index + 1) {
            if binding.ambiguous_with(other) {
                let (one, other) = (binding.secret().clone(), other.secret().clone());
                let host = binding.host().clone();
                return Err((about(later), BadBinding::Ambiguous { one, other, host }));
            }
        }
    }
    Ok(())
}

/// A binding opens nothing: a rule must lead to its host already, and one that has requests read.
fn reachable(binding: &Binding, allow: &[AllowRule]) -> Result<(), BadBinding> {
    let (secret, host, port) = (binding.secret().clone(), binding.host().clone(), binding.port());
    let covering = |rule: &&AllowRule| rule.ports().contains(&port) && rule.host().covers(&host);
    let closest = allow.iter().filter(covering).map(|rule| rule.host().closeness()).max();
    let Some(closest) = closest else { return Err(BadBinding::Unreachable { secret, host, port }) };
    for rule in allow.iter().filter(covering).filter(|rule| rule.host().closeness() == closest) {
        match (rule.protocol(), rule.tls(), rule.host()) {
            (_, _, HostPattern::Address(_)) | (Protocol::Http | Protocol::Tcp, ..) => {
                return Err(BadBinding::NotTls { secret, host, protocol: rule.protocol() });
            }
            (Protocol::Https | Protocol::Ws, TlsMode::Passthrough, _) => {
                return Err(BadBinding::Passthrough { secret, host });
            }
            (Protocol::Https | Protocol::Ws, TlsMode::Inspect, _) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "text")]
mod tests;
