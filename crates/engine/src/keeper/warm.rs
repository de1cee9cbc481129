//! Kinds of boxes that somebody said in advance would be asked for: some of them wait from the daemon's start on.

use std::sync::Arc;

use blastbox_images::Image;
use blastbox_policy::{Refusal, SealedPolicy, SurvivesDaemon, Tier};

use super::face::Keeper;
use super::make::need_of;
use super::member::{Kind, Recipe};
use super::prepare::Preparation;
use crate::error::CreateError;

/// Kinds that can be kept warm from the start. The rest of what a pool remembers is for those that are asked for.
pub const MOST_WARM: usize = 32;

/// Why boxes of a kind cannot be kept warm.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// blastbox worked, and the answer is no: such a box is made for nobody.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// It could not be found out what such a box would be.
    #[error("it cannot be found out which tier such a box has")]
    Choose(#[source] CreateError),
    /// Such a box is never made before somebody asks for it.
    #[error(
        "such a box is made only when somebody asks for it: its policy lends secrets, it is to outlive its daemon, or its image is a directory, which its owner may change"
    )]
    NotPooled,
    /// More than a pool holds.
    #[error("{least} boxes are more than a pool holds (`pool.max` is {most})")]
    TooMany {
        /// How many should wait.
        least: usize,
        /// How many may.
        most: usize,
    },
    /// More than the host is given for.
    #[error(
        "the boxes that wait always, this kind and those before it, are more than `host.{limit}` allows: lower a `min`, or raise that limit"
    )]
    NoRoom {
        /// The limit that they are over.
        limit: &'static str,
    },
    /// More kinds than are kept warm.
    #[error("more than {MOST_WARM} kinds of boxes are kept warm")]
    TooManyKinds,
}

impl Keeper {
    /// Which tier a box with this policy would have here. `None`: it would be refused, or nobody can say.
    pub async fn tier_of(&self, policy: &SealedPolicy, image: &Image) -> Option<Tier> {
        let choice = self.0.engine.choose(policy, image, None, &[]).await.ok()?;
        choice.chosen.ok().map(|lowered| lowered.tier)
    }

    /// From now on so many boxes of this kind wait, as long as the host has room: whoever asks for another kind gets that room.
    /// They are made in the background. Refused where the host's limits could not hold all that waits always.
    pub async fn keep_warm(
        &self,
        policy: SealedPolicy,
        image: Arc<Image>,
        preparation: Option<Preparation>,
        least: usize,
    ) -> Result<(), WarmError> {
        let pool = &self.0.pool;
        if least > pool.most() {
            return Err(WarmError::TooMany { least, most: pool.most() });
        }
        if policy.lifetime().survives_daemon == SurvivesDaemon::Yes {
            return Err(WarmError::NotPooled);
        }
        let choice = self.0.engine.choose(&policy, &image, None, &[]).await.map_err(WarmError::Choose)?;
        let lowered = choice.chosen.map_err(WarmError::Refused)?;
        let kind =
            Kind::of(&image, &policy, lowered.tier, preparation.as_ref()).ok_or(WarmError::NotPooled)?;
        let before = pool.floors().into_iter();
        let rest = before.filter(|(other, ..)| *other != kind).map(|(_, need, floor)| (need, floor));
        let all = rest.chain([(need_of(&policy), least)]);
        self.0.admission.could_hold(all).map_err(|limit| WarmError::NoRoom { limit })?;
        let (tier, copied) = (lowered.tier, lowered.copies.is_some());
        let recipe = Recipe { policy, image, tier, copied, preparation };
        if pool.keep(kind, recipe, least) { Ok(()) } else { Err(WarmError::TooManyKinds) }
    }
}
