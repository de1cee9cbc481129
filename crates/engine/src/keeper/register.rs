//! What the keeper is about to do goes into the store first, where it has one.
//!
//! A box that cannot be written down is not begun. What happens to boxes that are there already goes on without the
//! store: the worst of it is a row that says less than is true, of a box whose warden is written down.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_policy::{SealedPolicy, SurvivesDaemon, Tier, to_toml};
use blastbox_wire::BoxId;
use blastbox_wire::agent::Io;

use super::cards::{BoxCard, Tenant};
use super::clock::Now;
use super::error::KeepError;
use crate::live::Command;
use crate::store::{BoxRow, BoxState, Deadlines, ExecRow, Store};

/// Longest name of a program that is kept.
const PROGRAM: usize = 256;

/// The keeper's hand on its store, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Register(Option<Arc<Store>>);

/// The row of a box that is nobody's yet. Dropped with the box, at whatever moment, it is struck.
#[derive(Debug)]
pub(crate) struct Entry(Option<(Arc<Register>, BoxId)>);

impl Entry {
    /// From here on whoever watches the box strikes it.
    pub(crate) fn hand_over(mut self) {
        self.0 = None;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some((register, id)) = self.0.take() {
            register.gone(&id, "failed");
        }
    }
}

impl Register {
    pub(crate) fn of(store: Option<Arc<Store>>) -> Self {
        Self(store)
    }

    fn must(
        &self,
        work: impl FnOnce(&Store) -> Result<(), crate::store::StoreError>,
    ) -> Result<(), KeepError> {
        self.0.as_deref().map_or(Ok(()), work).map_err(KeepError::Store)
    }

    fn may(&self, work: impl FnOnce(&Store) -> Result<(), crate::store::StoreError>) {
        // The next box that is asked for is refused, and whoever asks is told why.
        self.must(work).ok();
    }

    /// A box is about to be made.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &BoxId,
        policy: &SealedPolicy,
        image: &str,
        tier: Tier,
        warden: &str,
    ) -> Result<Entry, KeepError> {
        self.must(|store| store.begin_box(id, &policy.digest().to_string(), image, tier, warden))?;
        Ok(Entry(Some((Arc::clone(self), id.clone()))))
    }

    /// A box that lies on disk is about to be made again. Whatever becomes of that, its row stays.
    pub(crate) fn revive(&self, id: &BoxId, warden: &str) -> Result<Entry, KeepError> {
        self.must(|store| store.revive_box(id, warden))?;
        Ok(Entry(None))
    }

    /// A box is about to lie on disk, and nowhere else.
    pub(crate) fn on_disk(&self, id: &BoxId, deadlines: &Deadlines) -> Result<(), KeepError> {
        self.must(|store| store.lay_box(id, deadlines))
    }

    /// It waits in a pool.
    pub(crate) fn pooled(&self, id: &BoxId) {
        self.may(|store| store.move_box(id, BoxState::Pooled));
    }

    /// It is about to be somebody's.
    pub(crate) fn give(
        &self,
        card: &BoxCard,
        policy: &SealedPolicy,
        made_at: SystemTime,
        deadlines: Deadlines,
    ) -> Result<(), KeepError> {
        self.must(|store| {
            store.give_box(&BoxRow {
                id: card.id.clone(),
                tenant: card.tenant.clone(),
                state: BoxState::Live,
                policy: policy.digest(),
                policy_text: to_toml(policy),
                image: card.image.clone(),
                tier: card.tier,
                gaps: card.gaps.clone(),
                // Noted when it was begun.
                warden: String::new(),
                survives: policy.lifetime().survives_daemon == SurvivesDaemon::Yes,
                made_at,
                deadlines,
                metadata: card.metadata.clone(),
            })
        })
    }

    pub(crate) fn moved(&self, id: &BoxId, state: BoxState) {
        self.may(|store| store.move_box(id, state));
    }

    /// Its rules are others now.
    pub(crate) fn ruled(&self, id: &BoxId, policy: &SealedPolicy) {
        self.may(|store| store.rule_box(id, policy.digest(), &to_toml(policy)));
    }

    /// Its time is another one now.
    pub(crate) fn extended(&self, id: &BoxId, deadlines: &Deadlines) {
        self.may(|store| store.extend_box(id, deadlines));
    }

    /// Nothing is left of it.
    pub(crate) fn gone(&self, id: &BoxId, outcome: &str) {
        self.may(|store| store.end_box(id, outcome));
    }

    /// Whether this tenant had a box of this name, which is gone.
    pub(crate) fn remembers(&self, tenant: &Tenant, id: &BoxId) -> bool {
        self.0.as_deref().is_some_and(|store| store.remembers(tenant, id))
    }

    pub(crate) fn exec_begun(&self, id: &BoxId, number: u32, command: &Command, timeout: Option<Duration>) {
        let program = command.arguments.first().map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
        let program = program.get(..program.floor_char_boundary(PROGRAM)).unwrap_or_default().to_owned();
        let row = ExecRow {
            number,
            program,
            arguments: u32::try_from(command.arguments.len().saturating_sub(1)).unwrap_or(u32::MAX),
            terminal: matches!(command.io, Io::Terminal { .. }),
            started_at: SystemTime::now(),
            ends_up: timeout.map(|timeout| Now::read().up.saturating_add(timeout)),
            ended: None,
        };
        self.may(|store| store.begin_exec(id, &row));
    }

    /// A command runs in it that was begun elsewhere.
    pub(crate) fn exec_found(&self, id: &BoxId, exec: &ExecRow) {
        self.may(|store| store.begin_exec(id, exec));
    }

    /// The commands of a box that were written down.
    pub(crate) fn execs(&self, id: &BoxId) -> Vec<ExecRow> {
        self.0.as_deref().and_then(|store| store.execs(id).ok()).unwrap_or_default()
    }

    pub(crate) fn exec_ended(&self, id: &BoxId, number: u32, how: &str) {
        self.may(|store| store.end_exec(id, number, how));
    }
}
