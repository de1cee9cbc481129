//! Another warden in the place of one that died.

use std::sync::{Arc, Weak};
use std::time::Duration;

use blastbox_isolation::{Warden, WardenError};
use blastbox_wire::warden::Ask;
use tokio::time::{sleep, timeout};

use super::counts::Counts;
use super::{Line, Link, READY, Supply, Word, lock};
use crate::patience::{backoff, random_byte};

/// How long a fresh warden may take to release what a dead one has left.
const SWEEP: Duration = Duration::from_secs(2);

impl Link {
    /// Tells every box of the dead warden, starts a fresh one and has it release what the dead one left.
    async fn recover(self: &Arc<Self>) {
        let orphans: Vec<_> = std::mem::take(&mut *lock(&self.boxes)).into_values().collect();
        let tell = |word: &Word| orphans.iter().for_each(|to| drop(to.send(word.clone())));
        *lock(&self.counts) = Counts::default();
        tell(&Word::WardenGone);
        self.replace().await;
        tell(&Word::Swept);
    }

    async fn replace(self: &Arc<Self>) {
        let dead = lock(&self.warden).take();
        let link = Arc::clone(self);
        let started = tokio::task::spawn_blocking(move || {
            // Waits until its process has ended.
            drop(dead);
            start(&link.supply)
        })
        .await;
        if let Some(line) = started.ok().and_then(Result::ok).and_then(|fresh| Line::to(fresh).ok()) {
            *lock(&self.warden) = Some(line);
            if self.ask(&Ask::Sweep, &[]).await.is_ok() {
                self.wait_swept().await;
            }
        }
    }

    async fn wait_swept(self: &Arc<Self>) {
        let Some(line) = self.line() else { return };
        let heard = async {
            tokio::select! {
                () = self.swept.notified() => {}
                () = self.hear_until_gone(line) => {}
            }
        };
        // Too slow: the sweep goes on by itself, and every later warden sweeps as well.
        timeout(SWEEP, heard).await.ok();
    }
}

/// Starts a warden and waits until it is ready.
fn start(supply: &Supply) -> Result<Warden, WardenError> {
    let mut warden = supply()?;
    // It is the same host with the same powers: what was known of it still holds.
    warden.wait_ready(READY)?;
    Ok(warden)
}

/// Listens for as long as somebody uses the link, through the death of wardens.
pub(crate) async fn listen(link: Weak<Link>) {
    let mut failures = 0;
    while let Some(strong) = link.upgrade() {
        if let Some(line) = strong.line() {
            failures = 0;
            strong.hear_until_gone(line).await;
            if strong.is_done() {
                return;
            }
            strong.recover().await;
            continue;
        }
        // The host could not have another one (no memory, no descriptors): it may later.
        failures += 1;
        drop(strong);
        sleep(backoff(failures, random_byte())).await;
        if let Some(strong) = link.upgrade() {
            strong.replace().await;
        }
    }
}
