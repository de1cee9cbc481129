//! Looks whether the disk that volumes lie on has room left, and ends every sandbox that has one where it has not.
//!
//! Whose sandbox has filled it nobody can tell: what a sandbox hides is in no measure of its volume. This is no limit either: what is
//! written between two looks, and until sandboxes have ended, comes out of what was to stay free.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Why;
use super::endings::Endings;
use crate::e2b::desk::Desk;
use crate::e2b::volumes::shelf::Shelf;

/// How often it is looked: at 2 GiB a second this is most of what is to stay free.
const EVERY: Duration = Duration::from_millis(200);
const NEARLY_FULL: Why = Why::Outgrown("the disk of the host is nearly full");

pub(super) async fn guard(desk: Weak<Desk>, shelf: Arc<Shelf>, endings: Endings) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(desk) = desk.upgrade() else { return };
        let on = Arc::clone(&shelf);
        // A defect of ours ends nobody.
        if tokio::task::spawn_blocking(move || on.disk_has_room()).await.unwrap_or(true) {
            continue;
        }
        for tenant in shelf.tenants() {
            for (sandbox, _) in desk.of(&tenant) {
                if let Some((_, name)) = sandbox.mounts.ids().next() {
                    endings.end(desk.keeper(), &sandbox, name, &NEARLY_FULL);
                }
            }
        }
    }
}
