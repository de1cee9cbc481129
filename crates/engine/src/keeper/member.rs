//! A box that waits in a pool: what makes two of them alike, and what is needed to make one.

use std::sync::Arc;
use std::time::SystemTime;

use blastbox_images::Image;
use blastbox_policy::{CredentialMode, PolicyDigest, SealedPolicy, Tier};
use blastbox_wire::event::Hash;
use tokio::time::Instant;

use super::admission::Room;
use super::prepare::{Preparation, Prepared};
use super::register::Entry;
use crate::live::LiveBox;

/// What makes two boxes alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// The host's view, or an image of the store with its digest.
    image: String,
    /// What the image says beside its files: a name may get another meaning and keep its tree.
    config: Option<Hash>,
    policy: PolicyDigest,
    tier: Tier,
    /// What its members have begun.
    preparation: Option<Hash>,
}

impl Kind {
    /// `None` where a box is not pooled: where secrets are lent, which are minted for one box when somebody asks for it, and
    /// where the image is a directory, which its owner may change between the member and the box that was asked for, or a module, which is
    /// one tenant's.
    pub(crate) fn of(
        image: &Image,
        policy: &SealedPolicy,
        tier: Tier,
        preparation: Option<&Preparation>,
    ) -> Option<Self> {
        let is_ones_own = matches!(image, Image::Directory(_) | Image::Module(_));
        if policy.credentials().mode == CredentialMode::Brokered || is_ones_own {
            return None;
        }
        let config = image.config_digest();
        let preparation = preparation.map(Preparation::digest);
        Some(Self { image: image.label(), config, policy: policy.digest(), tier, preparation })
    }

    /// A name for all of it.
    pub(crate) fn digest(&self) -> Hash {
        let Self { image, config, policy, tier, preparation } = self;
        let text = |hash: &Option<Hash>| hash.as_ref().map(ToString::to_string).unwrap_or_default();
        let words = [image, &text(config), &policy.to_string(), tier.as_str(), &text(preparation)];
        Hash::of_command(&words.map(|word| word.as_bytes().to_vec()))
    }

    /// The same boxes with nothing begun in them; `None`: these are such.
    pub(crate) fn unprepared(&self) -> Option<Self> {
        self.preparation.as_ref().map(|_| Self { preparation: None, ..self.clone() })
    }
}

/// A box that waits.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) live: LiveBox,
    pub(crate) entry: Entry,
    pub(crate) room: Room,
    pub(crate) asked: SystemTime,
    pub(crate) made: Instant,
    /// What it has begun, where its kind begins something.
    pub(crate) prepared: Option<Prepared>,
}

impl Member {
    /// Whether its agent, and what it has begun, answer as they should.
    pub(crate) async fn answers(&mut self) -> bool {
        let Self { live, prepared, .. } = self;
        let begun = async {
            match prepared {
                Some(prepared) => prepared.answers().await,
                None => true,
            }
        };
        let (agent, begun) = tokio::join!(live.answers(), begun);
        agent && begun
    }
}

/// What is needed to make a member.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) policy: SealedPolicy,
    pub(crate) image: Arc<Image>,
    pub(crate) tier: Tier,
    /// Whether the plan says that it may begin as a copy of a machine.
    pub(crate) copied: bool,
    /// What a member begins.
    pub(crate) preparation: Option<Preparation>,
}
