//! `[[pool.warm]]`: boxes that the operator says will be asked for, so that some of them wait from the start on.
//!
//! Trust: operator. What cannot be kept warm keeps the daemon from starting: a pool that silently stays empty would be found
//! when somebody waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use blastbox_engine::Command;
use blastbox_engine::keeper::{Preparation, WarmError};
use blastbox_images::Image;
use blastbox_policy::{Gap, Profile, SealedPolicy, ThreatLevel, TierChoice};
use serde::Deserialize;

use crate::caller::Reach;
use crate::config::{Internet, Roots};
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
    /// What that kernel has imported by then.
    imports: Vec<String>,
    /// A command that has come to its end, with 0, in each box that waits: once for all of them where they are machines.
    prewarm: Vec<String>,
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

/// What boxes of a template have begun while they wait, as far as the operator says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Begins {
    pub(crate) kernel: Option<WarmKernel>,
    pub(crate) imports: Vec<String>,
    pub(crate) prewarm: Vec<String>,
}

/// Modules that a kernel may have imported.
const MOST_IMPORTS: usize = 64;

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
        let Begins { kernel, imports, prewarm } = self.begins();
        let alone = Self {
            min: self.min,
            template: self.template.clone(),
            kernel,
            imports,
            prewarm,
            ..Self::default()
        };
        self.template.is_some() && *self != alone
    }

    fn begins(&self) -> Begins {
        Begins { kernel: self.kernel, imports: self.imports.clone(), prewarm: self.prewarm.clone() }
    }

    /// Whether what it says of imports is of no kernel, or no module has such a name.
    pub(crate) fn has_bad_imports(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte);
        let named = |name: &String| (1..=128).contains(&name.len()) && name.bytes().all(plain);
        let bad = self.imports.len() > MOST_IMPORTS || !self.imports.iter().all(named);
        bad || (self.kernel == Some(WarmKernel::None) && !self.imports.is_empty())
    }

    /// Whether it says which kernel runs in boxes of no template.
    pub(crate) fn has_stray_kernel(&self) -> bool {
        self.template.is_none() && (self.kernel.is_some() || !self.imports.is_empty())
    }

    /// What it says of what the boxes of a template begin.
    pub(crate) fn begins_of(&self) -> Option<(String, Begins)> {
        let begins = self.begins();
        Some((self.template.clone()?, begins)).filter(|(_, begins)| *begins != Begins::default())
    }

    /// Opens the image, so not on a thread that others wait for.
    fn open(
        self,
        images: &Gallery,
        internet: Internet,
        begins: &BTreeMap<String, Begins>,
    ) -> Result<Opened, String> {
        if let Some(template) = &self.template {
            return e2b::warm(template, images, internet, begins);
        }
        let Self {
            min: _,
            template: _,
            kernel: _,
            imports: _,
            prewarm,
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
        let new = wanted.map_err(|trouble: Trouble| line(&trouble))?;
        let first = (!prewarm.is_empty()).then(|| first(prewarm)).transpose()?;
        Ok((new.policy, new.image, first.map(|first| Preparation::after(first, None))))
    }
}

impl Hall {
    /// What E2B's SDKs have here beside sandboxes, in one line for the operator.
    pub fn offers(&self) -> String {
        // Not asked of an image: that may take minutes where its sandboxes are machines, and nobody is served before.
        let root = match self.roots_of_boxes {
            Roots::Nowhere => "off",
            Roots::InJails => "on where a jail can have a root",
            Roots::Ordered => "on",
        };
        let word = |on: bool| if on { "on" } else { "off" };
        format!(
            "sandboxes of E2B's SDKs: sudo {root}, template builds {}, secrets {}, volumes {}",
            word(self.builds.is_some()),
            word(self.secrets.is_some()),
            word(self.volumes.is_some())
        )
    }

    /// Has boxes of these kinds wait from now on.
    pub async fn keep_warm(&self, warm: Vec<(WarmText, usize)>) -> Result<(), NotWarm> {
        for (index, (text, least)) in warm.into_iter().enumerate() {
            let kept = self.keep_one_warm(text, least).await;
            kept.map_err(|why| NotWarm { number: index + 1, why })?;
        }
        Ok(())
    }

    async fn keep_one_warm(&self, text: WarmText, least: usize) -> Result<(), String> {
        let is_sandbox = text.template.is_some();
        let (images, internet) = (Arc::clone(&self.images), self.internet);
        let begins = Arc::clone(&self.begins);
        let open = move || text.open(&images, internet, &begins);
        let opened = tokio::task::spawn_blocking(open).await;
        let (policy, image, preparation) =
            opened.unwrap_or_else(|_| Err("it could not be opened".to_owned()))?;
        let policy = match is_sandbox {
            // As those get it that are asked for, or none of them would ever come from here.
            true => {
                let settled = e2b::settle(&self.keeper, self.roots_of_boxes, policy, &image).await;
                settled.map_err(|error| line(&error))?
            }
            false => policy,
        };
        let kept = self.keeper.keep_warm(policy, image, preparation, least).await;
        kept.map_err(|error: WarmError| line(&error))
    }
}

/// The command that boxes have run while they wait, started as any command of theirs is.
pub(crate) fn first(prewarm: Vec<String>) -> Result<Command, String> {
    let asked = ask::NewExec { command: prewarm, ..ask::NewExec::default() };
    let checked = asked.check().map_err(|trouble| format!("`prewarm`: {}", line(&trouble)))?;
    Ok(checked.start(crate::start_place::HOME).0)
}
