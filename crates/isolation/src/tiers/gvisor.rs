//! The tier `gvisor`: gVisor's user-space kernel. Not built yet, and said so.

use blastbox_policy::{Refusal, Tier};

use crate::Lowered;

/// Always a refusal in this version.
pub fn lower() -> Result<Lowered, Refusal> {
    Err(super::not_built(Tier::Gvisor))
}
