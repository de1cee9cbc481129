//! `[e2b]`: what the operator says of sandboxes that E2B's SDKs ask for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use blastbox_policy::{BoxRoot, Bytes, Cpus, Gap, Profile, TierChoice};
use serde::Deserialize;

use super::ConfigError;
use crate::door::TcpAddress;
use crate::e2b::{Reaches, SecretLimits, VolumeLimits, reached_by_builds, seals};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct E2b {
    pub(super) internet: Internet,
    pub(super) domain: Option<String>,
    pub(super) root: Option<BoxRoot>,
    pub(super) builds: BuildsText,
    pub(super) volumes: Option<VolumesText>,
    pub(super) secrets: SecretsText,
    pub(super) https: Option<HttpsText>,
    pub(super) templates: BTreeMap<String, Shape>,
}

/// Which sandboxes have a root of their own: `sudo`, and `user="root"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Roots {
    /// None of them.
    Nowhere,
    /// Those that are in a jail anyway, on a host where a jail can have one: nobody gets a weaker boundary for it, and nobody is
    /// refused because of it, but where all 4,096 blocks of ids are taken.
    #[default]
    InJails,
    /// All that may be in a jail, and where there can be none they are refused: the operator has asked for it.
    Ordered,
}

impl From<Option<BoxRoot>> for Roots {
    fn from(said: Option<BoxRoot>) -> Self {
        match said {
            None => Self::InJails,
            Some(BoxRoot::None) => Self::Nowhere,
            Some(BoxRoot::Allowed) => Self::Ordered,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BuildsText {
    enabled: Option<bool>,
    allow: Vec<String>,
    root: Option<BoxRoot>,
}

impl BuildsText {
    /// Steps have a root where sandboxes have one, unless it is said otherwise.
    pub(super) fn check(self, of_sandboxes: Roots) -> Result<Option<Builds>, ConfigError> {
        let reaches = reached_by_builds(&self.allow).map_err(ConfigError::Builds)?;
        let roots = self.root.map_or(of_sandboxes, |said| Some(said).into());
        Ok(self.enabled.unwrap_or(true).then_some(Builds { reaches, roots }))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct VolumesText {
    enabled: Option<bool>,
    count: Option<usize>,
    size: Option<Bytes>,
}

impl VolumesText {
    pub(super) fn limits(&self) -> Option<VolumeLimits> {
        let size = self.size.unwrap_or(Bytes::mib(1_024)).0;
        let limits = VolumeLimits { count: self.count.unwrap_or(20), size };
        self.enabled.unwrap_or(true).then_some(limits)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SecretsText {
    enabled: Option<bool>,
    count: Option<usize>,
}

impl SecretsText {
    pub(super) fn limits(&self) -> Option<SecretLimits> {
        self.enabled.unwrap_or(true).then_some(SecretLimits { count: self.count.unwrap_or(100) })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpsText {
    listen: String,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl HttpsText {
    /// Names need a domain, and a certificate its key.
    pub(super) fn check(self, domain: Option<&str>) -> Result<Https, ConfigError> {
        let bad = |why: &str| ConfigError::Https(why.to_owned());
        let domain = domain.ok_or_else(|| bad("write e2b.domain too: the certificate is for its names"))?;
        let host = domain.split(':').next().unwrap_or_default().to_owned();
        let address = self.listen.parse().map_err(|error| ConfigError::Https(format!("listen: {error}")))?;
        let given = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(bad("certificate and key are written together, or neither")),
        };
        Ok(Https { address, host, given })
    }
}

/// A second door, with TLS, for names of sandboxes.
#[derive(Debug)]
pub struct Https {
    /// Where it listens.
    pub address: TcpAddress,
    /// What names end in.
    pub(crate) host: String,
    /// The operator's certificate and its key. `None`: of an authority of our own.
    pub(crate) given: Option<(PathBuf, PathBuf)>,
}

/// What builds of templates may do.
#[derive(Debug, Clone, Default)]
pub struct Builds {
    pub(crate) reaches: Reaches,
    /// Which steps may be root of their boxes.
    pub(crate) roots: Roots,
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
