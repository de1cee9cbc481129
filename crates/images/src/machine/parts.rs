//! What a guest of one image starts from, found or made.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use blastbox_wire::event::Hash;

use super::error::MachineError;
use super::kernels::Kernels;
use super::templates::Templates;
use super::{fresh, squashfs};
use crate::store::Hold;

/// The directory in the store.
pub(crate) const DISKS: &str = "disks";

/// What a guest of one image starts from. All of it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The kernel.
    pub kernel: PathBuf,
    /// Its digest.
    pub digest: Hash,
    /// What it calls itself.
    pub release: String,
    /// Whether it has a driver for a network card.
    pub network: bool,
    /// Whether it can lay changes over a workspace.
    pub overlay: bool,
    /// What it unpacks before it starts its first process.
    pub first_files: PathBuf,
    /// The image as a disk.
    pub disk: PathBuf,
}

/// Where the parts for one image are made. Shared, because making them takes long and is done on a thread of its own.
#[derive(Debug)]
pub struct Workshop {
    store: PathBuf,
    image: Hash,
    /// Its tree, which stays for as long as somebody works here.
    tree: Hold,
    made: OnceLock<Result<Parts, String>>,
}

impl Workshop {
    pub(crate) fn new(store: &Path, image: Hash, tree: Hold) -> Self {
        Self { store: store.to_owned(), image, tree, made: OnceLock::new() }
    }

    /// What was made, or why not; `None`: nobody has asked for it.
    pub(crate) fn parts(&self) -> Option<Result<&Parts, &str>> {
        self.made.get().map(|made| made.as_ref().map_err(String::as_str))
    }

    /// Machines that sleep, for boxes that begin as copies of them.
    #[must_use]
    pub fn templates(&self) -> Templates {
        Templates::of_store(&self.store)
    }

    /// Whether there is a kernel at all. Cheap.
    pub(crate) fn has_kernel(&self) -> bool {
        Kernels::of_store(&self.store).current().is_ok_and(|kernel| kernel.is_some())
    }

    /// Finds the parts, and makes those that are not there; `agent` becomes the first process of guests. A disk is made once
    /// for each image: the first time the whole of it is copied, which may take minutes.
    pub fn prepare(&self, agent: &Path) {
        self.made.get_or_init(|| self.make(agent).map_err(|error| told(&error)));
    }

    fn make(&self, agent: &Path) -> Result<Parts, MachineError> {
        let kernel = Kernels::of_store(&self.store).current()?.ok_or(MachineError::NoKernel)?;
        Ok(Parts {
            kernel: kernel.image(),
            digest: kernel.facts().digest,
            release: kernel.facts().release.clone(),
            network: kernel.facts().network,
            overlay: kernel.facts().overlay,
            first_files: kernel.first_files(agent)?,
            disk: self.disk(self.tree.as_fd())?,
        })
    }

    fn disk(&self, tree: BorrowedFd<'_>) -> Result<PathBuf, MachineError> {
        let folder = self.store.join(DISKS);
        let path = folder.join(disk_file(&self.image));
        if path.exists() {
            return Ok(path);
        }
        let failed = || MachineError::place("make the disk", &path);
        std::fs::create_dir_all(&folder).map_err(failed())?;
        fresh::sweep(&folder);
        // Two that make the same one at the same time both succeed, and one of them stays.
        fresh::file(&folder, &disk_file(&self.image), |file| squashfs::write(tree, file)).map_err(failed())?;
        Ok(path)
    }
}

/// The error and what is behind it, in one line.
fn told(error: &MachineError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Takes the disk of an image away, what was left of disks that nobody finished, and all templates: which of them are of this
/// image nobody remembers, and they are made again in seconds.
pub(crate) fn forget_disk(store: &Path, image: &Hash) -> std::io::Result<()> {
    Templates::of_store(store).clear();
    let folder = store.join(DISKS);
    let Ok(list) = std::fs::read_dir(&folder) else { return Ok(()) };
    let ours = disk_file(image);
    for entry in list.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(&ours)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The disk of an image in its directory of the store.
pub(crate) fn disk_file(image: &Hash) -> String {
    format!("{}.squashfs", image.to_string().replacen(':', "-", 1))
}
