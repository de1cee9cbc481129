//! The tiers: each a pure function from (sealed policy, facts, request) to a plan, or a refusal.

pub mod gvisor;
pub mod jail;
pub mod microvm;
pub mod wasm;

use blastbox_policy::{Refusal, SealedPolicy, Tier};

use crate::{Facts, Lowered, Request};

/// What one tier makes of the policy. Its gaps are reported, not judged: [`crate::choose`] does that.
pub fn lower(
    tier: Tier,
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Result<Lowered, Refusal> {
    match tier {
        Tier::Wasm => wasm::lower(policy, facts, request),
        Tier::Jail => jail::lower(policy, facts, request),
        Tier::Gvisor => gvisor::lower(policy, facts, request),
        Tier::Microvm => microvm::lower(policy, facts, request),
    }
}
