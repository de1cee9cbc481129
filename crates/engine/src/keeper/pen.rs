//! What the keeper is about to do goes into the ledger first.
//!
//! Where it cannot be written, nothing new begins: no box, no command, no pause. What makes the world smaller (the end of
//! a box) happens all the same: a full disk must not keep anything alive.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_policy::{Gap, SealedPolicy, Tier};
use blastbox_wire::BoxId;
use blastbox_wire::event::{About, Event, Hash, ImageMark, Label};

use super::cards::Tenant;
use super::error::KeepError;
use super::kept::Kept;
use super::post::Post;
use crate::ledger::{Ledger, LedgerError};
use crate::live::Command;
use crate::store::BoxRow;

/// The keeper's hand on its ledger, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Pen {
    ledger: Mutex<Option<Ledger>>,
    post: Arc<Post>,
}

impl Pen {
    pub(crate) fn of(ledger: Option<Ledger>) -> Self {
        let post = Arc::<Post>::default();
        if let Some(ledger) = &ledger {
            post.written(ledger.head().seq);
        }
        Self { ledger: Mutex::new(ledger), post }
    }

    /// Announces something. On an error it must not be done.
    pub(crate) fn announce(&self, about: Option<&About>, event: &Event) -> Result<(), KeepError> {
        self.write(about, event).map(drop).map_err(KeepError::Ledger)
    }

    /// Records what has happened, or is done whatever becomes of the ledger. The number of the record, if there is one.
    pub(crate) fn record(&self, about: &About, event: &Event) -> Option<u64> {
        // The next announcement fails as well, and is heard.
        self.write(Some(about), event).ok().flatten()
    }

    /// Waits until every sink that must has acknowledged this record.
    pub(crate) async fn acknowledged(&self, record: Option<u64>) {
        if let Some(seq) = record {
            self.post.acknowledged(seq).await;
        }
    }

    fn write(&self, about: Option<&About>, event: &Event) -> Result<Option<u64>, LedgerError> {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ledger) = &mut *ledger else { return Ok(None) };
        ledger.append(about, event)?;
        // A record may have brought a signature with it.
        let seq = ledger.head().seq;
        self.post.written(seq);
        Ok(Some(seq))
    }

    /// Where the ledger lies.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.as_ref().map(|ledger| ledger.directory().to_owned())
    }

    pub(crate) fn post(&self) -> &Arc<Post> {
        &self.post
    }

    #[cfg(test)]
    pub(crate) fn jam_for_test(&self) {
        if let Some(ledger) = &mut *self.ledger.lock().unwrap() {
            ledger.jam_for_test();
        }
    }

    /// Closes the ledger in order. What happens later is not recorded.
    pub(crate) fn lay_down(&self) {
        if let Some(mut ledger) = self.ledger.lock().unwrap_or_else(PoisonError::into_inner).take() {
            ledger.append(None, &Event::DaemonStopped).ok();
            // One that cannot be closed says so to whoever verifies it: its tail is not signed.
            if let Ok(head) = ledger.close() {
                self.post.written(head.seq);
            }
        }
        self.post.close();
    }
}

/// Which box a record is about, and under which rules it stands.
pub(crate) fn about(
    box_id: Option<&BoxId>,
    tenant: &Tenant,
    policy: &SealedPolicy,
    image: &str,
    tier: Option<Tier>,
    gaps: &[Gap],
) -> About {
    About {
        box_id: box_id.cloned(),
        tenant: Label::new(tenant.as_str()),
        policy: policy.digest(),
        image: ImageMark { label: Label::new(image), digest: None },
        tier,
        gaps: gaps.to_vec(),
    }
}

/// A box of an earlier daemon, as its row tells.
pub(crate) fn about_row(row: &BoxRow) -> About {
    About {
        box_id: Some(row.id.clone()),
        tenant: Label::new(row.tenant.as_str()),
        policy: row.policy,
        image: ImageMark { label: Label::new(&row.image), digest: None },
        tier: Some(row.tier),
        gaps: row.gaps.clone(),
    }
}

impl Kept {
    /// How records name this box.
    pub(crate) fn about(&self) -> About {
        let card = &self.card;
        about(Some(&card.id), &card.tenant, &self.policy, &card.image, Some(card.tier), &card.gaps)
    }
}

/// A command, without what its arguments say: people put tokens there.
pub(crate) fn asked(exec: u32, command: &Command) -> Event {
    let program =
        command.arguments.first().map(|program| String::from_utf8_lossy(program)).unwrap_or_default();
    let arguments = command.arguments.len().saturating_sub(1);
    Event::CommandAsked {
        exec,
        program: Label::new(&program),
        arguments: u32::try_from(arguments).unwrap_or(u32::MAX),
        digest: Hash::of_command(&command.arguments),
    }
}
