//! Which tier a policy gets on this host, and why not another one.

use std::path::PathBuf;
use std::sync::Arc;

use blastbox_images::machine::Workshop;
use blastbox_policy::{
    Gap, Refusal, SealedPolicy, Tier, TierChoice, enough_boundaries, passed_over, tiers_for,
};
use serde::ser::{SerializeMap, Serializer};

use crate::facts::Kvm;
use crate::{Facts, Lowered, Request, tiers};

/// The outcome, with everything that was weighed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Choice {
    /// Every tier that was thought of, in that order; those that the policy passes over come last.
    pub considered: Vec<Considered>,
    /// The plan, or why there is none.
    #[serde(serialize_with = "outcome")]
    pub chosen: Result<Lowered, Refusal>,
}

/// One tier, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Considered {
    /// The tier.
    pub tier: Tier,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What became of a tier.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "refusal")]
pub enum Verdict {
    /// This one.
    Chosen,
    /// The policy would have it, but it cannot or may not run here.
    Refused(Refusal),
    /// The policy does not let it be tried.
    PassedOver(Refusal),
    /// A tier that the policy prefers was chosen before it.
    NotNeeded,
}

/// Tries the tiers that the policy allows, best first, and takes the first one that holds.
pub fn choose(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Choice {
    // Wrong in every tier, so none needs to be tried.
    if let Err(refusal) = request.worksite(policy) {
        return Choice { considered: Vec::new(), chosen: Err(refusal) };
    }
    let mut considered = Vec::new();
    let mut chosen: Option<Lowered> = None;
    for tier in in_order(policy, facts) {
        let verdict = if chosen.is_some() {
            Verdict::NotNeeded
        } else {
            match tried(tier, policy, facts, request) {
                Ok(lowered) => {
                    chosen = Some(lowered);
                    Verdict::Chosen
                }
                Err(refusal) => Verdict::Refused(refusal),
            }
        };
        considered.push(Considered { tier, verdict });
    }
    considered.extend(passed_over(policy).into_iter().map(|(tier, why)| {
        // What would have it tried would not help.
        let why = if facts.hears_console && tier != Tier::Microvm { no_console(tier) } else { why };
        Considered { tier, verdict: Verdict::PassedOver(why) }
    }));
    let chosen = chosen.ok_or_else(|| most_useful(policy, &considered));
    Choice { considered, chosen }
}

/// What has to be found or made before this is chosen, and the agent that goes into it; `None`: nothing, also where the
/// machine that it is for would be refused or another tier comes first. It is work for a thread that may wait for disks.
pub fn preparation(
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Option<(Arc<Workshop>, PathBuf)> {
    let tiers = in_order(policy, facts);
    let (before, _) = tiers.split_at_checked(tiers.iter().position(|tier| *tier == Tier::Microvm)?)?;
    if before.iter().any(|tier| tried(*tier, policy, facts, request).is_ok()) {
        return None;
    }
    tiers::microvm::preparation(policy, facts, request)
}

/// What a tier makes of the request, if the policy takes it.
fn tried(
    tier: Tier,
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Result<Lowered, Refusal> {
    if facts.hears_console && tier != Tier::Microvm {
        return Err(no_console(tier));
    }
    let lowered = tiers::lower(tier, policy, facts, request).map_err(|refusal| match refusal {
        // No other tier would do: none is to be named.
        Refusal::TierUnavailable { why, .. } if facts.hears_console => {
            Refusal::ConsoleUnavailable { why: format!("the tier {tier} cannot run on this host: {why}") }
        }
        other => other,
    })?;
    judge(policy, facts, lowered)
}

fn no_console(tier: Tier) -> Refusal {
    let why = format!("only a kernel of the box's own has one, and the tier {tier} has none");
    Refusal::ConsoleUnavailable { why }
}

/// The tiers that the policy allows, best first. A machine whose processor is emulated stands behind gVisor: it is no
/// boundary that anybody maintains.
fn in_order(policy: &SealedPolicy, facts: &Facts) -> Vec<Tier> {
    let mut tiers = tiers_for(policy);
    // Asked only where it matters: finding it out takes a moment.
    if policy.kernel().tier == TierChoice::ByThreat
        && policy.accepts(Gap::EmulatedCpu)
        && facts.machines.engine.is_some()
        && facts.machines.found().kvm != Kvm::Fast
        && let Some(at) = tiers.iter().position(|tier| *tier == Tier::Microvm)
        && let Some(after) = tiers.iter().position(|tier| *tier == Tier::Gvisor)
        && at < after
    {
        tiers.swap(at, after);
    }
    tiers
}

/// Holds what a tier reports against what the policy accepts.
fn judge(policy: &SealedPolicy, facts: &Facts, lowered: Lowered) -> Result<Lowered, Refusal> {
    if let Some(gap) = lowered.gaps.iter().find(|gap| !policy.accepts(**gap)) {
        return Err(match lowered.tier {
            Tier::Microvm => tiers::microvm::not_accepted(*gap, facts),
            Tier::Jail | Tier::Gvisor | Tier::Wasm => Refusal::not_accepted(*gap),
        });
    }
    enough_boundaries(&lowered.effective())?;
    Ok(lowered)
}

/// Of several refusals, the one that the caller can do most about; of equal ones the first.
fn most_useful(policy: &SealedPolicy, considered: &[Considered]) -> Refusal {
    let refusals = considered.iter().filter_map(|one| match &one.verdict {
        Verdict::Refused(refusal) | Verdict::PassedOver(refusal) => Some((one.tier, refusal)),
        Verdict::Chosen | Verdict::NotNeeded => None,
    });
    // What the jail says of a GPU is about this host, and what the others say is about them.
    let about_others = |(tier, refusal): &(Tier, &Refusal)| {
        matches!(refusal, Refusal::GpuUnavailable { .. }) && *tier != Tier::Jail
    };
    let worth = |(_, refusal): &(Tier, &Refusal)| match refusal {
        // What the caller asked for is wrong whatever the tier.
        Refusal::WorkspaceNotAllowed { .. } | Refusal::ImageUnusable { .. } => 0,
        // One flag away.
        Refusal::GapNotAccepted { .. } => 1,
        Refusal::RootUnavailable { .. }
        | Refusal::GpuUnavailable { .. }
        | Refusal::VolumesUnavailable { .. }
        | Refusal::ConsoleUnavailable { .. }
        | Refusal::HostUnfit { .. } => 2,
        Refusal::TooFewBoundaries { .. } => 3,
        Refusal::TierUnavailable { .. } => 4,
        Refusal::TierTooWeak { .. } => 5,
    };
    let best = refusals.min_by_key(|one| (worth(one), about_others(one))).map(|(_, refusal)| refusal);
    // A policy always names at least one tier; should it ever not, the level is what left none over.
    best.cloned().unwrap_or(Refusal::TierTooWeak { tier: Tier::Jail, level: policy.level() })
}

/// `{"lowered": …}` or `{"refusal": …}`.
fn outcome<S: Serializer>(chosen: &Result<Lowered, Refusal>, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    match chosen {
        Ok(lowered) => map.serialize_entry("lowered", lowered)?,
        Err(refusal) => map.serialize_entry("refusal", refusal)?,
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use blastbox_images::Image;
    use blastbox_policy::{Draft, Gap, Profile, ThreatLevel};
    use blastbox_wire::BoxId;
    use blastbox_wire::plan::WorkspaceAccess;

    use super::*;
    use crate::facts::tests::{good_host, rootless_host};

    fn made(draft: Draft, facts: &Facts) -> Choice {
        let image = Image::host();
        let request =
            Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace: None, volumes: &[] };
        choose(&draft.seal().unwrap(), facts, &request)
    }

    fn of(profile: Profile, facts: &Facts) -> Choice {
        made(profile.draft().unwrap(), facts)
    }

    #[test]
    fn the_default_profile_runs_on_a_fresh_machine_as_root_and_as_a_user() {
        for facts in [good_host(), rootless_host()] {
            let lowered = of(Profile::Default, &facts).chosen.unwrap();
            assert_eq!(lowered.tier, Tier::Jail);
            assert!(lowered.gaps.contains(&Gap::SharedKernel));
        }
    }

    #[test]
    fn a_gap_is_in_the_choice_only_where_the_host_has_it() {
        assert!(of(Profile::Default, &rootless_host()).chosen.unwrap().gaps.contains(&Gap::SharedUid));
        assert!(!of(Profile::Default, &good_host()).chosen.unwrap().gaps.contains(&Gap::SharedUid));
    }

    #[test]
    fn strict_is_refused_with_the_flag_that_would_help() {
        let choice = of(Profile::Strict, &good_host());
        let refusal = choice.chosen.unwrap_err();
        assert_eq!(refusal, Refusal::not_accepted(Gap::SharedKernel));
        assert!(refusal.fix().contains("--accept shared-kernel"));
        let tiers: Vec<Tier> = choice.considered.iter().map(|one| one.tier).collect();
        assert_eq!(tiers, [Tier::Microvm, Tier::Gvisor, Tier::Jail]);
    }

    #[test]
    fn strict_runs_once_what_the_host_lacks_is_accepted_by_name() {
        let draft = || Profile::Strict.draft().unwrap().accept(Gap::SharedKernel);
        let refusal = made(draft(), &good_host()).chosen.unwrap_err();
        assert_eq!(refusal, Refusal::not_accepted(Gap::HostImage));
        let lowered = made(draft().accept(Gap::HostImage), &good_host()).chosen.unwrap();
        assert_eq!(lowered.gaps, [Gap::SharedKernel, Gap::HostImage]);
    }

    #[test]
    fn critical_is_refused_where_there_is_only_the_jail() {
        let choice = of(Profile::Critical, &good_host());
        let refusal = choice.chosen.unwrap_err();
        assert_eq!(refusal.code(), "tier_unavailable");
        assert!(matches!(refusal, Refusal::TierUnavailable { tier: Tier::Microvm, .. }));
        let jail = choice.considered.iter().find(|one| one.tier == Tier::Jail).unwrap();
        let weak = Refusal::TierTooWeak { tier: Tier::Jail, level: ThreatLevel::Critical };
        assert_eq!(jail.verdict, Verdict::PassedOver(weak));
    }

    #[test]
    fn a_gpu_that_is_not_there_is_told_of_this_host_and_not_of_tiers_that_have_none() {
        let draft =
            Profile::Default.draft().unwrap().gpu(blastbox_policy::Gpu::One).accept(Gap::GpuDriverSurface);
        let refusal = made(draft, &good_host()).chosen.unwrap_err();
        assert_eq!(refusal.code(), "gpu_unavailable");
        assert!(refusal.to_string().contains("/dev/nvidia0"), "{refusal}");
    }

    #[test]
    fn a_gap_that_only_this_host_has_is_refused_by_its_name() {
        let silent = Facts { seccomp_user_notif: false, ..good_host() };
        let refusal = of(Profile::Default, &silent).chosen.unwrap_err();
        assert_eq!(refusal, Refusal::not_accepted(Gap::SilentDenials));
        let draft = Profile::Default.draft().unwrap().accept(Gap::SilentDenials);
        assert!(made(draft, &silent).chosen.is_ok());
    }

    #[test]
    fn a_named_tier_that_the_host_lacks_is_unavailable_and_no_other_is_tried() {
        for tier in [Tier::Wasm, Tier::Gvisor, Tier::Microvm] {
            let choice = made(Profile::Default.draft().unwrap().tier(tier), &good_host());
            assert_eq!(choice.chosen.unwrap_err().code(), "tier_unavailable");
            assert_eq!(choice.considered.len(), 1);
        }
    }

    #[test]
    fn whoever_wants_a_console_where_no_machine_can_be_had_is_sent_to_no_tier_without_one() {
        let facts = Facts { hears_console: true, ..good_host() };
        let drafts = [
            Profile::Default.draft().unwrap(),
            Profile::Default.draft().unwrap().tier(Tier::Microvm),
            Profile::Strict.draft().unwrap(),
        ];
        for draft in drafts {
            let refusal = made(draft, &facts).chosen.unwrap_err();
            let (code, told, fix) = (refusal.code(), refusal.to_string(), refusal.fix());
            assert_eq!(code, "console_unavailable", "{told}");
            assert!(told.contains("the tier microvm cannot run on this host"), "{told}");
            assert!(
                fix.contains("blastbox doctor") && fix.contains("--console") && !fix.contains("jail"),
                "{fix}"
            );
        }
        let jail = made(Profile::Default.draft().unwrap().tier(Tier::Jail), &facts).chosen.unwrap_err();
        assert!(jail.to_string().contains("the tier jail has none"), "{jail}");
        assert!(jail.fix().contains("--tier microvm"), "{}", jail.fix());
    }

    #[test]
    fn a_workspace_without_a_place_is_refused_before_any_tier() {
        let image = Image::host();
        let workspace = Some(WorkspaceAccess::ReadOnly);
        let request = Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace, volumes: &[] };
        let strict = Profile::Strict.draft().and_then(Draft::seal).unwrap();
        let refusal = choose(&strict, &good_host(), &request).chosen.unwrap_err();
        assert_eq!(refusal.code(), "workspace_not_allowed");
    }

    #[test]
    fn too_few_boundaries_are_refused_even_when_every_gap_is_accepted() {
        let image = Image::host();
        let request =
            Request { box_id: BoxId::from_random([1; 20]), image: &image, workspace: None, volumes: &[] };
        let policy = Profile::Default.draft().and_then(Draft::seal).unwrap();
        let mut lowered = tiers::lower(Tier::Jail, &policy, &good_host(), &request).unwrap();
        assert!(judge(&policy, &good_host(), lowered.clone()).is_ok());
        lowered.report.iter_mut().take(3).for_each(|report| report.effective = false);
        assert_eq!(judge(&policy, &good_host(), lowered), Err(Refusal::TooFewBoundaries { effective: 2 }));
    }

    #[test]
    fn the_written_form_says_what_became_of_each_tier() {
        let json = serde_json::to_value(of(Profile::Default, &good_host())).unwrap();
        assert_eq!(json["considered"][0]["tier"], "microvm");
        assert_eq!(json["considered"][0]["verdict"], "refused");
        assert_eq!(json["considered"][0]["refusal"]["code"], "tier_unavailable");
        assert_eq!(json["considered"][2]["verdict"], "chosen");
        assert_eq!(json["chosen"]["lowered"]["tier"], "jail");
        let json = serde_json::to_value(of(Profile::Strict, &good_host())).unwrap();
        assert_eq!(json["considered"][2]["verdict"], "passed_over");
        assert_eq!(json["chosen"]["refusal"]["gap"], "shared-kernel");
    }
}
