//! `[[pool.warm]]`: boxes that the operator says will be asked for, so that some of them wait from the start on.
//!
//! Trust: operator. What cannot be kept warm keeps the daemon from starting: a pool that silently stays empty would be found
//! when somebody waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use blastbox_engine::keeper::{Keeper, Preparation, WarmError};
use blastbox_images::Image;
use blastbox_policy::{BoxRoot, Gap, Profile, SealedPolicy, ThreatLevel, TierChoice};
use serde::Deserialize;

use crate::caller::Reach;
use crate::config::Internet;
use crate::gallery::Gallery;
use crate::trouble::line;
use crate::{Hall, Trouble, ask, e2b};

/// A kind of box, in the words of `POST /v1/boxes`, or the template of an E2B sandbox.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmText {
    /// How many wait at least [default: `pool.min`, and 1 where that is 0].
    pub(crate) min: Option<usize>,
    /// The template of an E2B sandbox; nothing else but `kernel` stands beside it.
    template: Option<String>,
    /// What its boxes have begun while they wait [default: `python` for the code interpreter's].
    kernel: Option<WarmKernel>,
    profile: Option<Profile>,
    policy: Option<String>,
    threat: Option<ThreatLevel>,
    tier: Option<TierChoice>,
    accept: Vec<Gap>,
    limits: ask::Limits,
    image: Option<String>,
    loopback: bool,
}

/// An interpreter that runs already when its box is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmKernel {
    /// Python's.
    Python,
    /// The first piece of code starts one.
    None,
}

type Opened = (SealedPolicy, Arc<Image>, Option<Preparation>);

/// Why boxes are not kept warm.
#[derive(Debug, thiserror::Error)]
#[error("the configuration's pool.warm, entry {number}: {why}")]
pub struct NotWarm {
    /// Which one, from 1.
    pub number: usize,
    /// What is wrong with it, in a sentence.
    pub why: String,
}

impl WarmText {
    /// Whether it is a template and something else.
    pub(crate) fn is_mixed(&self) -> bool {
        let (template, kernel) = (self.template.clone(), self.kernel);
        let alone = Self { min: self.min, template, kernel, ..Self::default() };
        self.template.is_some() && *self != alone
    }

    /// Whether it says which kernel runs in boxes of no template.
    pub(crate) fn has_stray_kernel(&self) -> bool {
        self.template.is_none() && self.kernel.is_some()
    }

    /// What it says of the kernel of a template.
    pub(crate) fn kernel_of(&self) -> Option<(String, WarmKernel)> {
        Some((self.template.clone()?, self.kernel?))
    }

    /// Opens the image, so not on a thread that others wait for.
    fn open(
        self,
        images: &Gallery,
        internet: Internet,
        root: BoxRoot,
        kernels: &BTreeMap<String, WarmKernel>,
    ) -> Result<Opened, String> {
        if let Some(template) = &self.template {
            return e2b::warm(template, images, internet, root, kernels);
        }
        let Self {
            min: _,
            template: _,
            kernel: _,
            profile,
            policy,
            threat,
            tier,
            accept,
            limits,
            image,
            loopback,
        } = self;
        let asked = ask::NewBox {
            profile,
            policy,
            threat,
            tier,
            accept,
            limits,
            image,
            loopback,
            ..ask::NewBox::default()
        };
        let wanted = asked.one_source().and_then(|()| asked.check(Reach::Host, images, &[]));
        wanted.map(|new| (new.policy, new.image, None)).map_err(|trouble: Trouble| line(&trouble))
    }
}

impl Hall {
    /// Has boxes of these kinds wait from now on.
    pub async fn keep_warm(&self, warm: Vec<(WarmText, usize)>) -> Result<(), NotWarm> {
        for (index, (text, least)) in warm.into_iter().enumerate() {
            let (images, internet, root) = (Arc::clone(&self.images), self.internet, self.root);
            let kernels = Arc::clone(&self.kernels);
            let open = move || text.open(&images, internet, root, &kernels);
            let opened = tokio::task::spawn_blocking(open).await;
            let opened = opened.unwrap_or_else(|_| Err("it could not be opened".to_owned()));
            let kept = match opened {
                Ok(opened) => keep(&self.keeper, opened, least).await,
                Err(why) => Err(why),
            };
            kept.map_err(|why| NotWarm { number: index + 1, why })?;
        }
        Ok(())
    }
}

async fn keep(keeper: &Keeper, opened: Opened, least: usize) -> Result<(), String> {
    let (policy, image, preparation) = opened;
    keeper.keep_warm(policy, image, preparation, least).await.map_err(|error: WarmError| line(&error))
}
