//! The templates that were built here, each of one tenant, written down so that they outlive the daemon.
//!
//! Must not: tell one tenant of another's. Every question names the tenant that asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use blastbox_engine::keeper::Tenant;
use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::name::{self, Named};
use crate::e2b::moment;
use crate::e2b::no::{No, echo};

const FILE: &str = "templates.json";
/// Templates of one tenant, and builds of one template that are remembered.
const MOST_TEMPLATES: usize = 100;
const MOST_BUILDS: usize = 20;
const MOST_TAGS: usize = 50;
/// What is written down of one tenant's templates, before a build of it is refused.
const MOST_BYTES: usize = 8 << 20;
/// Steps of one tenant whose results are used again.
const MOST_LAYERS: usize = 32;

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
    /// Its home, as an archive.
    pub(in crate::e2b) home: Option<Hash>,
    pub(in crate::e2b) env: BTreeMap<String, String>,
    pub(in crate::e2b) workdir: String,
    /// Who its next step runs as.
    pub(in crate::e2b) user: String,
    pub(in crate::e2b) start: Option<String>,
    pub(in crate::e2b) ready: Option<String>,
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

/// What a step made, found again by what it was made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) tenant: String,
    pub(super) key: Hash,
    pub(super) home: Option<Hash>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Pages {
    pub(super) templates: Vec<Record>,
    pub(super) layers: Vec<Layer>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Book {
    directory: PathBuf,
    pages: Mutex<Pages>,
    /// Held by whoever changes something, so that nobody who only reads waits for a disk.
    writing: Mutex<()>,
}

impl Book {
    /// Opens what an earlier daemon wrote. Builds that it had not finished are none.
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let mut pages: Pages = match fs::read(directory.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Pages::default(),
            Err(error) => return Err(error),
        };
        for build in pages.templates.iter_mut().flat_map(|record| &mut record.builds) {
            if matches!(build.status, Status::Waiting | Status::Building) {
                build.status = Status::Error;
                let message = "the daemon was stopped while this was built".to_owned();
                build.reason = Some(Reason { message, step: "base".to_owned() });
            }
        }
        Ok(Self { directory, pages: Mutex::new(pages), writing: Mutex::default() })
    }

    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        // Nobody panics while holding it.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it down: all of it or nothing.
    fn write(&self, pages: &Pages) -> Result<(), No> {
        let work = || -> io::Result<()> {
            let (draft, whole) = (self.directory.join("templates.draft"), self.directory.join(FILE));
            let mut file = File::create(&draft)?;
            file.write_all(&serde_json::to_vec(pages)?)?;
            file.sync_all()?;
            fs::rename(draft, whole)
        };
        work().map_err(|error| No::new(500, format!("the list of templates cannot be written: {error}")))
    }

    /// Changes something and writes it down: what cannot be written has not happened.
    fn revise<T>(&self, change: impl FnOnce(&mut Pages) -> Result<T, No>) -> Result<T, No> {
        on_the_disk(|| {
            let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut pages = self.pages().clone();
            let changed = change(&mut pages)?;
            self.write(&pages)?;
            *self.pages() = pages;
            Ok(changed)
        })
    }

    /// Whether more of a tenant can be written down.
    pub(super) fn has_room(&self, tenant: &Tenant) -> Result<(), No> {
        let bytes: usize = self.of(tenant).iter().map(Record::bytes).sum();
        if bytes < MOST_BYTES {
            return Ok(());
        }
        Err(No::new(
            429,
            format!(
                "the templates of a key have at most {MOST_BYTES} bytes of variables and commands; delete one first"
            ),
        ))
    }

    /// A new build of a template, which is made where there is none of that name: the ids of both.
    pub(super) fn begin(
        &self,
        tenant: &Tenant,
        named: &Named,
        mut tags: Vec<String>,
        (cpus, memory_mib): (u32, u64),
    ) -> Result<(String, String), No> {
        let now = moment::text(SystemTime::now());
        let build_id = name::new_build().ok_or_else(No::defect)?;
        if tags.is_empty() || named.tag.is_some() {
            tags.push(named.tag().to_owned());
        }
        tags.sort();
        tags.dedup();
        let new = |tags| Build {
            id: build_id.clone(),
            status: Status::Waiting,
            created: now,
            finished: None,
            cpus,
            memory_mib,
            tags,
            made: None,
            reason: None,
        };
        self.has_room(tenant)?;
        self.revise(|pages| Self::add_build(pages, tenant, named, new(tags))).map(|id| (id, build_id))
    }

    fn add_build(pages: &mut Pages, tenant: &Tenant, named: &Named, build: Build) -> Result<String, No> {
        let now = build.created.clone();
        let mine = |record: &&mut Record| record.tenant == tenant.as_str();
        let count = pages.templates.iter_mut().filter(mine).count();
        let found = pages.templates.iter_mut().filter(mine).find(|record| record.name == named.name);
        let id = match found {
            Some(record) => {
                record.forget_builds();
                if record.builds.len() >= MOST_BUILDS {
                    return Err(No::new(
                        429,
                        format!("a template has at most {MOST_BUILDS} builds with tags or at work"),
                    ));
                }
                record.has_tags_for(&build)?;
                record.updated = now;
                record.builds.push(build);
                record.id.clone()
            }
            None if count >= MOST_TEMPLATES => {
                return Err(No::new(
                    429,
                    format!("a key has at most {MOST_TEMPLATES} templates; delete one first"),
                ));
            }
            None => {
                let id = name::new_template().ok_or_else(No::defect)?;
                pages.templates.push(Record {
                    id: id.clone(),
                    tenant: tenant.as_str().to_owned(),
                    name: named.name.clone(),
                    created: now.clone(),
                    updated: now,
                    spawned: None,
                    spawns: 0,
                    builds: vec![build],
                    tags: BTreeMap::new(),
                });
                id
            }
        };
        Ok(id)
    }

    /// A tenant's template by id, name or `name:tag`.
    pub(super) fn find(&self, tenant: &Tenant, asked: &str) -> Option<Record> {
        let named = Named::parse(asked).ok();
        let name = named.map_or_else(|| asked.to_owned(), |named| named.name);
        let pages = self.pages();
        let mut mine = pages.templates.iter().filter(|record| record.tenant == tenant.as_str());
        mine.find(|record| record.id == name || record.name == name).cloned()
    }

    /// The same, and an answer where there is none.
    pub(super) fn own(&self, tenant: &Tenant, asked: &str) -> Result<Record, No> {
        self.find(tenant, asked).ok_or_else(|| No::new(404, format!("template '{}' not found", echo(asked))))
    }

    /// Every template of a tenant, newest last.
    pub(super) fn of(&self, tenant: &Tenant) -> Vec<Record> {
        let pages = self.pages();
        pages.templates.iter().filter(|record| record.tenant == tenant.as_str()).cloned().collect()
    }

    /// Changes a tenant's template, and writes that down.
    pub(super) fn change<T>(
        &self,
        tenant: &Tenant,
        asked: &str,
        change: impl FnOnce(&mut Record) -> Result<T, No>,
    ) -> Result<T, No> {
        let id = self.own(tenant, asked)?.id;
        self.revise(|pages| {
            let record = pages.templates.iter_mut().find(|record| record.id == id);
            change(record.ok_or_else(|| No::new(404, format!("template '{}' not found", echo(asked))))?)
        })
    }

    /// Somebody has made a sandbox of it. That is written down with the next change: no sandbox waits for a disk.
    pub(super) fn spawned(&self, tenant: &Tenant, asked: &str) {
        let Some(found) = self.find(tenant, asked) else { return };
        on_the_disk(|| {
            let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(record) = self.pages().templates.iter_mut().find(|record| record.id == found.id) {
                record.spawns += 1;
                record.spawned = Some(moment::text(SystemTime::now()));
            }
        });
    }

    /// Takes a template away, and tells what it was.
    pub(super) fn remove(&self, tenant: &Tenant, asked: &str) -> Result<Record, No> {
        let record = self.own(tenant, asked)?;
        self.revise(|pages| {
            pages.templates.retain(|other| other.id != record.id);
            Ok(())
        })?;
        Ok(record)
    }

    pub(super) fn layer(&self, tenant: &Tenant, key: &Hash) -> Option<Layer> {
        let pages = self.pages();
        pages.layers.iter().find(|layer| layer.key == *key && layer.tenant == tenant.as_str()).cloned()
    }

    /// Remembers what a step made. A tenant's oldest make place.
    pub(super) fn remember(&self, layer: Layer) -> Result<(), No> {
        self.revise(|pages| {
            Self::add_layer(pages, layer);
            Ok(())
        })
    }

    fn add_layer(pages: &mut Pages, layer: Layer) {
        let tenant = layer.tenant.clone();
        pages.layers.retain(|other| other.key != layer.key || other.tenant != tenant);
        pages.layers.push(layer);
        let theirs = pages.layers.iter().filter(|other| other.tenant == tenant).count();
        let mut over = theirs.saturating_sub(MOST_LAYERS);
        pages.layers.retain(|other| {
            let goes = over > 0 && other.tenant == tenant;
            over -= usize::from(goes);
            !goes
        });
    }

    /// The homes, by tenant, that something still means.
    pub(super) fn needed(&self) -> BTreeSet<(String, Hash)> {
        let pages = self.pages();
        let built = pages.templates.iter().flat_map(|record| {
            let homes = record.builds.iter().filter_map(|build| build.made.as_ref()?.home);
            homes.map(|home| (record.tenant.clone(), home))
        });
        let layers = pages.layers.iter().filter_map(|layer| Some((layer.tenant.clone(), layer.home?)));
        built.chain(layers).collect()
    }
}

/// A disk may take its time: others that wait for this thread go on elsewhere.
fn on_the_disk<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread) {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

impl Record {
    fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// Whether a build that is asked for now can have its tags when it is done, beside those of builds before it.
    fn has_tags_for(&self, build: &Build) -> Result<(), No> {
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

    /// Forgets the oldest builds that nothing means any more.
    fn forget_builds(&mut self) {
        let tags = &self.tags;
        let is_needed = |build: &Build| {
            matches!(build.status, Status::Waiting | Status::Building)
                || tags.values().any(|tagged| tagged.build == build.id)
        };
        let mut over = (self.builds.len() + 1).saturating_sub(MOST_BUILDS);
        self.builds.retain(|build| {
            let goes = over > 0 && !is_needed(build);
            over -= usize::from(goes);
            !goes
        });
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn made(home: u8) -> Made {
        let home = Some(Hash::of([[home].as_slice()]));
        let (env, workdir, user) = (BTreeMap::new(), "/home/user".to_owned(), "user".to_owned());
        Made { tree: None, home, env, workdir, user, start: None, ready: None }
    }

    #[test]
    fn templates_outlive_the_daemon_and_builds_that_it_was_at_have_failed() {
        let scratch = Scratch::new("book");
        let open = || Book::open(scratch.path().to_owned()).unwrap();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let named = Named::parse("mine").unwrap();
        let book = open();
        let (id, first) = book.begin(&ann, &named, Vec::new(), (1, 512)).unwrap();
        let done = book.change(&ann, &id, |record| {
            let build = record.build_mut(&first).unwrap();
            (build.status, build.made) = (Status::Ready, Some(made(1)));
            record.tag(&first, &["default".to_owned()])
        });
        done.unwrap();
        let (same, second) = book.begin(&ann, &named, vec!["next".to_owned()], (1, 512)).unwrap();
        assert_eq!(same, id);
        let (others, _) = book.begin(&bob, &named, Vec::new(), (1, 512)).unwrap();
        assert!(
            others != id && book.find(&bob, &id).is_none() && book.own(&bob, "mine").unwrap().id == others
        );
        let again = open();
        let found = again.own(&ann, "mine:next").unwrap();
        assert_eq!(found.build(&second).unwrap().status, Status::Error);
        assert_eq!(found.tagged("default").unwrap().made, Some(made(1)));
        assert_eq!(again.needed().len(), 1);
        assert_eq!(again.remove(&bob, &id).unwrap_err().status(), 404);
        again.remove(&ann, &id).unwrap();
        assert!(open().find(&ann, "mine").is_none() && open().needed().is_empty());
    }

    #[test]
    fn what_cannot_be_written_has_not_happened_and_a_tenants_bytes_have_an_end() {
        let scratch = Scratch::new("book-unwritten");
        let book = Book::open(scratch.path().to_owned()).unwrap();
        let ann: Tenant = "ann".parse().unwrap();
        let begin = |name: &str| book.begin(&ann, &Named::parse(name).unwrap(), Vec::new(), (1, 512));
        let (id, build) = begin("mine").unwrap();
        let refused = book.change(&ann, &id, |record| {
            record.name = "changed".to_owned();
            Err::<(), _>(No::bad("no"))
        });
        assert!(refused.is_err() && book.find(&ann, "changed").is_none());
        std::fs::create_dir(scratch.path().join("templates.draft")).unwrap();
        assert_eq!(begin("other").unwrap_err().status(), 500);
        assert!(book.find(&ann, "other").is_none());
        std::fs::remove_dir(scratch.path().join("templates.draft")).unwrap();
        book.spawned(&ann, "mine");
        let long = "x".repeat(MOST_BYTES);
        let done = book.change(&ann, &id, |record| {
            let made = Made { start: Some(long), ..made(1) };
            record.build_mut(&build).unwrap().made = Some(made);
            Ok(())
        });
        done.unwrap();
        assert_eq!(begin("more").unwrap_err().status(), 429);
        assert_eq!(Book::open(scratch.path().to_owned()).unwrap().own(&ann, "mine").unwrap().spawns, 1);
    }

    #[test]
    fn there_is_an_end_to_templates_builds_tags_and_layers() {
        let scratch = Scratch::new("book-end");
        let book = Book::open(scratch.path().to_owned()).unwrap();
        let ann: Tenant = "ann".parse().unwrap();
        let begin = |name: &str| book.begin(&ann, &Named::parse(name).unwrap(), Vec::new(), (1, 512));
        for _ in 0..MOST_BUILDS {
            begin("one").unwrap();
        }
        assert_eq!(begin("one").unwrap_err().status(), 429, "all of them wait");
        (1..MOST_TEMPLATES).for_each(|number| drop(begin(&format!("t{number}")).unwrap()));
        assert_eq!(begin("more").unwrap_err().status(), 429);
        for number in 0..2 * MOST_LAYERS {
            let key = Hash::of([number.to_string().as_bytes()]);
            book.remember(Layer { tenant: "ann".to_owned(), key, home: None }).unwrap();
        }
        assert_eq!(book.pages().layers.len(), MOST_LAYERS);
        let many = |from: usize| (from..from + 20).map(|number| format!("v{number}")).collect::<Vec<_>>();
        let tagged = |tags| book.begin(&ann, &Named::parse("t1").unwrap(), tags, (1, 512));
        tagged(many(0)).unwrap();
        tagged(many(20)).unwrap();
        assert_eq!(tagged(many(40)).unwrap_err().status(), 400, "it is told before anything is built");
        let tags: Vec<String> = (0..=MOST_TAGS).map(|number| number.to_string()).collect();
        assert_eq!(book.change(&ann, "one", |record| record.tag("x", &tags)).unwrap_err().status(), 400);
    }
}
