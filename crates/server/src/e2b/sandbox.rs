//! What is known of one sandbox beside what its keeper knows of the box.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_engine::keeper::{OnTimeout, Tenant};
use blastbox_wire::BoxId;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::control::metrics::Samples;
use super::control::network::Reaches;
use super::copies::Portrait;
use super::envd::marks::Marks;
use super::filesystem::watchers::Watchers;
use super::interpreter::Contexts;
use super::moment;
use super::ports::{Front, Pace};
use super::process::table::Processes;
use super::template::Size;
use super::token::Token;
use super::volumes::Mounts;

const PREFIX: &str = "bx_";
/// Lines of its log that are kept.
const MOST_LINES: usize = 1_000;

/// Connections to the ports of one sandbox at once. Each is a command in its box, of which there are not many more.
const MOST_CONNECTIONS: usize = 64;

/// A sandbox that was made through this face.
#[derive(Debug)]
pub(super) struct Sandbox {
    /// The box.
    pub(super) box_id: BoxId,
    pub(super) tenant: Tenant,
    pub(super) template: String,
    pub(super) token: Token,
    /// What requests to its ports must bring along, where its owner closed them.
    pub(super) traffic_token: Option<Token>,
    pub(super) size: Size,
    /// Whether commands may be its root.
    pub(super) has_root: bool,
    pub(super) envs: Envs,
    pub(super) plans: Plans,
    /// Where its commands work that name no directory, where its template says so.
    pub(super) workdir: Option<String>,
    /// Volumes that it has.
    pub(super) mounts: Mounts,
    /// How servers in it are spoken to.
    pub(super) front: Front,
    /// How long it lives from a resume that traffic brought about, in seconds.
    life: AtomicU64,
    pub(super) processes: Processes,
    pub(super) watchers: Watchers,
    pub(super) marks: Marks,
    pub(super) samples: Samples,
    pub(super) contexts: Contexts,
    /// Places for connections to its ports.
    pub(super) lines: Arc<Semaphore>,
    /// How many of them may still begin.
    pub(super) pace: Pace,
    /// What was last said about the internet, once its network has been changed.
    internet: Mutex<Option<bool>>,
    log: Mutex<VecDeque<LogLine>>,
    /// What has to be known of it when it goes on from disk.
    portrait: Mutex<Option<Arc<Portrait>>>,
    /// Whether something may still be written down of it. Held while that is done.
    documented: Mutex<bool>,
}

/// What its owner wants to happen to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plans {
    pub(super) on_timeout: AtTimeout,
    pub(super) on_traffic: OnTraffic,
    /// As the owner wrote it: `None` was never said.
    pub(super) internet: Option<bool>,
    /// What it came to.
    pub(super) reaches: Reaches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtTimeout {
    Kill,
    Pause,
}

impl From<AtTimeout> for OnTimeout {
    fn from(at: AtTimeout) -> Self {
        match at {
            AtTimeout::Kill => Self::Destroy,
            AtTimeout::Pause => Self::Pause,
        }
    }
}

/// What happens to a paused sandbox that somebody asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnTraffic {
    StayPaused,
    Resume,
}

/// The variables of a sandbox. Owners put secrets there, so that they are never printed.
#[derive(Default)]
pub(super) struct Envs(pub(super) BTreeMap<String, String>);

impl fmt::Debug for Envs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envs({} variables)", self.0.len())
    }
}

/// What a sandbox is made of, as far as this face knows it.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) box_id: BoxId,
    pub(super) tenant: Tenant,
    pub(super) template: String,
    pub(super) token: Token,
    pub(super) traffic_token: Option<Token>,
    pub(super) size: Size,
    pub(super) has_root: bool,
    pub(super) envs: Envs,
    pub(super) plans: Plans,
    pub(super) life: Duration,
    pub(super) workdir: Option<String>,
}

/// One line of a sandbox's log.
#[derive(Debug, Clone)]
pub(super) struct LogLine {
    pub(super) at: SystemTime,
    pub(super) level: &'static str,
    pub(super) message: String,
    pub(super) fields: Map<String, Value>,
}

impl Sandbox {
    pub(super) fn new(made: Made) -> Self {
        let Made {
            box_id,
            tenant,
            template,
            token,
            traffic_token,
            size,
            has_root,
            envs,
            plans,
            life,
            workdir,
        } = made;
        let internet = Mutex::new(plans.internet);
        Self {
            box_id,
            tenant,
            template,
            token,
            traffic_token,
            size,
            has_root,
            envs,
            plans,
            workdir,
            mounts: Mounts::default(),
            front: Front::default(),
            life: AtomicU64::new(life.as_secs()),
            processes: Processes::default(),
            watchers: Watchers::default(),
            marks: Marks::default(),
            samples: Samples::default(),
            contexts: Contexts::default(),
            lines: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            pace: Pace::new(Instant::now()),
            internet,
            log: Mutex::default(),
            portrait: Mutex::default(),
            documented: Mutex::new(true),
        }
    }

    /// Its name on E2B's wire.
    pub(super) fn id(&self) -> &str {
        name_of(&self.box_id)
    }

    pub(super) fn life(&self) -> Duration {
        Duration::from_secs(self.life.load(Ordering::Relaxed))
    }

    pub(super) fn set_life(&self, life: Duration) {
        self.life.store(life.as_secs(), Ordering::Relaxed);
    }

    /// What its owner said about the internet: `None` was never said, or was left out when the network was changed.
    pub(super) fn internet(&self) -> Option<bool> {
        *self.internet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_internet(&self, said: Option<bool>) {
        *self.internet.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<LogLine>> {
        // Nobody panics while holding it.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It lies on disk, and was this.
    pub(super) fn lies_as(&self, portrait: Portrait) {
        *self.portrait.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(portrait));
    }

    /// It goes on from there, as this.
    pub(super) fn rises(&self) -> Option<Arc<Portrait>> {
        self.portrait.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes it down, with what it was when it was paused to disk; not where it is over. One after the other: what is written is
    /// what it is then, and not what it was when somebody wanted to write.
    pub(super) fn documented(
        &self,
        write: impl FnOnce(Option<&Portrait>) -> io::Result<()>,
    ) -> io::Result<()> {
        let documented = self.documented.lock().unwrap_or_else(PoisonError::into_inner);
        if !*documented {
            return Ok(());
        }
        // Not held while the disk is written: threads of the runtime look into it.
        let portrait = self.portrait.lock().unwrap_or_else(PoisonError::into_inner).clone();
        write(portrait.as_deref())
    }

    /// Nothing is written down of it any more.
    pub(super) fn undocumented(&self) {
        *self.documented.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }

    /// Writes a line into its log.
    pub(super) fn note(&self, level: &'static str, message: &str, fields: Value) {
        let fields = fields.as_object().cloned().unwrap_or_default();
        let mut lines = self.lines();
        if lines.len() >= MOST_LINES {
            lines.pop_front();
        }
        lines.push_back(LogLine { at: SystemTime::now(), level, message: message.to_owned(), fields });
    }

    /// Its log, oldest first.
    pub(super) fn log(&self) -> Vec<LogLine> {
        self.lines().iter().cloned().collect()
    }
}

impl LogLine {
    pub(super) fn show(&self) -> Value {
        json!({
            "timestamp": moment::text(self.at),
            "message": self.message,
            "level": self.level,
            "fields": self.fields,
        })
    }
}

/// The name of a box on E2B's wire.
pub(super) fn name_of(box_id: &BoxId) -> &str {
    let name = box_id.as_str();
    name.strip_prefix(PREFIX).unwrap_or(name)
}
