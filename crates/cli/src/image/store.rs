//! Where images are, and which one is meant.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use blastbox_engine::keeper::paused_in;
use blastbox_images::machine::Kernels;
use blastbox_images::store::Needs;
use blastbox_images::{Image, Store};
use clap::Args;

use crate::problem::Problem;

/// Where images are.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreFlag {
    /// Where images are kept [default: `images` in the state directory: /var/lib/blastbox as root, else
    /// $XDG_STATE_HOME/blastbox]
    #[arg(long, value_name = "DIR", env = "BLASTBOX_STORE", hide_env_values = true)]
    store: Option<PathBuf>,
}

impl StoreFlag {
    fn usual() -> Option<PathBuf> {
        let uid = rustix::process::geteuid().as_raw();
        let state = blastbox_server::places::state(uid, |name| std::env::var_os(name))?;
        Some(state.join("images"))
    }

    /// The directory that was named, or the usual one.
    fn path(&self) -> Option<PathBuf> {
        self.store.clone().or_else(Self::usual)
    }

    /// The store, made where there is none.
    pub(crate) fn open(&self) -> Result<Store, Problem> {
        Ok(Store::open(&self.path().ok_or(Problem::NoStore)?)?)
    }

    /// The same for a daemon, which keeps images with its state.
    pub(crate) fn open_beside(&self, state: &std::path::Path) -> Result<Store, Problem> {
        Ok(Store::open(&self.store.clone().unwrap_or_else(|| state.join("images")))?)
    }

    /// Images that boxes need which are paused to disk. Their files lie beside the store, in the usual place of a daemon's state, or
    /// where it was named. A place that cannot be read is an error: what is taken away is not made again.
    pub(crate) fn needed(store: &Store, state: Option<&Path>) -> Result<Needs, Problem> {
        if let Some(state) = state {
            // A directory that is none has no daemon's boxes, and one whose name was mistyped neither.
            std::fs::read_dir(state)
                .map_err(|error| Problem::PausedUnread { place: state.to_owned(), error })?;
        }
        let beside = store.path().parent().map(|state| state.join("snapshots"));
        let named = state.map(|state| state.join("snapshots"));
        let usual = Self::usual().and_then(|store| Some(store.parent()?.join("snapshots")));
        // What is usual is a guess: whoever may not look there has no daemon there.
        let usual = usual.filter(|place| !is_closed(place));
        let places: BTreeSet<PathBuf> = beside.into_iter().chain(usual).chain(named).collect();
        let mut needed = Needs::new();
        for place in places {
            let paused =
                paused_in(&place).map_err(|error| Problem::PausedUnread { place: place.clone(), error })?;
            for (id, image) in paused {
                let digest = image.rsplit('@').next().and_then(|digest| digest.parse().ok());
                if let Some(digest) = digest {
                    needed.entry(digest).or_default().push(id.as_str().to_owned());
                }
            }
        }
        Ok(needed)
    }

    /// The kernels of the store, which is made where there is none.
    pub(crate) fn kernels(&self) -> Result<Kernels, Problem> {
        Ok(Kernels::of_store(self.open()?.path()))
    }

    /// The image that is meant: `host`, a name in the store, or a directory.
    pub(crate) fn image(&self, text: &str) -> Result<Image, Problem> {
        let store = match self.path().filter(|_| Image::may_be_stored(text)) {
            Some(path) => Store::look(&path)?,
            None => None,
        };
        Ok(Image::find(text, store.as_ref())?)
    }
}

fn is_closed(place: &Path) -> bool {
    std::fs::read_dir(place).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
