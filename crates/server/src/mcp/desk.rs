//! The boxes of one session.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::{BoxCard, ExecCard, Keeper, Phase, Tenant};
use blastbox_images::{Image, Language};
use blastbox_wire::BoxId;
use blastbox_wire::receipt::Receipt;

use super::Recipe;
use super::notebook::Notebook;
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

/// The boxes of one session, and how further ones are made.
pub(crate) struct Desk {
    pub(crate) keeper: Keeper,
    pub(crate) tenant: Tenant,
    /// What its boxes may do, in words.
    pub(crate) policy: String,
    image: Image,
    recipe: Recipe,
    /// Held while the session's own box is made, so that two calls at once do not make two.
    own: tokio::sync::Mutex<Option<BoxId>>,
    boxes: Mutex<BTreeSet<BoxId>>,
    /// Pythons that remember, one a box. Held by the call that uses it.
    notebooks: tokio::sync::Mutex<BTreeMap<BoxId, Notebook>>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl Desk {
    pub(crate) fn new(keeper: Keeper, tenant: Tenant, policy: String, image: Image, recipe: Recipe) -> Self {
        let (own, boxes, notebooks) = Default::default();
        Self { keeper, tenant, policy, image, recipe, own, boxes, notebooks }
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
            let card = self.start().await?;
            *own = Some(card.id.clone());
            return Ok(card.id);
        };
        let known = name.parse().ok().filter(|id| self.boxes().contains(id));
        known.ok_or_else(|| {
            Refused(format!("there is no box {name:?} in this session; `list_boxes` tells which there are"))
        })
    }

    fn lives(&self, id: &BoxId) -> bool {
        self.keeper
            .get(&self.tenant, id)
            .is_ok_and(|(card, _)| !matches!(card.phase, Phase::Ending | Phase::Gone))
    }

    /// Makes another box.
    pub(crate) async fn start(&self) -> Result<BoxCard, Refused> {
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
        self.notebooks.lock().await.remove(id);
        Ok(self.keeper.kill(&self.tenant, id).await?)
    }

    /// Every box of this session that lives, with what runs in it.
    pub(crate) fn list(&self) -> Vec<(BoxCard, Vec<ExecCard>)> {
        let ids: Vec<BoxId> = self.boxes().iter().cloned().collect();
        ids.iter().filter_map(|id| self.keeper.get(&self.tenant, id).ok()).collect()
    }

    /// The session is over: so are its boxes.
    pub(crate) async fn clear(&self) {
        let ids: Vec<BoxId> = std::mem::take(&mut *self.boxes()).into_iter().collect();
        for id in ids {
            // One that ended by itself is gone already.
            self.keeper.kill(&self.tenant, &id).await.ok();
        }
    }

    /// The program that reads a language from standard input.
    pub(crate) fn interpreter(&self, language: Language) -> Result<Vec<String>, Refused> {
        self.image.find_interpreter(language).map_err(|error| Refused(line(&error)))
    }

    /// The Pythons that remember.
    pub(crate) async fn notebooks(&self) -> tokio::sync::MutexGuard<'_, BTreeMap<BoxId, Notebook>> {
        self.notebooks.lock().await
    }
}
