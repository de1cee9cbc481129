//! A box that lies on disk: what is known of it while nothing of it runs.
//!
//! Its machine is a snapshot that nobody else sees, under the name of the box. Its life stands still: what was left of it is left when
//! it goes on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_policy::{SealedPolicy, parse};
use blastbox_wire::BoxId;
use blastbox_wire::event::About;

use super::adopt;
use super::cards::{BoxCard, ExecCard, ExecEnded, Phase, Tenant};
use super::cause::Cause;
use super::clock::{FOR_EVER, Now};
use super::events::wall_clock;
use super::house::House;
use super::kept::Kept;
use super::pen;
use super::snapshot_id::SnapshotId;
use crate::store::{BoxRow, Deadlines};

/// A box that lies on disk.
#[derive(Debug)]
pub(crate) struct OnDisk {
    card: BoxCard,
    pub(super) policy: Arc<SealedPolicy>,
    pub(super) made_at: SystemTime,
    execs: Vec<ExecCard>,
    /// What is left of its life.
    left: Mutex<Duration>,
    /// Held while it is resumed or taken away: one after the other, whoever asks.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

impl OnDisk {
    /// A box of this daemon, of which nothing else is left.
    pub(super) fn of(kept: &Kept) -> Self {
        let left = kept.fate().clock.left(Now::read().monotonic);
        // They go on with the box.
        let running = kept.commands.cards().into_iter().filter(is_on_disk);
        Self {
            card: BoxCard { policy: kept.policy().digest().to_string(), ..kept.card.clone() },
            policy: kept.policy(),
            made_at: kept.asked,
            execs: running.map(|exec| ExecCard { ended: None, ..exec }).collect(),
            left: Mutex::new(left),
            turn: Arc::default(),
        }
    }

    /// One of an earlier daemon; `None`: what is written down of it is not what was sealed.
    pub(super) fn found(row: &BoxRow) -> Option<Self> {
        let policy = parse(&row.policy_text).and_then(|draft| draft.seal()).ok()?;
        (policy.digest() == row.policy).then(|| Self {
            card: adopt::card(row, &policy),
            policy: Arc::new(policy),
            made_at: row.made_at,
            execs: Vec::new(),
            left: Mutex::new(row.deadlines.life),
            turn: Arc::default(),
        })
    }

    pub(super) fn id(&self) -> &BoxId {
        &self.card.id
    }

    pub(super) fn tenant(&self) -> &Tenant {
        &self.card.tenant
    }

    pub(super) fn left(&self) -> Duration {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_left(&self, left: Duration) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left.min(FOR_EVER);
    }

    /// Its card; it would end then if it went on now.
    pub(super) fn card(&self) -> BoxCard {
        let ends_at = wall_clock(SystemTime::now() + self.left());
        BoxCard { phase: Phase::Paused, on_disk: true, warm: false, ends_at, ..self.card.clone() }
    }

    /// The commands that go on with it, as far as this daemon was told of them.
    pub(super) fn execs(&self) -> Vec<ExecCard> {
        self.execs.clone()
    }

    /// What the next daemon has to know of its time.
    pub(super) fn deadlines(&self) -> Deadlines {
        let now = Now::read();
        Deadlines {
            life: self.left(),
            idle: Duration::from_secs(self.card.idle_seconds),
            on_timeout: self.card.on_timeout,
            ends_at: now.wall + self.left(),
            ends_up: None,
            overtime: false,
        }
    }

    /// How records name it.
    pub(super) fn about(&self) -> About {
        let card = &self.card;
        pen::about(Some(&card.id), &card.tenant, &self.policy, &card.image, Some(card.tier), &card.gaps)
    }

    /// The name of its file.
    pub(super) fn file(&self) -> SnapshotId {
        SnapshotId::of_box(&self.card.id)
    }
}

/// A command that ran, and ended only because its box was paused to disk.
fn is_on_disk(exec: &ExecCard) -> bool {
    exec.pid.is_some()
        && match &exec.ended {
            None => true,
            Some(ExecEnded::BoxEnded { code, .. }) => code == Cause::OnDisk.code(),
            Some(_) => false,
        }
}

impl House {
    /// Takes in the boxes that lie on disk since an earlier daemon, and takes away what is left of others that do no more.
    pub(super) fn find_on_disk(&self, rows: &[BoxRow]) {
        rows.iter().filter_map(OnDisk::found).for_each(|found| self.lies_on_disk(found));
        self.album.sweep_paused(|id| self.is_on_disk(id));
    }
}
