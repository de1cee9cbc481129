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
use super::record::{Build, MOST_BUILDS, Made, Reason, Record, Status};
use crate::e2b::moment;
use crate::e2b::no::{No, echo};

const FILE: &str = "templates.json";
/// Templates of one tenant.
const MOST_TEMPLATES: usize = 100;
/// What is written down of one tenant's templates, before a build of it is refused.
const MOST_BYTES: usize = 8 << 20;
/// Steps of one tenant whose results are used again.
const MOST_LAYERS: usize = 32;

/// What a step made, found again by what it was made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) tenant: String,
    pub(super) key: Hash,
    pub(super) home: Option<Hash>,
    /// Where it was root of its box: what that made of the image.
    #[serde(default)]
    pub(super) tree: Option<Hash>,
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
        is_in_hand: &dyn Fn(&str) -> bool,
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
        let add = |pages: &mut Pages| Self::add_build(pages, tenant, named, new(tags), is_in_hand);
        self.revise(add).map(|id| (id, build_id))
    }

    fn add_build(
        pages: &mut Pages,
        tenant: &Tenant,
        named: &Named,
        build: Build,
        is_in_hand: &dyn Fn(&str) -> bool,
    ) -> Result<String, No> {
        let now = build.created.clone();
        let mine = |record: &&mut Record| record.tenant == tenant.as_str();
        let count = pages.templates.iter_mut().filter(mine).count();
        let found = pages.templates.iter_mut().filter(mine).find(|record| record.name == named.name);
        let id = match found {
            Some(record) => {
                record.forget_builds(is_in_hand);
                if record.builds.len() >= MOST_BUILDS {
                    return Err(No::new(
                        429,
                        format!(
                            "a template has at most {MOST_BUILDS} builds with tags, at work or waiting to be started; wait an hour, or delete it"
                        ),
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
        self.note(tenant, asked, |record| {
            record.spawns += 1;
            record.spawned = Some(moment::text(SystemTime::now()));
        });
    }

    /// A build has ended, and that cannot be written down: whoever asks hears of it, and the next daemon finds it unfinished.
    pub(super) fn lost(&self, tenant: &Tenant, asked: &str, build: &str, why: &str) {
        self.note(tenant, asked, |record| {
            let Some(build) = record.build_mut(build) else { return };
            let reason = Reason { message: why.to_owned(), step: "finalize".to_owned() };
            (build.status, build.made, build.reason) = (Status::Error, None, Some(reason));
        });
    }

    /// Changes a tenant's template where it is told from, and writes nothing.
    fn note(&self, tenant: &Tenant, asked: &str, change: impl FnOnce(&mut Record)) {
        let Some(found) = self.find(tenant, asked) else { return };
        on_the_disk(|| {
            let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(record) = self.pages().templates.iter_mut().find(|record| record.id == found.id) {
                change(record);
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

    /// Forgets what the steps of a tenant made, as far as nothing else means it: all of it can be made again. Whether there was any.
    pub(super) fn forget_layers(&self, tenant: &Tenant) -> Result<bool, No> {
        let theirs = |layer: &Layer| layer.tenant == tenant.as_str();
        if !self.pages().layers.iter().any(theirs) {
            return Ok(false);
        }
        self.revise(|pages| {
            pages.layers.retain(|layer| !theirs(layer));
            Ok(true)
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

    /// The trees and homes, by tenant, that something still means.
    pub(super) fn needed(&self) -> BTreeSet<(String, Hash)> {
        let pages = self.pages();
        let built = pages.templates.iter().flat_map(|record| {
            let parts = record.builds.iter().filter_map(|build| build.made.as_ref()).flat_map(Made::parts);
            parts.map(|part| (record.tenant.clone(), part))
        });
        let layers = pages.layers.iter().flat_map(|layer| {
            layer.tree.into_iter().chain(layer.home).map(|part| (layer.tenant.clone(), part))
        });
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

#[cfg(test)]
mod tests;
