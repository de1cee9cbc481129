//! What steps that are root of their boxes make of an image: trees in a store of their own, beside the operator's. No list of
//! images has them, and nobody can name one but by a template.
//!
//! Trust: the box is hostile. An archive of it is unpacked by the store's own hand, as every import is: no path, link, device or set-id
//! bit of it leaves the tree or lives on.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use blastbox_engine::build::StepMade;
use blastbox_engine::keeper::Tenant;
use blastbox_images::store::{Derived, ImageName, Kept};
use blastbox_images::tree::Caps;
use blastbox_images::{Store, StoreError, StoredImage};
use blastbox_wire::event::Hash;

use super::place::{BLOCK, DRAFT, Place, blocks, file_name, on_its_own_thread};
use crate::trouble::line;

/// The trees of all tenants, and what each takes of its tenant's room.
#[derive(Debug, Clone)]
pub(super) struct Trees(Arc<Store>);

/// Who knows what sandboxes need that are paused to disk, by tenant: their templates may be gone.
pub(in crate::e2b) struct Lying(Box<dyn Fn() -> Vec<(Tenant, String)> + Send + Sync>);

impl std::fmt::Debug for Lying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lying")
    }
}

impl Lying {
    pub(in crate::e2b) fn known_by(who: impl Fn() -> Vec<(Tenant, String)> + Send + Sync + 'static) -> Self {
        Self(Box::new(who))
    }

    pub(super) fn parts(&self) -> BTreeSet<(String, Hash)> {
        let part = |(tenant, label): (Tenant, String)| {
            Some((tenant.as_str().to_owned(), label.rsplit('@').next()?.parse().ok()?))
        };
        (self.0)().into_iter().filter_map(part).collect()
    }
}

/// A tree that a step made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewTree {
    pub(super) digest: Hash,
    /// Bytes of the disk that it takes beside the tree that it was made from.
    own: u64,
    /// Those that it takes where nothing is shared.
    whole: u64,
    parent: Hash,
}

impl Trees {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Store::open(path).map(|store| Self(Arc::new(store))).map_err(io::Error::other)
    }

    /// Where archives of boxes wait to be unpacked, in files without a name.
    pub(super) fn spool(&self) -> &Path {
        self.0.path()
    }

    /// Opens one. Looks at the disk.
    pub(super) fn find(&self, tree: &Hash) -> Option<StoredImage> {
        self.0.open_tree(tree).ok()
    }

    /// What a box has made of the directories of an image, as a tree that nobody takes away while this build is in hand.
    pub(super) async fn after(
        &self,
        build: &str,
        parent: StoredImage,
        made: StepMade,
        caps: Caps,
    ) -> Result<NewTree, String> {
        self.derive(build, parent, caps, move |derived| {
            let tops: Vec<&str> = made.packed.iter().map(|(at, _)| at.as_str()).collect();
            derived.inherit(&tops)?;
            for (at, file) in &made.packed {
                let mut file: &File = file;
                derived.fill(at, &mut file)?;
            }
            derived.clean()
        })
        .await
    }

    /// An image with one directory more.
    pub(super) async fn with_directory(
        &self,
        build: &str,
        parent: StoredImage,
        path: String,
    ) -> Result<NewTree, String> {
        self.derive(build, parent, Caps::default(), move |derived| {
            derived.inherit(&[])?;
            derived.directory(&path)
        })
        .await
    }

    async fn derive(
        &self,
        build: &str,
        parent: StoredImage,
        caps: Caps,
        change: impl FnOnce(&mut Derived<'_>) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<NewTree, String> {
        let (store, pin, before) = (Arc::clone(&self.0), build.parse::<ImageName>(), parent.digest());
        let work = move || -> Result<Kept, StoreError> {
            let mut derived = store.derive(&parent, caps)?;
            change(&mut derived)?;
            // Under the name of its build from the first moment on: nobody sweeps it before it is written down.
            derived.keep_as(parent.digest(), pin.as_ref().ok(), &mut |_| {})
        };
        let kept = tokio::task::spawn_blocking(work).await.map_err(|_| "blastbox failed at it".to_owned())?;
        let Kept { facts, known: _, own } =
            kept.map_err(|error| format!("what it made of the image cannot be kept: {}", line(&error)))?;
        let whole = facts.bytes.saturating_add(facts.entries.saturating_mul(BLOCK));
        Ok(NewTree { digest: facts.digest, own, whole, parent: before })
    }

    /// Takes away what nothing means, and what builds held that are over. `lying`: what sandboxes need that are paused to disk.
    pub(super) fn sweep(
        &self,
        needed: &BTreeSet<(String, Hash)>,
        lying: &Lying,
        is_in_hand: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        for name in self.0.names()?.into_keys().filter(|name| !is_in_hand(name.as_str())) {
            self.0.forget_name(&name)?;
        }
        let all = || {
            let lying = lying.parts();
            Ok::<_, StoreError>(needed.iter().chain(&lying).map(|(_, part)| *part).collect())
        };
        self.0.prune_but(all).map(|_| ())
    }
}

impl Place {
    /// Counts a tree among what its tenant has, or refuses it. What it shares with another tree of the tenant is counted with
    /// both: it stays on the disk when the other one goes. The note of a tree that nothing means is swept, so that whoever counts
    /// one holds sweeps off until it is known to be needed.
    pub(super) async fn count_tree(&self, tenant: &Tenant, tree: NewTree) -> io::Result<()> {
        let (counted, tenant) = (Arc::clone(&self.0), tenant.as_str().to_owned());
        on_its_own_thread(move || {
            let room = counted.room("trees", &tenant)?;
            let name = file_name(&tree.digest);
            let (at, draft) = (room.join(&name), room.join(format!("{DRAFT}{name}")));
            if at.exists() {
                return Ok(());
            }
            // An image of the operator has no note.
            let before = self::counted(&room.join(file_name(&tree.parent)));
            let takes = tree.own.saturating_add(before).min(tree.whole);
            let bytes = blocks(takes);
            counted.reserve(&tenant, bytes, 1)?;
            // Whole or not at all: half a note would count as nothing.
            let written = fs::write(&draft, takes.to_string()).and_then(|()| fs::rename(&draft, &at));
            counted.release(&tenant, bytes);
            written
        })
        .await
    }
}

/// What a tree takes of its tenant's room, as it was counted.
pub(super) fn counted(note: &Path) -> u64 {
    fs::read_to_string(note).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use blastbox_images::oci::Platform;
    use blastbox_images::store::Import;

    #[tokio::test]
    async fn a_tree_counts_for_its_tenant_and_goes_when_nothing_means_it() {
        let scratch = Scratch::new("trees");
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        let operators = Store::open(&scratch.path().join("store")).unwrap();
        let name = "base".parse().unwrap();
        let platform = Platform::here();
        let import = Import { path: &root, name: Some(&name), tag: None, platform, caps: Caps::default() };
        let parent = operators.import(&import, &mut |_| {}).unwrap().facts.digest;
        let open = || operators.open_tree(&parent).unwrap();
        let trees = Trees::open(&scratch.path().join("e2b/images")).unwrap();
        let place = Place::open(scratch.path().join("e2b")).unwrap();
        let ann: Tenant = "ann".parse().unwrap();
        let build = "00000000-0000-4000-8000-000000000000";
        let tree = trees.with_directory(build, open(), "/srv/a".to_owned()).await.unwrap();
        place.count_tree(&ann, tree).await.unwrap();
        assert_eq!(counted(&scratch.path().join("e2b/trees/ann").join(file_name(&tree.digest))), tree.own);
        assert!(trees.find(&tree.digest).unwrap().has_directory("/srv/a").unwrap());
        assert!(operators.open_tree(&tree.digest).is_err(), "the operator's store is the operator's");
        let none = Lying::known_by(Vec::new);
        let nothing = BTreeSet::new();
        trees.sweep(&nothing, &none, |other| other == build).unwrap();
        assert!(trees.find(&tree.digest).is_some(), "a build in hand holds it");
        trees.sweep(&BTreeSet::from([("ann".to_owned(), tree.digest)]), &none, |_| false).unwrap();
        assert!(trees.find(&tree.digest).is_some(), "a template means it");
        let first = trees.find(&tree.digest).unwrap();
        let second = trees.with_directory(build, first, "/srv/a/b".to_owned()).await.unwrap();
        place.count_tree(&ann, second).await.unwrap();
        let takes = counted(&scratch.path().join("e2b/trees/ann").join(file_name(&second.digest)));
        assert_eq!(takes, (tree.own + second.own).min(second.whole));
        assert!(takes > second.own, "what the first one brought is counted when that is gone");
        let label = format!("one@{}", tree.digest);
        let lies = Lying::known_by(move || vec![("ann".parse().unwrap(), label.clone())]);
        trees.sweep(&nothing, &lies, |_| false).unwrap();
        assert!(trees.find(&tree.digest).is_some(), "a sandbox on disk needs it");
        trees.sweep(&nothing, &none, |_| false).unwrap();
        place.sweep(&nothing).unwrap();
        assert!(trees.find(&tree.digest).is_none());
        assert_eq!(fs::read_dir(scratch.path().join("e2b/trees/ann")).unwrap().count(), 0);
        let large = NewTree { own: 5 << 30, whole: 5 << 30, ..tree };
        assert_eq!(place.count_tree(&ann, large).await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    }
}
