//! What is written down of one template: its builds, what became of them, and its tags.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};

use crate::e2b::moment;
use crate::e2b::no::No;

/// Builds of one template that are remembered.
pub(super) const MOST_BUILDS: usize = 20;
pub(super) const MOST_TAGS: usize = 50;
/// How long a build that was asked for waits to be started: as long as an address for its files is good.
const UNSTARTED: Duration = Duration::from_secs(3_600);

/// What has become of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Waiting,
    Building,
    Ready,
    Error,
}

/// What a sandbox of a template is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::e2b) struct Made {
    /// Its tree in the store; none: the view of the host.
    pub(in crate::e2b) tree: Option<Hash>,
    /// The operator's template that it was built from, whose profile and tier are its own.
    #[serde(default)]
    pub(in crate::e2b) base: Option<String>,
    /// Its home, as an archive.
    pub(in crate::e2b) home: Option<Hash>,
    pub(in crate::e2b) env: BTreeMap<String, String>,
    pub(in crate::e2b) workdir: String,
    /// Who its next step runs as.
    pub(in crate::e2b) user: String,
    pub(in crate::e2b) start: Option<String>,
    pub(in crate::e2b) ready: Option<String>,
}

impl Made {
    /// What of it lies on the disk.
    pub(super) fn parts(&self) -> impl Iterator<Item = Hash> {
        self.tree.into_iter().chain(self.home)
    }
}

/// Why a build made nothing, and at which step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reason {
    pub(super) message: String,
    pub(super) step: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::e2b) struct Build {
    pub(super) id: String,
    pub(super) status: Status,
    pub(super) created: String,
    pub(super) finished: Option<String>,
    pub(in crate::e2b) cpus: u32,
    pub(in crate::e2b) memory_mib: u64,
    /// Tags that it gets when it is done.
    pub(super) tags: Vec<String>,
    pub(super) made: Option<Made>,
    pub(super) reason: Option<Reason>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Tagged {
    pub(super) build: String,
    pub(super) at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) tenant: String,
    pub(super) name: String,
    pub(super) created: String,
    pub(super) updated: String,
    pub(super) spawned: Option<String>,
    pub(super) spawns: u64,
    pub(super) builds: Vec<Build>,
    pub(super) tags: BTreeMap<String, Tagged>,
}

impl Record {
    pub(super) fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// Whether a build that is asked for now can have its tags when it is done, beside those of builds before it.
    pub(super) fn has_tags_for(&self, build: &Build) -> Result<(), No> {
        let waits = |other: &&Build| matches!(other.status, Status::Waiting | Status::Building);
        let waiting = self.builds.iter().filter(waits).chain([build]).flat_map(|build| &build.tags);
        let all: BTreeSet<&String> = self.tags.keys().chain(waiting).collect();
        match all.len() > MOST_TAGS {
            true => Err(No::bad(format!("a template has at most {MOST_TAGS} tags"))),
            false => Ok(()),
        }
    }

    pub(super) fn build(&self, id: &str) -> Option<&Build> {
        self.builds.iter().find(|build| build.id == id)
    }

    pub(super) fn build_mut(&mut self, id: &str) -> Option<&mut Build> {
        self.builds.iter_mut().find(|build| build.id == id)
    }

    /// The build that a tag means.
    pub(super) fn tagged(&self, tag: &str) -> Option<&Build> {
        self.build(&self.tags.get(tag)?.build)
    }

    /// Forgets the oldest builds that nothing means any more, and those that were asked for and never started.
    pub(super) fn forget_builds(&mut self, is_in_hand: &dyn Fn(&str) -> bool) {
        let tags = &self.tags;
        let is_needed = |build: &Build| match build.status {
            Status::Building => true,
            Status::Waiting => is_in_hand(&build.id) || !build.is_older_than(UNSTARTED),
            Status::Ready | Status::Error => tags.values().any(|tagged| tagged.build == build.id),
        };
        let mut over = (self.builds.len() + 1).saturating_sub(MOST_BUILDS);
        self.builds.retain(|build| {
            let goes = over > 0 && !is_needed(build);
            over -= usize::from(goes);
            !goes
        });
    }

    /// Lets go of what builds made that no tag means: nobody can make a sandbox of it.
    pub(super) fn let_go(&mut self) {
        let tags = &self.tags;
        for build in self.builds.iter_mut().filter(|build| build.status == Status::Ready) {
            if !tags.values().any(|tagged| tagged.build == build.id) {
                build.made = None;
            }
        }
    }

    /// Gives a build tags.
    pub(super) fn tag(&mut self, build: &str, tags: &[String]) -> Result<(), No> {
        let new = tags.iter().filter(|tag| !self.tags.contains_key(*tag)).count();
        if self.tags.len() + new > MOST_TAGS {
            return Err(No::bad(format!("a template has at most {MOST_TAGS} tags")));
        }
        let at = moment::text(SystemTime::now());
        for tag in tags {
            self.tags.insert(tag.clone(), Tagged { build: build.to_owned(), at: at.clone() });
        }
        self.let_go();
        Ok(())
    }
}

impl Build {
    fn is_older_than(&self, age: Duration) -> bool {
        let then = moment::millis(SystemTime::now() - age);
        moment::parse(&self.created).is_none_or(|created| created < then)
    }
}
