//! `[e2b]`: what the operator says of sandboxes that E2B's SDKs ask for.

use std::collections::BTreeMap;

use blastbox_policy::{BoxRoot, Bytes, Cpus, Gap, Profile, TierChoice};
use serde::Deserialize;

use super::ConfigError;
use crate::e2b::{Reaches, reached_by_builds, seals};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct E2b {
    pub(super) internet: Internet,
    pub(super) domain: Option<String>,
    pub(super) root: BoxRoot,
    pub(super) builds: Option<BuildsText>,
    pub(super) templates: BTreeMap<String, Shape>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BuildsText {
    allow: Vec<String>,
    root: Option<BoxRoot>,
}

impl BuildsText {
    /// Steps have a root where sandboxes have one, unless it is said otherwise.
    pub(super) fn check(self, of_sandboxes: BoxRoot) -> Result<Builds, ConfigError> {
        let reaches = reached_by_builds(&self.allow).map_err(ConfigError::Builds)?;
        Ok(Builds { reaches, root: self.root.unwrap_or(of_sandboxes) })
    }
}

/// What builds of templates may do.
#[derive(Debug, Clone, Default)]
pub struct Builds {
    pub(crate) reaches: Reaches,
    /// Whether steps may be root of their boxes.
    pub(crate) root: BoxRoot,
}

/// What sandboxes reach whose owner wants "the internet", or says nothing about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Internet {
    /// What its owner names, and nothing where nothing is named. `allow_internet_access: true` is refused.
    #[default]
    Closed,
    /// As with E2B: everything public, unless its owner says otherwise.
    DangerouslyOpen,
}

/// A host of at least one label, and perhaps a port.
pub(super) fn is_domain(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    host.len() <= 200 && host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// `[e2b.templates.NAME]`: what sandboxes of a template are made of, where that is more than an image of its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// An image that the operator named or put into the store [default: the one of the template's name].
    pub(crate) image: Option<String>,
    /// The policy that sandboxes get the size and network of E2B's in.
    pub(crate) profile: Profile,
    /// The kernel boundary [default: the profile's].
    pub(crate) tier: Option<TierChoice>,
    /// Weaknesses that are accepted by name, beside the profile's.
    pub(crate) accept: Vec<Gap>,
    /// Memory of a sandbox [default: 1 GiB]. Half of it, and at most 512 MiB, is room for files.
    pub(crate) memory: Option<Bytes>,
    /// Processors of a sandbox [default: 1].
    pub(crate) cpus: Option<Cpus>,
}

/// Whether each is a name that can be asked for, with a policy that can be had.
pub(super) fn check_templates(templates: &BTreeMap<String, Shape>) -> Result<(), ConfigError> {
    for (name, shape) in templates {
        let bad = |why: String| ConfigError::Template { name: name.clone(), why };
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 128 || name == "host" || !name.bytes().all(plain) {
            return Err(bad("a template is called by a-z, 0-9, `-`, `_` and `.`, and not `host`".to_owned()));
        }
        seals(shape).map_err(bad)?;
    }
    Ok(())
}
