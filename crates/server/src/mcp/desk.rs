//! The boxes of one session.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::{BoxCard, ExecCard, Keeper, Phase, Tenant};
use blastbox_images::{Image, Language};
use blastbox_isolation::tiers::interpreter;
use blastbox_policy::TierChoice;
use blastbox_wire::BoxId;
use blastbox_wire::receipt::Receipt;

use super::Recipe;
use super::http::Seat;
use super::notebook::Notebooks;
use crate::Trouble;
use crate::trouble::line;

/// Boxes of one session, so that a model in a loop fills no machine.
const MOST: usize = 8;

/// What a tool says when it cannot do what was asked: for the model to read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

impl From<Trouble> for Refused {
    fn from(trouble: Trouble) -> Self {
        Self(format!("{} ({})", line(&trouble), trouble.code()))
    }
}

impl From<blastbox_engine::keeper::KeepError> for Refused {
    fn from(error: blastbox_engine::keeper::KeepError) -> Self {
        Trouble::from(error).into()
    }
}

impl From<blastbox_engine::FileError> for Refused {
    fn from(error: blastbox_engine::FileError) -> Self {
        Trouble::from(error).into()
    }
}

/// Whose a box of `start_box` is.
#[derive(Debug)]
pub(crate) enum Scope {
    /// The session's: it goes with it.
    Session,
    /// The tenant's: it stays, and every session of the tenant may use it.
    Tenant {
        #[expect(dead_code, reason = "held for as long as the session is there")]
        seat: Seat,
        /// What all sessions of the tenant share.
        notebooks: Arc<Notebooks>,
        /// The boxes of `start_box`, of all its sessions. What the tenant has made in another way, over REST or through
        /// the face of E2B, is no business of a model that may have read anything.
        made: Arc<Made>,
    },
}

/// The boxes that sessions of one tenant have made for all of them.
#[derive(Debug, Default)]
pub(crate) struct Made(Mutex<BTreeSet<BoxId>>);

impl Made {
    fn all(&self) -> MutexGuard<'_, BTreeSet<BoxId>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The boxes of one session, and how further ones are made.
pub(crate) struct Desk {
    pub(crate) keeper: Keeper,
    pub(crate) tenant: Tenant,
    image: Arc<Image>,
    recipe: Recipe,
    scope: Scope,
    /// Held while the session's own box is made, so that two calls at once do not make two.
    own: tokio::sync::Mutex<Option<BoxId>>,
    /// Held while any box is made, so that many calls at once do not all find room for the last one.
    making: tokio::sync::Mutex<()>,
    boxes: Mutex<BTreeSet<BoxId>>,
    /// Interpreters that remember.
    pub(crate) notebooks: Arc<Notebooks>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl Desk {
    pub(crate) fn new(
        keeper: Keeper,
        tenant: Tenant,
        image: Arc<Image>,
        recipe: Recipe,
        scope: Scope,
    ) -> Self {
        let (own, making, boxes) = Default::default();
        let notebooks = match &scope {
            Scope::Session => Arc::default(),
            Scope::Tenant { notebooks, .. } => Arc::clone(notebooks),
        };
        Self { keeper, tenant, image, recipe, scope, own, making, boxes, notebooks }
    }

    fn boxes(&self) -> MutexGuard<'_, BTreeSet<BoxId>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The box that is meant: one of this session's, or its own, which is made where there is none (any more).
    pub(crate) async fn find(&self, named: Option<&str>) -> Result<BoxId, Refused> {
        let Some(name) = named else {
            let mut own = self.own.lock().await;
            if let Some(id) = own.as_ref().filter(|id| self.lives(id)) {
                return Ok(id.clone());
            }
            let card = self.make().await?;
            *own = Some(card.id.clone());
            return Ok(card.id);
        };
        let known = name.parse().ok().filter(|id| self.boxes().contains(id) || self.shares(id));
        known.ok_or_else(|| {
            Refused(format!("there is no box {name:?} in this session; `list_boxes` tells which there are"))
        })
    }

    /// The session's own box, where there is one.
    pub(crate) async fn own(&self) -> Option<BoxId> {
        self.own.lock().await.clone().filter(|id| self.lives(id))
    }

    /// Whether a box is one that any session of the tenant may use: one of `start_box`, and nothing else.
    fn shares(&self, id: &BoxId) -> bool {
        match &self.scope {
            Scope::Session => false,
            Scope::Tenant { made, .. } => made.all().contains(id) && self.lives(id),
        }
    }

    pub(crate) fn lives(&self, id: &BoxId) -> bool {
        self.keeper
            .get(&self.tenant, id)
            .is_ok_and(|(card, _)| !matches!(card.phase, Phase::Ending | Phase::Gone))
    }

    /// Makes another box, for every session that may share it.
    pub(crate) async fn start(&self) -> Result<BoxCard, Refused> {
        let card = self.make().await?;
        if let Scope::Tenant { made, .. } = &self.scope {
            let known: Vec<BoxId> = made.all().iter().cloned().collect();
            let gone: Vec<BoxId> = known.into_iter().filter(|id| !self.lives(id)).collect();
            let mut made = made.all();
            made.retain(|id| !gone.contains(id));
            made.insert(card.id.clone());
        }
        Ok(card)
    }

    async fn make(&self) -> Result<BoxCard, Refused> {
        let _one_at_a_time = self.making.lock().await;
        // Those that ended by themselves count no more.
        let known: Vec<BoxId> = self.boxes().iter().cloned().collect();
        let gone: Vec<BoxId> = known.into_iter().filter(|id| !self.lives(id)).collect();
        {
            let mut boxes = self.boxes();
            boxes.retain(|id| !gone.contains(id));
            if boxes.len() >= MOST {
                return Err(Refused(format!(
                    "this session has {MOST} boxes, which is all it may have; stop one"
                )));
            }
        }
        let new = (self.recipe)().map_err(Refused)?;
        let card = self.keeper.create(&self.tenant, new).await?;
        self.boxes().insert(card.id.clone());
        Ok(card)
    }

    /// Ends a box, and tells what it came to.
    pub(crate) async fn stop(&self, id: &BoxId) -> Result<Receipt, Refused> {
        self.boxes().remove(id);
        if let Scope::Tenant { made, .. } = &self.scope {
            made.all().remove(id);
        }
        Ok(self.keeper.kill(&self.tenant, id).await?)
    }

    /// Every box that may be used here and lives, with what runs in it.
    pub(crate) fn list(&self) -> Vec<(BoxCard, Vec<ExecCard>)> {
        let mut ids = self.boxes().clone();
        if let Scope::Tenant { made, .. } = &self.scope {
            ids.extend(made.all().iter().cloned());
        }
        ids.iter().filter_map(|id| self.keeper.get(&self.tenant, id).ok()).collect()
    }

    /// The boxes that go with the session.
    fn take_along(&mut self) -> Vec<BoxId> {
        let own = self.own.get_mut().take();
        let boxes = std::mem::take(self.boxes.get_mut().unwrap_or_else(PoisonError::into_inner));
        match self.scope {
            Scope::Session => boxes.into_iter().collect(),
            Scope::Tenant { .. } => own.into_iter().collect(),
        }
    }

    /// The program that reads a language from standard input, in this box.
    pub(crate) fn interpreter(&self, id: &BoxId, language: Language) -> Result<Vec<String>, Refused> {
        let (card, _) = self.keeper.get(&self.tenant, id)?;
        let tier = TierChoice::Exactly(card.tier);
        interpreter(tier, &self.image, language).map_err(|error| Refused(line(&error)))
    }
}

impl Drop for Desk {
    /// The session is over: so are its boxes. Where no runtime is left, the keeper that ends takes them.
    fn drop(&mut self) {
        let (ids, keeper, tenant) = (self.take_along(), self.keeper.clone(), self.tenant.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for id in ids {
                    // One that ended by itself is gone already.
                    keeper.kill(&tenant, &id).await.ok();
                }
            });
        }
    }
}
