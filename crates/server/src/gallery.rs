//! The images that everybody may name: those that the operator gave a name in the configuration, and those of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use blastbox_images::{Image, ImageError, Store, StoreError};

use crate::config::Shape;

/// The images that everybody may name. What is in the store was put there by whoever runs the daemon.
#[derive(Debug, Default)]
pub struct Gallery {
    named: BTreeMap<String, PathBuf>,
    store: Option<Store>,
    /// Templates of E2B's SDKs that are made of them and of more.
    shapes: BTreeMap<String, Shape>,
}

impl Gallery {
    /// Directories by name, and a store.
    #[must_use]
    pub fn new(named: BTreeMap<String, PathBuf>, store: Option<Store>) -> Self {
        Self { named, store, shapes: BTreeMap::new() }
    }

    /// With templates of E2B's SDKs that the operator described.
    #[must_use]
    pub fn with_templates(mut self, shapes: BTreeMap<String, Shape>) -> Self {
        self.shapes = shapes;
        self
    }

    /// What the operator said of a template.
    pub(crate) fn shape(&self, template: &str) -> Option<&Shape> {
        self.shapes.get(template)
    }

    /// Every template that the operator said something of.
    pub(crate) fn shapes(&self) -> &BTreeMap<String, Shape> {
        &self.shapes
    }

    /// Opens the image of this name. `None`: nothing has this name. Looks at the disk.
    pub(crate) fn find(&self, name: &str) -> Option<Result<Image, ImageError>> {
        if let Some(path) = self.named.get(name) {
            return Some(path.to_str().map_or_else(|| Image::parse(""), Image::parse));
        }
        let store = self.store.as_ref().filter(|_| Image::may_be_stored(name))?;
        let image = name.parse().ok()?;
        match store.find(&image) {
            Ok(stored) => Some(Ok(Image::Stored(Box::new(stored)))),
            Err(StoreError::Unknown { .. }) => None,
            Err(error) => Some(Err(ImageError::Store(Box::new(error)))),
        }
    }

    /// Every name.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let stored = self.store.as_ref().and_then(|store| store.names().ok()).unwrap_or_default();
        self.named.keys().cloned().chain(stored.keys().map(ToString::to_string)).collect()
    }

    /// The store, where there is one.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use blastbox_images::oci::Platform;
    use blastbox_images::store::Import;
    use blastbox_images::tree::Caps;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn the_operators_names_go_before_those_of_the_store() {
        let scratch = Scratch::new("gallery");
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        let store = Store::open(&scratch.path().join("store")).unwrap();
        for name in ["tools", "base"] {
            let (name, platform) = (name.parse().unwrap(), Platform::here());
            let import =
                Import { path: &root, name: Some(&name), tag: None, platform, caps: Caps::default() };
            store.import(&import, &mut |_| {}).unwrap();
        }
        let gallery = Gallery::new(BTreeMap::from([("tools".to_owned(), root)]), Some(store));
        let label = |name: &str| gallery.find(name).map(|found| found.unwrap().label());
        assert!(label("tools").unwrap().starts_with("dir:"));
        assert!(label("base").unwrap().starts_with("base@sha256:"));
        assert_eq!(label("other"), None);
        assert_eq!(label("../root"), None);
        assert_eq!(gallery.names().into_iter().collect::<Vec<_>>(), ["base", "tools"]);
    }
}
