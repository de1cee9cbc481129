//! Sandboxes that run, copied with everything that runs in them: `create_snapshot`, `Sandbox.create(snapshot)`, `fork`.
//!
//! - [`portrait`]: what this face knows of a sandbox and a copy of it must know too. [`keep`]: snapshots, taken, listed and taken
//!   away. [`begin`]: a sandbox that begins with one. [`fork`]: sandboxes that begin as what another one is now. [`to_disk`]: those
//!   that are paused, and go on.
//!
//! Only virtual machines can be copied as they are, below level critical and without credentials; everything else is refused by name.
//!
//! Trust: caller. A snapshot is its tenant's: nobody else finds it, by name or id. A copy has tokens of its own.

mod begin;
mod fork;
mod keep;
mod portrait;
mod to_disk;

pub(super) use self::begin::{Wanted, begin};
pub(super) use self::fork::fork;
pub(super) use self::keep::{find, has_name, list, remove, take};
pub(super) use self::portrait::Portrait;
pub(super) use self::to_disk::{pause, resume};

use blastbox_engine::SnapshotError;
use blastbox_engine::keeper::KeepError;

use super::desk::Desk;
use super::no::No;
use super::template;

/// Why a sandbox is not copied, and which could be.
fn refused(desk: &Desk, error: &KeepError, id: &str) -> No {
    let KeepError::Snapshot(SnapshotError::Tier(tier)) = error else { return No::kept(error, id) };
    let machines = template::machines(&desk.hall().images);
    let which = if machines.is_empty() {
        "the operator makes such a template with `tier = \"microvm\"` in [e2b.templates.NAME] of the daemon's configuration".to_owned()
    } else {
        format!("sandboxes of these templates are: {}", machines.join(", "))
    };
    No::bad(format!(
        "a sandbox of the tier {} cannot be copied as it is, only virtual machines can: {which}; see docs/e2b.md",
        tier.as_str()
    ))
    .coded("snapshot_tier")
}
