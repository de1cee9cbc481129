//! The tiers: each a pure function from (sealed policy, facts, request) to a plan, or a refusal.

pub mod gvisor;
pub mod jail;
pub mod microvm;
pub mod wasm;

use blastbox_images::{Form, Image, ImageError, Language};
use blastbox_policy::{Refusal, SealedPolicy, Tier, TierChoice};

use crate::{Facts, Lowered, Request};

/// What one tier makes of the policy. Its gaps are reported, not judged: [`crate::choose`] does that.
pub fn lower(
    tier: Tier,
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Result<Lowered, Refusal> {
    if policy.kernel().deterministic && tier != Tier::Wasm {
        let why = "the policy asks for runs that can be repeated to the last byte (kernel.deterministic), and only the tier wasm has them";
        return Err(Refusal::TierUnavailable { tier, why: why.to_owned() });
    }
    if policy.kernel().fuel.is_some() && tier != Tier::Wasm {
        let why = "the policy meters the work of commands (kernel.fuel), and only the tier wasm counts it"
            .to_owned();
        return Err(Refusal::TierUnavailable { tier, why });
    }
    if policy.kernel().guest.is_some() && tier != Tier::Wasm {
        let why =
            "the policy names the one guest of its boxes (kernel.guest), and only the tier wasm has guests";
        return Err(Refusal::TierUnavailable { tier, why: why.to_owned() });
    }
    if !request.volumes.is_empty() && tier != Tier::Jail {
        return Err(Refusal::VolumesUnavailable { tier });
    }
    if let (Image::Module(module), true) = (request.image, tier != Tier::Wasm) {
        let what = match module.form {
            Form::Module => "module",
            Form::Component => "component",
        };
        let why = format!(
            "{} is a WebAssembly {what}, and only the tier wasm runs such (kernel.tier)",
            module.name
        );
        return Err(Refusal::TierUnavailable { tier, why });
    }
    match tier {
        Tier::Wasm => wasm::lower(policy, facts, request),
        Tier::Jail => jail::lower(policy, facts, request),
        Tier::Gvisor => gvisor::lower(policy, facts, request),
        Tier::Microvm => microvm::lower(policy, facts, request),
    }
}

/// Why there is no interpreter.
#[derive(Debug, thiserror::Error)]
pub enum NoInterpreter {
    /// The image has none.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Nobody has made a guest of it.
    #[error("the tier wasm has no shell: it runs no programs")]
    NoShellGuest,
}

/// The command that reads a program in this language from standard input, in a box of this tier.
///
/// # Errors
/// When there is none.
pub fn interpreter(
    tier: TierChoice,
    image: &Image,
    language: Language,
) -> Result<Vec<String>, NoInterpreter> {
    match tier {
        TierChoice::Exactly(Tier::Wasm) => wasm::interpreter(language),
        TierChoice::Exactly(Tier::Jail | Tier::Gvisor | Tier::Microvm) | TierChoice::ByThreat => {
            Ok(image.find_interpreter(language)?)
        }
    }
}
