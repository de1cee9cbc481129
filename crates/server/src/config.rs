//! The daemon's configuration file: how much is given away, to whom, and which images have names.
//!
//! Trust: operator. A key that nobody knows is an error with its place, so that a misspelt quota is never silently off.

mod e2b;
mod pool;
mod shares;

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};

use blastbox_engine::keeper::{KeeperConfig, Tenant};
use serde::Deserialize;
use toml::Spanned;

pub(crate) use self::e2b::Builds;
use self::e2b::{E2b, check_templates, is_domain};
pub use self::e2b::{Https, Internet, Roots, Shape};
use self::pool::{Pool, SHORTEST_TTL};
use self::shares::{Host, ModulesText, Share, SnapshotText};
use crate::door::Patience;
use crate::e2b::{SecretLimits, VolumeLimits};
use crate::modules::ModuleLimits;
use crate::outbound::{Orders, OtlpText, SinkText, WebhookText};
use crate::warm::WarmText;

/// The longest configuration that is read.
pub const MAX_CONFIG_TEXT: usize = 1024 * 1024;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is longer than any honest one.
    #[error("the configuration has {length} bytes; at most {MAX_CONFIG_TEXT} are read")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// It is not what a configuration is; the parser says where.
    #[error("{0}")]
    Toml(String),
    /// A name that no tenant can have.
    #[error("{table}.{name}: {source}")]
    Tenant {
        /// Where it stands.
        table: &'static str,
        /// The name, cut.
        name: String,
        /// Why not.
        #[source]
        source: blastbox_engine::keeper::BadTenant,
    },
    /// An image with a name that means something else, or with a path that is not absolute.
    #[error("images.{name}: write an absolute path, and another name than `host` or a path")]
    Image {
        /// The name.
        name: String,
    },
    /// A directory that tenants cannot be given.
    #[error(
        "workspaces.{tenant}: {path} is no root of workspaces; write an absolute path without `..`, and not `/`"
    )]
    Root {
        /// Whose it would be.
        tenant: String,
        /// What is there.
        path: PathBuf,
    },
    /// A web page that no browser would name so.
    #[error(
        "doors.origins: {origin:?} is no origin; write one as a browser does, such as \"https://console.example\""
    )]
    Origin {
        /// What is there.
        origin: String,
    },
    /// A domain that no name can end in.
    #[error("e2b.domain: {domain:?} is no domain; write one such as \"sbx.localhost:7080\"")]
    Domain {
        /// What is there.
        domain: String,
    },
    /// A door with TLS that cannot be built.
    #[error("e2b.https: {0}")]
    Https(String),
    /// Doors that let nobody in.
    #[error("doors: connections and tenant_connections are at least 1")]
    Doors,
    /// Two sinks that would take each other's place in the ledger, or write one file.
    #[error(
        "line {line}: sinks.{name}: {what} belongs to the sink before it as well; give it one of its own"
    )]
    Twins {
        /// Where the second begins.
        line: usize,
        /// Its name.
        name: String,
        /// What they share.
        what: &'static str,
    },
    /// A pool whose least is more than its most.
    #[error("pool: min is more than max")]
    Pool,
    /// A pool whose members would be made again and again.
    #[error("pool.ttl: members wait for at least {} s; write `max = 0` for no pool", SHORTEST_TTL.as_secs())]
    PoolTtl,
    /// A host that the steps of a build cannot be given.
    #[error("e2b.builds.allow: {0}")]
    Builds(String),
    /// A template that cannot be had.
    #[error("e2b.templates.{name}: {why}")]
    Template {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Boxes that should wait and cannot.
    #[error("pool.warm: {0}")]
    Warm(&'static str),
}

/// A configuration, read and checked. Without a file it is what an empty one says.
#[derive(Debug)]
pub struct Config {
    /// What the keeper may give away.
    pub keeper: KeeperConfig,
    /// Boxes of which some wait from the start on, and how many.
    pub warm: Vec<(WarmText, usize)>,
    /// Images that everybody may name.
    pub images: BTreeMap<String, PathBuf>,
    /// Directories that a tenant with a key may name as workspaces, with what lies beneath them.
    pub roots: BTreeMap<Tenant, Vec<PathBuf>>,
    /// How many may come in at the same time.
    pub patience: Patience,
    /// Web pages that may ask.
    pub origins: Vec<String>,
    /// What is sent by itself.
    pub orders: Orders,
    /// What sandboxes of E2B's SDKs reach where their owner does not say.
    pub internet: Internet,
    /// Which of E2B's sandboxes have a root.
    pub roots_of_boxes: Roots,
    /// What builds of their templates may do. `None`: the operator wants none.
    pub builds: Option<Builds>,
    /// What tenants may have of volumes. `None`: there are none, unless the operator asks for them.
    pub volumes: Option<VolumeLimits>,
    /// What tenants may have of secrets. `None`: the operator wants none.
    pub secrets: Option<SecretLimits>,
    /// What tenants may keep of modules. `None`: the operator wants none.
    pub modules: Option<ModuleLimits>,
    /// The domain in the names of their ports, such as `sbx.localhost:7080`.
    pub domain: Option<String>,
    /// A door with TLS for these names.
    pub https: Option<Https>,
    /// Templates that are more than an image of their name.
    pub templates: BTreeMap<String, Shape>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Text {
    doors: Doors,
    sinks: Vec<Spanned<SinkText>>,
    webhook: Option<WebhookText>,
    otlp: Option<OtlpText>,
    host: Host,
    default_quota: Share,
    quotas: BTreeMap<String, Share>,
    pool: Pool,
    snapshots: SnapshotText,
    modules: ModulesText,
    images: BTreeMap<String, PathBuf>,
    workspaces: BTreeMap<String, Vec<PathBuf>>,
    e2b: E2b,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Doors {
    connections: Option<usize>,
    tenant_connections: Option<usize>,
    origins: Vec<String>,
}

impl Config {
    /// Reads a configuration. What it does not mention is what this host can give.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.len() > MAX_CONFIG_TEXT {
            return Err(ConfigError::TooLong { length: text.len() });
        }
        let Text {
            doors,
            sinks,
            webhook,
            otlp,
            host,
            default_quota,
            quotas,
            pool,
            snapshots,
            modules,
            images,
            workspaces,
            e2b,
        } = toml::from_str(text).map_err(|error| ConfigError::Toml(in_one_line(text, &error)))?;
        let mut keeper = KeeperConfig::default();
        host.apply(&mut keeper);
        keeper.tenant_default = default_quota.over(keeper.tenant_default);
        for (name, share) in quotas {
            let tenant: Tenant =
                name.parse().map_err(|source| ConfigError::Tenant { table: "quotas", name, source })?;
            let quota = share.over(keeper.tenant_default);
            keeper.quotas.insert(tenant, quota);
        }
        let warm = pool.apply(&mut keeper.pool)?;
        snapshots.apply(&mut keeper.snapshots);
        if let Some((name, _)) = images.iter().find(|(name, path)| {
            *name == "host" || name.is_empty() || name.contains('/') || !path.is_absolute()
        }) {
            return Err(ConfigError::Image { name: name.clone() });
        }
        let roots = workspaces.into_iter().map(roots_of).collect::<Result<_, _>>()?;
        let mut patience = Patience::default();
        set(&mut patience.connections, doors.connections);
        set(&mut patience.per_tenant, doors.tenant_connections);
        if patience.connections == 0 || patience.per_tenant == 0 {
            return Err(ConfigError::Doors);
        }
        if let Some(origin) = doors.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(ConfigError::Origin { origin: origin.clone() });
        }
        let E2b { internet, domain, root, builds, volumes, secrets, https, templates } = e2b;
        check_templates(&templates)?;
        let roots_of_boxes = Roots::from(root);
        let builds = builds.check(roots_of_boxes)?;
        if let Some(domain) = domain.iter().find(|domain| !is_domain(domain)) {
            return Err(ConfigError::Domain { domain: domain.clone() });
        }
        let https = https.map(|https| https.check(domain.as_deref())).transpose()?;
        let orders = Orders::new(each_its_own(text, sinks)?, webhook, otlp);
        Ok(Self {
            keeper,
            warm,
            images,
            roots,
            patience,
            origins: doors.origins,
            orders,
            internet,
            builds,
            volumes: volumes.and_then(|volumes| volumes.limits()),
            secrets: secrets.limits(),
            modules: modules.limits(),
            domain,
            https,
            roots_of_boxes,
            templates,
        })
    }
}

/// Sinks that share a name would share the note of what was acknowledged: what one has, the other would never get.
fn each_its_own(text: &str, sinks: Vec<Spanned<SinkText>>) -> Result<Vec<SinkText>, ConfigError> {
    let mut taken: Vec<SinkText> = Vec::new();
    for sink in sinks {
        let begin = sink.span().start;
        let sink = sink.into_inner();
        let same_file = |other: &SinkText| sink.path().is_some() && other.path() == sink.path();
        let what = if taken.iter().any(|other| other.name() == sink.name()) {
            Some("its name")
        } else if taken.iter().any(same_file) {
            Some("its path")
        } else {
            None
        };
        if let Some(what) = what {
            let line = line_of(text, begin);
            return Err(ConfigError::Twins { line, name: sink.name().to_owned(), what });
        }
        taken.push(sink);
    }
    Ok(taken)
}

/// Directories of one tenant. The root of the host would be every directory of every other tenant as well.
fn roots_of((name, paths): (String, Vec<PathBuf>)) -> Result<(Tenant, Vec<PathBuf>), ConfigError> {
    let plain = |path: &&PathBuf| {
        path.is_absolute()
            && path.components().count() > 1
            && !path.components().any(|part| part == Component::ParentDir)
    };
    if let Some(path) = paths.iter().find(|path| !plain(path)) {
        return Err(ConfigError::Root { tenant: name, path: path.clone() });
    }
    let tenant = name.parse().map_err(|source| ConfigError::Tenant { table: "workspaces", name, source })?;
    Ok((tenant, paths))
}

/// Scheme, host and perhaps a port; neither a path nor a star.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte);
        !host.is_empty() && host.bytes().all(plain)
    })
}

fn line_of(text: &str, place: usize) -> usize {
    text.get(..place).unwrap_or_default().matches('\n').count() + 1
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// What is wrong and where: the parser's own text draws a picture of several lines.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let place = error.span().map_or(0, |span| span.start);
    let before = text.get(..place).unwrap_or_default();
    let line = line_of(text, place);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", error.message().replace('\n', "; "))
}

#[cfg(test)]
mod tests;
