//! The policies that come with blastbox. They are ordinary files, read by the same code as anybody's.

use crate::words::spoken;
use crate::{Draft, PolicyError, ThreatLevel, parse};

/// A policy that comes with blastbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Profile {
    /// Level high; accepts by name what a fresh machine lacks, so that it works at once.
    #[default]
    Default,
    /// Level high; accepts nothing.
    Strict,
    /// Level medium.
    Medium,
    /// Level low.
    Low,
    /// Level critical; accepts nothing.
    Critical,
}

spoken!(Profile, "profile", {
    Default = "default",
    Strict = "strict",
    Medium = "medium",
    Low = "low",
    Critical = "critical",
});

impl Profile {
    /// The profile that a bare threat level stands for.
    pub const fn for_level(level: ThreatLevel) -> Self {
        match level {
            ThreatLevel::Low => Self::Low,
            ThreatLevel::Medium => Self::Medium,
            ThreatLevel::High => Self::Default,
            ThreatLevel::Critical => Self::Critical,
        }
    }

    /// The file as it is shipped, comments and all.
    pub const fn text(&self) -> &'static str {
        match self {
            Self::Default => include_str!("../../../profiles/default.toml"),
            Self::Strict => include_str!("../../../profiles/strict.toml"),
            Self::Medium => include_str!("../../../profiles/medium.toml"),
            Self::Low => include_str!("../../../profiles/low.toml"),
            Self::Critical => include_str!("../../../profiles/critical.toml"),
        }
    }

    /// The draft that the file holds. A shipped file always reads, and a test holds that; the error is passed
    /// on nevertheless, because the alternative would be a panic.
    pub fn draft(&self) -> Result<Draft, PolicyError> {
        parse(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gap, SealedPolicy, Tier, Workspace, tiers_for};

    fn sealed(profile: Profile) -> SealedPolicy {
        profile.draft().and_then(Draft::seal).unwrap()
    }

    fn accepted(profile: Profile) -> Vec<Gap> {
        sealed(profile).accepted().iter().copied().collect()
    }

    /// What a fresh machine lacks, as root or as an ordinary user.
    const FRESH_MACHINE: &[Gap] = &[
        Gap::SharedKernel,
        Gap::HostImage,
        Gap::SharedUid,
        Gap::NoMemoryLimit,
        Gap::NoCpuLimit,
        Gap::NoPidsLimit,
        Gap::WeakLandlock,
        Gap::SwapUnlimited,
        Gap::OwnerMapMissing,
    ];

    #[test]
    fn every_profile_seals() {
        for profile in Profile::ALL {
            assert!(profile.draft().and_then(Draft::seal).is_ok(), "{profile}");
        }
    }

    #[test]
    fn default_is_high_and_accepts_exactly_what_a_fresh_machine_lacks() {
        assert_eq!(sealed(Profile::Default).level(), ThreatLevel::High);
        assert_eq!(accepted(Profile::Default), FRESH_MACHINE);
    }

    #[test]
    fn strict_is_default_without_a_single_accepted_gap() {
        assert_eq!(accepted(Profile::Strict), []);
        let accepting =
            FRESH_MACHINE.iter().fold(Profile::Strict.draft().unwrap(), |draft, gap| draft.accept(*gap));
        assert_eq!(accepting.seal().unwrap(), sealed(Profile::Default));
        assert!(!tiers_for(&sealed(Profile::Strict)).contains(&Tier::Jail));
    }

    #[test]
    fn medium_and_low_run_in_the_jail_of_a_fresh_machine() {
        for (profile, level) in [(Profile::Medium, ThreatLevel::Medium), (Profile::Low, ThreatLevel::Low)] {
            assert_eq!(sealed(profile).level(), level);
            assert_eq!(accepted(profile), FRESH_MACHINE);
            assert_eq!(tiers_for(&sealed(profile)), [Tier::Jail]);
        }
    }

    #[test]
    fn critical_accepts_nothing_and_sees_nothing_of_the_host() {
        let policy = sealed(Profile::Critical);
        assert_eq!(policy.level(), ThreatLevel::Critical);
        assert_eq!(accepted(Profile::Critical), []);
        assert_eq!(policy.files().workspace, Workspace::Scratch);
    }

    #[test]
    fn the_profile_of_a_level_has_that_level() {
        for level in ThreatLevel::ALL {
            assert_eq!(sealed(Profile::for_level(*level)).level(), *level);
        }
    }

    #[test]
    fn every_profile_differs_from_its_level_only_in_what_it_accepts() {
        for profile in Profile::ALL {
            let policy = sealed(*profile);
            let closed = Draft::at(policy.level());
            let opened = policy.accepted().iter().fold(closed, |draft, gap| draft.accept(*gap));
            assert_eq!(opened.seal().unwrap(), policy, "{profile}");
        }
    }
}
