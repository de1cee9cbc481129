//! Why a box is not started. A refusal is a value: blastbox worked, and the answer is no.

use std::fmt;

use crate::{Gap, MIN_EFFECTIVE_BOUNDARIES, ThreatLevel, Tier};

/// Why a box is not started. Closed and append-only: docs, alerts and SDKs key on [`Refusal::code`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "text", serde(tag = "code", rename_all = "snake_case", deny_unknown_fields))]
#[must_use]
pub enum Refusal {
    /// The tier has a gap on this host that the policy does not accept by name.
    GapNotAccepted {
        /// The gap.
        gap: Gap,
        /// What this host was found to be like, where that is why the gap is there.
        #[cfg_attr(feature = "text", serde(default, skip_serializing_if = "Option::is_none"))]
        found: Option<String>,
    },
    /// Fewer boundaries hold than must.
    TooFewBoundaries {
        /// How many hold.
        effective: u8,
    },
    /// The tier cannot run on this host.
    TierUnavailable {
        /// The tier.
        tier: Tier,
        /// What it lacks.
        why: String,
    },
    /// The tier is too weak for the level.
    TierTooWeak {
        /// The tier.
        tier: Tier,
        /// The level.
        level: ThreatLevel,
    },
    /// A host directory was offered as workspace, but the policy has no place for one.
    WorkspaceNotAllowed {
        /// The level of the policy.
        level: ThreatLevel,
    },
    /// The image cannot be used.
    ImageUnusable {
        /// What is wrong with it.
        why: String,
    },
    /// The policy gives the box a root, and this host, tier or image cannot.
    RootUnavailable {
        /// Why not.
        why: String,
    },
    /// The policy gives the box a GPU, and this host or tier has none for it.
    GpuUnavailable {
        /// Why not.
        why: String,
    },
    /// Volumes were asked for, and the tier has none.
    VolumesUnavailable {
        /// The tier.
        tier: Tier,
    },
    /// Somebody wants to hear a box's console, and there is no machine for it: no other tier has one.
    ConsoleUnavailable {
        /// Why not.
        why: String,
    },
    /// The host lacks something that no policy can do without.
    HostUnfit {
        /// What it lacks.
        why: String,
        /// What provides it.
        fix: String,
    },
}

impl Refusal {
    /// For a gap that is the same on every host.
    pub const fn not_accepted(gap: Gap) -> Self {
        Self::GapNotAccepted { gap, found: None }
    }

    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::GapNotAccepted { .. } => "gap_not_accepted",
            Self::TooFewBoundaries { .. } => "too_few_boundaries",
            Self::TierUnavailable { .. } => "tier_unavailable",
            Self::TierTooWeak { .. } => "tier_too_weak",
            Self::WorkspaceNotAllowed { .. } => "workspace_not_allowed",
            Self::ImageUnusable { .. } => "image_unusable",
            Self::RootUnavailable { .. } => "root_unavailable",
            Self::GpuUnavailable { .. } => "gpu_unavailable",
            Self::VolumesUnavailable { .. } => "volumes_unavailable",
            Self::ConsoleUnavailable { .. } => "console_unavailable",
            Self::HostUnfit { .. } => "host_unfit",
        }
    }

    /// What to do next, with the flag to use.
    pub fn fix(&self) -> String {
        match self {
            Self::GapNotAccepted { gap, .. } if gap.acceptable_at(ThreatLevel::Critical) => {
                format!("{}; or accept it by name: --accept {gap}", gap.fix())
            }
            Self::GapNotAccepted { gap, .. } => {
                format!("{}; or, below threat level critical, accept it by name: --accept {gap}", gap.fix())
            }
            Self::TooFewBoundaries { .. } => {
                "see which boundaries do not hold with `blastbox explain`, and what the host lacks with \
                 `blastbox doctor`"
                    .to_owned()
            }
            Self::TierUnavailable { tier, why } => {
                asked_fix(*tier, why).unwrap_or_else(|| unavailable_fix(*tier)).to_owned()
            }
            Self::TierTooWeak { level, .. } => stronger_fix(*level),
            Self::WorkspaceNotAllowed { level: ThreatLevel::Critical } => {
                "copy the files into a box of a daemon (`blastbox cp`) or into its image (`blastbox image build`), or lower the \
                 level by name: --threat high"
                    .to_owned()
            }
            Self::WorkspaceNotAllowed {
                level: ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High,
            } => "write workspace = \"copy-on-write\" under [files] in the policy, or use --profile medium"
                .to_owned(),
            Self::ImageUnusable { .. } => {
                "choose another image with --image, or import this one again".to_owned()
            }
            Self::RootUnavailable { .. } => {
                "use the jail as root of this host (sudo blastbox, --tier jail --accept shared-kernel), or leave root out: no --sudo, or \
                 root = \"none\" under [kernel]"
                    .to_owned()
            }
            Self::GpuUnavailable { .. } => {
                "where `blastbox doctor` finds an NVIDIA GPU: --tier jail --accept shared-kernel --accept gpu-driver-surface; \
                 elsewhere leave it out: no --gpu, or gpu = \"none\" under [kernel]"
                    .to_owned()
            }
            Self::VolumesUnavailable { .. } => {
                "leave volumes out, or use the jail: --tier jail --accept shared-kernel".to_owned()
            }
            Self::ConsoleUnavailable { .. } => {
                "see what machines need with `blastbox doctor` and in docs/microvm.md, and ask for one with --tier microvm; \
                 or leave --console out: no other tier has a console"
                    .to_owned()
            }
            Self::HostUnfit { fix, .. } => fix.clone(),
        }
    }
}

/// What makes a tier available, or which other one to name.
const fn unavailable_fix(tier: Tier) -> &'static str {
    match tier {
        Tier::Jail => "see what the host lacks with `blastbox doctor`",
        Tier::Wasm => {
            "`make wasm` builds worker and guests; what the tier does not have is told by docs/wasm.md, and the jail may \
             have it: --tier jail --accept shared-kernel"
        }
        Tier::Gvisor => {
            "see what gVisor needs with `blastbox doctor` and in docs/gvisor.md; below threat level critical the jail may do, \
             if its shared kernel is accepted by name: --tier jail --accept shared-kernel"
        }
        // At level critical only a virtual machine will do: what makes one comes first, and the jail needs another profile.
        Tier::Microvm => {
            "`blastbox doctor` says what virtual machines lack here, and docs/microvm.md how they get it: QEMU, a usable /dev/kvm, a \
             kernel (`blastbox kernel get`), an image (--image NAME); the profile critical takes nothing less, and with another \
             the jail may do: --profile default --tier jail"
        }
    }
}

/// What to do where the policy asks for something that this tier does not have on any host. The reason names the key.
fn asked_fix(tier: Tier, why: &str) -> Option<&'static str> {
    let asked = |key: &str| why.contains(key);
    Some(match tier {
        Tier::Wasm if asked("(kernel.deterministic)") => {
            "write deterministic = false under [kernel], or mode = \"off\" under [network]"
        }
        Tier::Jail | Tier::Gvisor | Tier::Microvm if asked("(kernel.fuel)") => {
            "use --tier wasm, which counts work, or leave it uncounted: no --fuel, or fuel = 0 under [kernel]"
        }
        Tier::Jail | Tier::Gvisor | Tier::Microvm if asked("(kernel.tier)") => {
            "use --tier wasm, or tier = \"wasm\" under [kernel]"
        }
        Tier::Jail | Tier::Gvisor | Tier::Microvm if asked("(kernel.guest)") => {
            "use --tier wasm, or write guest = \"\" under [kernel]"
        }
        Tier::Wasm if asked("(kernel.guest)") => {
            "write one that `blastbox doctor` lists, have the operator add it to the shelf (docs/wasm.md), or write guest = \"\" under [kernel]"
        }
        Tier::Jail | Tier::Gvisor | Tier::Microvm if asked("(kernel.deterministic)") => {
            "use --tier wasm, or write deterministic = false under [kernel]"
        }
        Tier::Jail if asked("(lifetime.survives_daemon)") => {
            "leave network, workspace and volumes out, or write survives_daemon = \"no\" under [lifetime]"
        }
        Tier::Wasm | Tier::Gvisor | Tier::Microvm if asked("(lifetime.survives_daemon)") => {
            "use the jail (--tier jail --accept shared-kernel), or write survives_daemon = \"no\" under [lifetime]"
        }
        Tier::Jail if asked("(files.report_writes)") => {
            "leave --report-writes out, or write report_writes = false under [files]"
        }
        Tier::Wasm | Tier::Gvisor | Tier::Microvm if asked("(files.report_writes)") => {
            "use the jail (--tier jail --accept shared-kernel), or leave --report-writes out (report_writes = false under [files])"
        }
        Tier::Gvisor if asked("(kernel.gvisor_platform)") => {
            "write gvisor_platform = \"systrap\" under [kernel], or make /dev/kvm usable (`blastbox doctor`)"
        }
        Tier::Wasm | Tier::Jail | Tier::Gvisor if asked("(--console)") => {
            "use --tier microvm, or leave --console out"
        }
        Tier::Wasm | Tier::Jail | Tier::Gvisor | Tier::Microvm => return None,
    })
}

/// The tiers that are strong enough, spelled as flags.
fn stronger_fix(level: ThreatLevel) -> String {
    let enough = Tier::ALL.iter().rev().filter(|tier| tier.allowed_at(level));
    let flags: Vec<String> = enough.map(|tier| format!("--tier {tier}")).collect();
    format!("use {}", flags.join(" or "))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GapNotAccepted { gap, found } => {
                let explained = gap.explain().trim_end_matches('.');
                write!(f, "the policy does not accept the gap {gap}: {explained}")?;
                found.as_ref().map_or(Ok(()), |found| write!(f, "; on this host {found}"))
            }
            Self::TooFewBoundaries { effective } => {
                write!(
                    f,
                    "only {effective} of the five boundaries hold; at least {MIN_EFFECTIVE_BOUNDARIES} must"
                )
            }
            Self::TierUnavailable { tier, why } => {
                write!(f, "the tier {tier} cannot run on this host: {why}")
            }
            Self::TierTooWeak { tier, level } => {
                write!(f, "the tier {tier} is too weak for threat level {level}")
            }
            Self::WorkspaceNotAllowed { level } => {
                write!(f, "the policy (threat level {level}) does not allow a host directory as workspace")
            }
            Self::ImageUnusable { why } => write!(f, "the image cannot be used: {why}"),
            Self::RootUnavailable { why } => write!(f, "the box cannot have a root: {why}"),
            Self::GpuUnavailable { why } => write!(f, "the box cannot have a GPU: {why}"),
            Self::VolumesUnavailable { tier } => {
                write!(
                    f,
                    "the tier {tier} has no volumes: a box writes to a directory of the host in the jail alone"
                )
            }
            Self::ConsoleUnavailable { why } => write!(f, "the box cannot have a console: {why}"),
            Self::HostUnfit { why, .. } => write!(f, "this host cannot run boxes: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Refusal> {
        vec![
            Refusal::not_accepted(Gap::SharedKernel),
            Refusal::TooFewBoundaries { effective: 2 },
            Refusal::TierUnavailable { tier: Tier::Microvm, why: "there is no /dev/kvm".into() },
            Refusal::TierTooWeak { tier: Tier::Jail, level: ThreatLevel::Critical },
            Refusal::WorkspaceNotAllowed { level: ThreatLevel::Critical },
            Refusal::ImageUnusable { why: "it has no /bin/sh".into() },
            Refusal::HostUnfit {
                why: "user namespaces are off".into(),
                fix: "sysctl user.max_user_namespaces".into(),
            },
            Refusal::RootUnavailable { why: "it has one user".into() },
            Refusal::GpuUnavailable { why: "there is none".into() },
            Refusal::VolumesUnavailable { tier: Tier::Wasm },
            Refusal::ConsoleUnavailable { why: "QEMU is not installed".into() },
            Refusal::GapNotAccepted { gap: Gap::EmulatedCpu, found: Some("there is no /dev/kvm".into()) },
        ]
    }

    #[test]
    fn codes_are_append_only() {
        let codes: Vec<&str> = every().iter().map(Refusal::code).collect();
        assert_eq!(
            codes,
            [
                "gap_not_accepted",
                "too_few_boundaries",
                "tier_unavailable",
                "tier_too_weak",
                "workspace_not_allowed",
                "image_unusable",
                "host_unfit",
                "root_unavailable",
                "gpu_unavailable",
                "volumes_unavailable",
                "console_unavailable",
                "gap_not_accepted",
            ],
            "a code may be added at the end; a published one never changes"
        );
    }

    #[test]
    fn every_refusal_says_why_in_one_line_and_what_to_do_next() {
        for refusal in every() {
            let why = refusal.to_string();
            assert!(!why.contains('\n') && !why.contains("  ") && !why.ends_with('.'), "{why}");
            assert!(!refusal.fix().is_empty() && !refusal.fix().contains("  "), "{}", refusal.fix());
        }
    }

    #[test]
    fn a_gap_that_is_not_accepted_names_the_flag_that_accepts_it() {
        for gap in Gap::ALL {
            let fix = Refusal::not_accepted(*gap).fix();
            assert!(fix.ends_with(&format!("--accept {gap}")), "{fix}");
        }
    }

    #[test]
    fn accepting_is_not_advised_where_it_would_not_seal() {
        for gap in Gap::ALL {
            let seals = crate::Draft::at(ThreatLevel::Critical).accept(*gap).seal().is_ok();
            let fix = Refusal::not_accepted(*gap).fix();
            assert_eq!(fix.contains("below threat level critical"), !seals, "{fix}");
        }
    }

    #[test]
    fn a_tier_that_is_too_weak_names_only_those_that_are_not() {
        let fix = Refusal::TierTooWeak { tier: Tier::Jail, level: ThreatLevel::Critical }.fix();
        assert_eq!(fix, "use --tier microvm");
    }

    #[test]
    fn what_a_tier_does_not_have_on_any_host_is_not_looked_for_on_this_one() {
        let fix = |tier, why: &str| Refusal::TierUnavailable { tier, why: why.into() }.fix();
        for tier in [Tier::Jail, Tier::Gvisor, Tier::Microvm] {
            let fuel = fix(
                tier,
                "the policy meters the work of commands (kernel.fuel), and only the tier wasm counts it",
            );
            assert!(fuel.starts_with("use --tier wasm") && fuel.contains("no --fuel"), "{fuel}");
            assert!(fix(tier, "a guest alone (kernel.guest)").starts_with("use --tier wasm"));
            assert!(fix(tier, "the same (kernel.deterministic)").starts_with("use --tier wasm"));
        }
        assert!(
            fix(Tier::Jail, "no console (--console): use --tier microvm").contains("leave --console out")
        );
        assert!(fix(Tier::Gvisor, "only the jail (lifetime.survives_daemon)").starts_with("use the jail"));
        assert!(
            !fix(Tier::Jail, "it cannot have a gateway (lifetime.survives_daemon)").contains("use the jail")
        );
    }

    #[test]
    fn at_level_critical_nothing_is_advised_that_is_refused_there_again() {
        let fix = Refusal::TierUnavailable { tier: Tier::Microvm, why: "QEMU is not installed".into() }.fix();
        assert!(fix.contains("docs/microvm.md") && fix.contains("blastbox kernel get"), "{fix}");
        // The jail is advised with the profile that takes it, and such a policy seals.
        assert!(fix.ends_with("--profile default --tier jail"), "{fix}");
        #[cfg(feature = "text")]
        assert!(
            crate::Profile::Default
                .draft()
                .unwrap()
                .tier(Tier::Jail)
                .seal()
                .unwrap()
                .accepts(Gap::SharedKernel)
        );
    }

    #[cfg(feature = "text")]
    #[test]
    fn the_written_form_carries_the_code_and_reads_back() {
        for refusal in every() {
            let text = toml::to_string(&refusal).unwrap();
            assert!(text.contains(&format!("code = \"{}\"", refusal.code())), "{text}");
            assert_eq!(toml::from_str::<Refusal>(&text).unwrap(), refusal);
        }
    }
}
