//! A box as a caller asks for it, and what the keeper is asked for then.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::WorkspaceDir;
use blastbox_engine::keeper::{DEFAULT_IDLE, DEFAULT_LIFE, NewBox as Wanted, OnTimeout, SnapshotId};
use blastbox_images::Image;
use blastbox_policy::{
    BoxRoot, Bytes, Cpus, Draft, Gap, Gpu, Loopback, NetworkMode, PolicyError, Profile, SealedPolicy,
    Seconds, ThreatLevel, TierChoice, Workspace, parse,
};
use blastbox_wire::plan::WorkspaceAccess;
use serde::{Deserialize, Serialize};

use super::optional_amount;
use crate::caller::Reach;
use crate::gallery::Gallery;
use crate::trouble::line;
use crate::{Hall, Internet, Trouble};

/// Longest life and idleness.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);
/// What an owner may write on a box.
const MOST_NOTES: usize = 64;
const LONGEST_NAME: usize = 64;
const LONGEST_NOTE: usize = 1024;

/// `POST /v1/boxes`. Everything may be left out: then it is the profile `default` on the image `host`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewBox {
    /// A policy that comes with blastbox. Only one of `profile`, `policy` and `threat`.
    pub profile: Option<Profile>,
    /// A policy of your own, as TOML.
    pub policy: Option<String>,
    /// How hostile the code is taken to be.
    pub threat: Option<ThreatLevel>,
    /// The kernel boundary.
    pub tier: Option<TierChoice>,
    /// Weaknesses that are accepted by name.
    pub accept: Vec<Gap>,
    /// Limits that go over those of the policy.
    pub limits: Limits,
    /// `host`, an image that the operator named or put into the store, or (at the socket) a directory; with the tier wasm `module:NAME`, one of
    /// `/v1/modules`.
    pub image: Option<String>,
    /// A directory of this host to work on: any at the socket, with a key what `[workspaces]` opens for its tenant.
    pub workspace: Option<WorkspaceAsk>,
    /// Whether the box has a loopback interface of its own.
    pub loopback: bool,
    /// What you write on it.
    pub metadata: BTreeMap<String, String>,
    /// How long it lives at most.
    #[serde(deserialize_with = "optional_amount")]
    pub life: Option<Seconds>,
    /// How long it lives without a command and without a request.
    #[serde(deserialize_with = "optional_amount")]
    pub idle: Option<Seconds>,
    /// What happens when either is over.
    pub on_timeout: OnTimeout,
    /// A snapshot to begin with. Its policy and image are the snapshot's: nothing else of them can be said.
    pub snapshot: Option<SnapshotId>,
}

/// How many boxes like one that runs.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Forks {
    /// So many; one where it is absent.
    pub count: Option<usize>,
    /// How long each lives at most.
    #[serde(deserialize_with = "optional_amount")]
    pub life: Option<Seconds>,
    /// How long each lives without a command and without a request.
    #[serde(deserialize_with = "optional_amount")]
    pub idle: Option<Seconds>,
}

/// Limits of a box.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Processors, such as 0.5.
    #[serde(deserialize_with = "optional_amount")]
    pub cpus: Option<Cpus>,
    /// Memory of the whole box.
    #[serde(deserialize_with = "optional_amount")]
    pub memory: Option<Bytes>,
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Work of one command, counted and not timed: tier `wasm`. None left is no limit of 0: whoever has spent it all runs nothing.
    pub fuel: Option<NonZeroU64>,
    /// Writable space.
    #[serde(deserialize_with = "optional_amount")]
    pub disk: Option<Bytes>,
    /// Life of a box of `/v1/run`.
    #[serde(deserialize_with = "optional_amount")]
    pub timeout: Option<Seconds>,
    /// Standard output and error together.
    #[serde(deserialize_with = "optional_amount")]
    pub output: Option<Bytes>,
}

/// A directory of this host.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceAsk {
    /// Where it is.
    pub path: PathBuf,
    /// What the box may do with it.
    #[serde(default)]
    pub access: WorkspaceUse,
}

/// What a box may do with a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceUse {
    /// Changes are thrown away with the box.
    #[default]
    CopyOnWrite,
    /// No changes.
    ReadOnly,
}

impl From<WorkspaceUse> for WorkspaceAccess {
    fn from(access: WorkspaceUse) -> Self {
        match access {
            WorkspaceUse::CopyOnWrite => Self::CopyOnWrite,
            WorkspaceUse::ReadOnly => Self::ReadOnly,
        }
    }
}

/// Whoever has a key is not on this host: what its loopback and its private networks hold is not for them.
pub(crate) fn may_reach(policy: &SealedPolicy, reach: Reach) -> Result<(), Trouble> {
    let network = policy.network();
    match reach {
        Reach::Host => Ok(()),
        _ if network.mode == NetworkMode::Open => {
            Err(Trouble::LocalOnly("with a key, no network can be dangerously open"))
        }
        _ if !network.dangerously_allow_private.is_empty() => Err(Trouble::LocalOnly(
            "with a key, no private address can be opened (`dangerously_allow_private`)",
        )),
        _ => Ok(()),
    }
}

/// What was a box before is asked again: E2B's API may have made it, where everything was given away as a whole, or the operator thought
/// otherwise then.
pub(crate) fn may_begin_again(hall: &Hall, policy: &SealedPolicy, reach: Reach) -> Result<(), Trouble> {
    if policy.network().mode == NetworkMode::Open && hall.internet == Internet::DangerouslyOpen {
        return Ok(());
    }
    may_reach(policy, reach)
}

impl NewBox {
    /// Holds it against what can be had. Opens the image and the workspace, so not on a thread that others wait for.
    pub(crate) fn check(self, reach: Reach, images: &Gallery, roots: &[PathBuf]) -> Result<Wanted, Trouble> {
        let policy = self.seal().map_err(Box::new)?;
        may_reach(&policy, reach)?;
        check_notes(&self.metadata)?;
        let image = open_image(self.image.as_deref().unwrap_or("host"), reach, images)?;
        if reach != Reach::Host
            && policy.kernel().root == BoxRoot::Allowed
            && matches!(image, Image::Directory(_))
        {
            // It would read what the directory keeps from everybody but the host's root.
            return Err(Trouble::LocalOnly(
                "with a key, there is no root (`root = \"allowed\"`) in a directory of this host; it can be imported into the store",
            ));
        }
        if reach != Reach::Host && policy.kernel().gpu != Gpu::None {
            // Every tenant would share one driver, and nothing counts what each takes of the GPU.
            return Err(Trouble::LocalOnly("with a key, there is no GPU: nothing keeps tenants apart there"));
        }
        let workspace = self.workspace.map(|asked| open_workspace(&asked, reach, roots)).transpose()?;
        Ok(Wanted {
            policy,
            image: Arc::new(image),
            preparation: None,
            workspace,
            volumes: Vec::new(),
            secrets: Vec::new(),
            metadata: self.metadata,
            life: within("life", self.life, DEFAULT_LIFE)?,
            idle: within("idle", self.idle, DEFAULT_IDLE)?,
            on_timeout: self.on_timeout,
            from: None,
        })
    }

    /// The same with a policy and an image that were checked when a box had them.
    pub(crate) fn with(self, policy: SealedPolicy, image: Image) -> Result<Wanted, Trouble> {
        check_notes(&self.metadata)?;
        Ok(Wanted {
            policy,
            image: Arc::new(image),
            preparation: None,
            workspace: None,
            volumes: Vec::new(),
            secrets: Vec::new(),
            metadata: self.metadata,
            life: within("life", self.life, DEFAULT_LIFE)?,
            idle: within("idle", self.idle, DEFAULT_IDLE)?,
            on_timeout: self.on_timeout,
            from: None,
        })
    }

    /// Whether only what no snapshot says is said: how long it lives, and what is written on it.
    pub(crate) fn says_nothing_of_its_kind(&self) -> Result<(), Trouble> {
        let own = Self {
            metadata: self.metadata.clone(),
            life: self.life,
            idle: self.idle,
            on_timeout: self.on_timeout,
            snapshot: self.snapshot.clone(),
            ..Self::default()
        };
        if *self == own {
            return Ok(());
        }
        Err(Trouble::BadField(
            "a box that begins with a `snapshot` has its policy, limits and image; only `life`, `idle`, `on_timeout` and `metadata` can stand beside it".to_owned(),
        ))
    }

    /// Whether it names neither an image but the host's, nor a directory to work on.
    pub(crate) fn names_nothing(&self) -> bool {
        self.workspace.is_none() && self.image.as_deref().is_none_or(|image| image == "host")
    }

    /// The sealed policy: text, profile or level first, then each field over it.
    fn seal(&self) -> Result<SealedPolicy, PolicyError> {
        let mut draft = self.base()?;
        let Limits { cpus, memory, pids, fuel, disk, timeout, output } = self.limits;
        if let Some(tier) = self.tier {
            draft = draft.tier(tier);
        }
        if let Some(cpus) = cpus {
            draft = draft.cpus(cpus);
        }
        if let Some(memory) = memory {
            draft = draft.memory(memory);
        }
        if let Some(pids) = pids {
            draft = draft.pids(pids);
        }
        if let Some(fuel) = fuel {
            draft = draft.fuel(Some(fuel.get()));
        }
        if let Some(disk) = disk {
            draft = draft.disk(disk);
        }
        if let Some(timeout) = timeout {
            draft = draft.timeout(timeout);
        }
        if let Some(output) = output {
            draft = draft.output(output);
        }
        if self.loopback {
            draft = draft.loopback(Loopback::Own);
        }
        if let Some(workspace) = &self.workspace {
            draft = draft.workspace(match workspace.access {
                WorkspaceUse::CopyOnWrite => Workspace::CopyOnWrite,
                WorkspaceUse::ReadOnly => Workspace::ReadOnly,
            });
        }
        self.accept.iter().fold(draft, |draft, gap| draft.accept(*gap)).seal()
    }

    fn base(&self) -> Result<Draft, PolicyError> {
        if let Some(text) = &self.policy {
            return parse(text);
        }
        let level = self.threat.map(Profile::for_level);
        self.profile.or(level).unwrap_or_default().draft()
    }

    /// Whether the policy comes from more than one place.
    pub(crate) fn one_source(&self) -> Result<(), Trouble> {
        let sources = [self.profile.is_some(), self.policy.is_some(), self.threat.is_some()];
        if sources.iter().filter(|given| **given).count() > 1 {
            let what = "give only one of `profile`, `policy` and `threat`".to_owned();
            return Err(Trouble::BadField(what));
        }
        Ok(())
    }
}

pub(crate) fn within(name: &str, asked: Option<Seconds>, default: Duration) -> Result<Duration, Trouble> {
    let time = asked.map_or(default, |seconds| Duration::from_secs(seconds.0));
    if (Duration::from_secs(1)..=LONGEST).contains(&time) {
        return Ok(time);
    }
    Err(Trouble::BadField(format!("`{name}` is out of range; permitted is 1s to 30d")))
}

/// A time that a caller asked for, within what any box may have.
pub(crate) fn checked_life(asked: Seconds) -> Result<Duration, Trouble> {
    within("life", Some(asked), DEFAULT_LIFE)
}

fn check_notes(notes: &BTreeMap<String, String>) -> Result<(), Trouble> {
    if notes.len() > MOST_NOTES {
        return Err(Trouble::BadField(format!("`metadata` has more than {MOST_NOTES} entries")));
    }
    for (name, note) in notes {
        let plain = |text: &str| !text.chars().any(char::is_control);
        if name.is_empty() || name.len() > LONGEST_NAME || note.len() > LONGEST_NOTE {
            let what = format!(
                "a name in `metadata` has 1 to {LONGEST_NAME} bytes, and a value at most {LONGEST_NOTE}"
            );
            return Err(Trouble::BadField(what));
        }
        if !plain(name) || !plain(note) {
            return Err(Trouble::BadField("`metadata` has a control character in it".to_owned()));
        }
    }
    Ok(())
}

/// Who reaches only boxes must not read this host through an image of its own choice.
fn open_image(name: &str, reach: Reach, images: &Gallery) -> Result<Image, Trouble> {
    let opened = match (name, reach) {
        ("host", _) => Ok(Image::host()),
        (name, reach) => match (images.find(name), reach) {
            (Some(found), _) => found,
            // A name that is relative would be relative to the daemon, which is never what its caller means.
            (None, Reach::Host) if Path::new(name).is_absolute() => Image::parse(name),
            (None, Reach::Boxes) if name.contains('/') => {
                return Err(Trouble::LocalOnly(
                    "with a key, only \"host\" and images that the operator named or put into the store can be used",
                ));
            }
            (None, _) => {
                let known: Vec<String> = images.names().into_iter().take(50).collect();
                let known = if known.is_empty() { String::new() } else { format!(", {}", known.join(", ")) };
                return Err(Trouble::BadImage(format!(
                    "`image` is neither an absolute path nor a known name; known are: host{known}"
                )));
            }
        },
    };
    opened.map_err(|error| Trouble::BadImage(line(&error)))
}

/// An image as it was called when a box had it: by its content, whatever its name means now.
pub(crate) fn open_stored(label: &str, images: &Gallery) -> Result<Image, Trouble> {
    let digest = label.rsplit('@').next().unwrap_or(label);
    match images.find(digest) {
        Some(found) => found.map_err(|error| Trouble::BadImage(line(&error))),
        None => Err(Trouble::BadImage("the image of the snapshot is not in the store any more".to_owned())),
    }
}

/// Whoever sits at the socket names what it could open itself; whoever has a key, what the operator opened for its tenant.
fn open_workspace(asked: &WorkspaceAsk, reach: Reach, roots: &[PathBuf]) -> Result<WorkspaceDir, Trouble> {
    let (path, access) = (&asked.path, asked.access.into());
    if reach != Reach::Host && roots.is_empty() {
        return Err(Trouble::LocalOnly("with a key, no directory of this host can be a workspace"));
    }
    if !path.is_absolute() {
        return Err(Trouble::BadWorkspace("`workspace.path` is not an absolute path".to_owned()));
    }
    let opened = match reach {
        Reach::Host => WorkspaceDir::open(path, access),
        Reach::Boxes => {
            let below = |root: &PathBuf| Some((root.clone(), path.strip_prefix(root).ok()?));
            // A path with `..` in it is held back by the kernel, not by this comparison of words.
            let (root, below) = roots.iter().find_map(below).ok_or(Trouble::WorkspaceNotAllowed)?;
            WorkspaceDir::open_beneath(&root, below, access)
        }
    };
    opened.map_err(|error| Trouble::BadWorkspace(line(&error)))
}
