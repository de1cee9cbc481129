//! The kernel boundaries on offer, and which of them a sealed policy lets the engine try, in which order.

use std::{fmt, str::FromStr};

use crate::words::{UnknownWord, spoken};
use crate::{Gap, Refusal, SealedPolicy, ThreatLevel};

/// What stands between the payload and the host kernel. Ordered: the strongest kernel boundary comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Wasmtime inside a jailed worker; no system calls of its own. Runs WASI modules, not Linux programs.
    Wasm,
    /// The host kernel behind namespaces, seccomp, Landlock and cgroups.
    Jail,
    /// gVisor's user-space kernel, jailed around.
    Gvisor,
    /// A guest kernel of its own on KVM.
    Microvm,
}

spoken!(Tier, "tier", { Wasm = "wasm", Jail = "jail", Gvisor = "gvisor", Microvm = "microvm" });

impl Tier {
    /// Whether a policy of this level may name the tier at all. `critical` knows only the microVM.
    pub const fn allowed_at(&self, level: ThreatLevel) -> bool {
        match (level, self) {
            (ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High, _) | (_, Self::Microvm) => true,
            (ThreatLevel::Critical, Self::Wasm | Self::Jail | Self::Gvisor) => false,
        }
    }
}

/// Which tier a policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TierChoice {
    /// Whatever the threat level demands and the host offers: see [`tiers_for`].
    #[default]
    ByThreat,
    /// This one or a refusal.
    Exactly(Tier),
}

impl TierChoice {
    const BY_THREAT: &'static str = "by-threat";

    /// The word for it in files and on the command line: `by-threat`, or the tier's own.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::ByThreat => Self::BY_THREAT,
            Self::Exactly(tier) => tier.as_str(),
        }
    }
}

impl fmt::Display for TierChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TierChoice {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        if text == Self::BY_THREAT {
            return Ok(Self::ByThreat);
        }
        text.parse().map(Self::Exactly).map_err(|_| {
            let valid: Vec<&'static str> =
                std::iter::once(Self::BY_THREAT).chain(Tier::WORDS.iter().copied()).collect();
            UnknownWord::new("tier", text, &valid)
        })
    }
}

crate::words::serde_as_text!(TierChoice);

impl From<Tier> for TierChoice {
    fn from(tier: Tier) -> Self {
        Self::Exactly(tier)
    }
}

/// What the level prefers, before anything is left out. Wasm is never among them: it cannot run arbitrary
/// Linux programs, so it is used only where a policy names it.
const fn preferred(level: ThreatLevel) -> &'static [Tier] {
    match level {
        ThreatLevel::Low | ThreatLevel::Medium => &[Tier::Jail],
        ThreatLevel::High => &[Tier::Microvm, Tier::Gvisor, Tier::Jail],
        ThreatLevel::Critical => &[Tier::Microvm],
    }
}

/// From `high` on, sharing the host kernel is not a default: the policy has to name it.
fn needs_naming(policy: &SealedPolicy, tier: Tier) -> bool {
    tier == Tier::Jail && policy.level() >= ThreatLevel::High && !policy.accepts(Gap::SharedKernel)
}

/// The tiers that the engine may try for this policy, most preferred first.
///
/// A tier in this list still has to be lowered: its gaps on this host must all be accepted by name.
pub fn tiers_for(policy: &SealedPolicy) -> Vec<Tier> {
    match policy.kernel().tier {
        TierChoice::Exactly(tier) => vec![tier],
        TierChoice::ByThreat => {
            let preferred = preferred(policy.level()).iter().copied();
            preferred.filter(|tier| !needs_naming(policy, *tier)).collect()
        }
    }
}

/// The tiers that this policy keeps the engine from trying, each with the reason; empty where the policy
/// names its tier. For `blastbox explain`, and for a refusal that says what would have helped.
pub fn passed_over(policy: &SealedPolicy) -> Vec<(Tier, Refusal)> {
    if policy.kernel().tier != TierChoice::ByThreat {
        return Vec::new();
    }
    let level = policy.level();
    let reason = |tier: Tier| {
        if !tier.allowed_at(level) {
            Some(Refusal::TierTooWeak { tier, level })
        } else if needs_naming(policy, tier) {
            Some(Refusal::not_accepted(Gap::SharedKernel))
        } else {
            None
        }
    };
    Tier::ALL.iter().filter_map(|tier| reason(*tier).map(|why| (*tier, why))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draft;

    fn tiers(draft: Draft) -> Vec<Tier> {
        tiers_for(&draft.seal().unwrap())
    }

    #[test]
    fn the_strongest_kernel_boundary_sorts_last() {
        assert!(Tier::ALL.is_sorted());
        assert_eq!(Tier::ALL.iter().max(), Some(&Tier::Microvm));
    }

    #[test]
    fn low_and_medium_use_the_jail() {
        assert_eq!(tiers(Draft::at(ThreatLevel::Low)), [Tier::Jail]);
        assert_eq!(tiers(Draft::at(ThreatLevel::Medium)), [Tier::Jail]);
    }

    #[test]
    fn high_without_the_shared_kernel_accepted_never_offers_the_jail() {
        let policy = Draft::at(ThreatLevel::High).seal().unwrap();
        assert_eq!(tiers_for(&policy), [Tier::Microvm, Tier::Gvisor]);
        assert_eq!(passed_over(&policy), [(Tier::Jail, Refusal::not_accepted(Gap::SharedKernel))]);
    }

    #[test]
    fn high_with_the_shared_kernel_accepted_offers_the_jail_last() {
        let policy = Draft::at(ThreatLevel::High).accept(Gap::SharedKernel).seal().unwrap();
        assert_eq!(tiers_for(&policy), [Tier::Microvm, Tier::Gvisor, Tier::Jail]);
        assert_eq!(passed_over(&policy), []);
    }

    #[test]
    fn critical_offers_the_microvm_and_nothing_else() {
        let policy = Draft::at(ThreatLevel::Critical).seal().unwrap();
        assert_eq!(tiers_for(&policy), [Tier::Microvm]);
        let over: Vec<Tier> = passed_over(&policy).into_iter().map(|(tier, _)| tier).collect();
        assert_eq!(over, [Tier::Wasm, Tier::Jail, Tier::Gvisor]);
    }

    #[test]
    fn a_named_tier_is_the_only_candidate() {
        for tier in Tier::ALL {
            assert_eq!(tiers(Draft::at(ThreatLevel::High).tier(*tier)), [*tier]);
        }
    }

    #[test]
    fn a_tier_choice_reads_back_from_its_word() {
        for choice in
            [TierChoice::ByThreat].into_iter().chain(Tier::ALL.iter().map(|t| TierChoice::Exactly(*t)))
        {
            assert_eq!(choice.as_str().parse(), Ok(choice));
        }
    }

    #[test]
    fn an_unknown_tier_choice_lists_by_threat_too() {
        let unknown = "by-thread".parse::<TierChoice>().unwrap_err();
        assert_eq!(unknown.nearest, Some("by-threat"));
        assert!(unknown.valid.contains(&"microvm"));
    }
}
