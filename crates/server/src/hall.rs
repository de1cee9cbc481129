//! What every handler shares.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::FromRef;
use blastbox_engine::keeper::{Keeper, Tenant};

use crate::config::{Builds, Internet, Roots};
use crate::e2b::{Drawer, SecretLimits, Shelf, VolumeLimits};
use crate::gallery::Gallery;
use crate::keys::Keys;
use crate::mcp::http::Services;
use crate::modules::{ModuleLimits, Modules};
use crate::room::Rooms;
use crate::warm::{Begins, WarmText};

/// What every handler shares. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hall {
    pub(crate) keeper: Keeper,
    pub(crate) keys: Arc<Keys>,
    /// Images that everybody may name.
    pub(crate) images: Arc<Gallery>,
    /// Directories that tenants with keys may name as workspaces, with what lies beneath them.
    pub(crate) roots: Arc<BTreeMap<Tenant, Vec<PathBuf>>>,
    /// Web pages that may ask.
    pub(crate) origins: Arc<Vec<String>>,
    /// What sandboxes of E2B's SDKs reach where their owner does not say.
    pub(crate) internet: Internet,
    /// Which of E2B's sandboxes have a root.
    pub(crate) roots_of_boxes: Roots,
    /// What the operator said of what boxes begin while they wait in the pool, by template.
    pub(crate) begins: Arc<BTreeMap<String, Begins>>,
    /// Where templates that tenants build are kept, and what a build may do, unless the operator wants no builds.
    pub(crate) templates: Option<Arc<Path>>,
    pub(crate) builds: Option<Builds>,
    /// Directories that outlive sandboxes, where the operator wants them.
    pub(crate) volumes: Option<Arc<Shelf>>,
    /// Values that headers of sandboxes' requests are filled with, unless the operator wants none.
    pub(crate) secrets: Option<Arc<Drawer>>,
    /// Programs of the tier `wasm` that tenants bring, unless the operator wants none.
    pub(crate) modules: Option<Arc<Modules>>,
    /// The domain in the names of their ports.
    pub(crate) domain: Option<Arc<str>>,
    /// What answers hold that are kept whole.
    pub(crate) rooms: Arc<Rooms>,
    /// What requests hold whose bodies are gathered.
    pub(crate) bodies: Arc<Rooms>,
    /// MCP clients.
    pub(crate) mcp: Arc<Services>,
    /// Whose socket this is.
    pub(crate) own_uid: u32,
}

impl Hall {
    /// A hall around a keeper.
    #[must_use]
    pub fn new(keeper: Keeper, keys: Keys, images: Gallery) -> Self {
        let own_uid = rustix::process::geteuid().as_raw();
        Self {
            keeper,
            keys: Arc::new(keys),
            images: Arc::new(images),
            roots: Arc::default(),
            origins: Arc::default(),
            rooms: Rooms::of_answers(),
            bodies: Rooms::of_bodies(),
            internet: Internet::default(),
            roots_of_boxes: Roots::Nowhere,
            begins: Arc::default(),
            templates: None,
            builds: None,
            volumes: None,
            secrets: None,
            modules: None,
            domain: None,
            mcp: Arc::default(),
            own_uid,
        }
    }

    /// With directories that tenants may name as workspaces.
    #[must_use]
    pub fn with_roots(mut self, roots: BTreeMap<Tenant, Vec<PathBuf>>) -> Self {
        self.roots = Arc::new(roots);
        self
    }

    /// With what the operator says of sandboxes of E2B's SDKs.
    #[must_use]
    pub fn with_e2b(mut self, internet: Internet, domain: Option<String>, roots: Roots) -> Self {
        (self.internet, self.domain, self.roots_of_boxes) = (internet, domain.map(Into::into), roots);
        self
    }

    /// With templates that tenants build, kept in this directory. Without a word of builds, what is there is used and nothing
    /// new is built.
    #[must_use]
    pub fn with_templates(mut self, path: &Path, builds: Option<Builds>) -> Self {
        (self.templates, self.builds) = (Some(path.into()), builds);
        self
    }

    /// With volumes of tenants, kept in this directory. Looks at the disk.
    pub fn with_volumes(mut self, path: &Path, limits: Option<VolumeLimits>) -> io::Result<Self> {
        self.volumes = limits.map(|limits| Shelf::open(path, limits)).transpose()?.map(Arc::new);
        Ok(self)
    }

    /// With secrets of tenants, kept in this directory. Looks at the disk.
    pub fn with_secrets(mut self, path: &Path, limits: Option<SecretLimits>) -> io::Result<Self> {
        self.secrets = limits.map(|limits| Drawer::open(path, limits)).transpose()?.map(Arc::new);
        Ok(self)
    }

    /// With modules of tenants, kept in this directory. Looks at the disk.
    pub fn with_modules(mut self, path: &Path, limits: Option<ModuleLimits>) -> io::Result<Self> {
        let guests = self.keeper.engine().facts().wasm.clone();
        let opened = limits.map(|limits| Modules::open(path, limits, guests)).transpose()?;
        let recorded = opened.map(|modules| modules.recorded_by(self.keeper.clone()));
        self.modules = recorded.map(Arc::new);
        Ok(self)
    }

    /// What was left of volumes that are nobody's and could not be taken away, each with the reason: the next start tries again.
    #[must_use]
    pub fn left_of_volumes(&self) -> &[String] {
        self.volumes.as_ref().map_or(&[], |shelf| shelf.left())
    }

    /// Records of volumes that cannot be read, each with the reason. Those volumes are left out, and what lies in them is kept.
    #[must_use]
    pub fn damaged_volumes(&self) -> Vec<String> {
        self.volumes.as_ref().map(|shelf| shelf.damaged()).unwrap_or_default()
    }

    /// Files of secrets that cannot be read, each with the reason. Their tenants have none until they are mended, and they are kept.
    #[must_use]
    pub fn damaged_secrets(&self) -> &[String] {
        self.secrets.as_ref().map_or(&[], |drawer| drawer.wrong())
    }

    /// With what the operator says of what boxes begin in the pool, in `[[pool.warm]]`.
    #[must_use]
    pub fn with_begins(mut self, warm: &[(WarmText, usize)]) -> Self {
        self.begins = Arc::new(warm.iter().filter_map(|(text, _)| text.begins_of()).collect());
        self
    }

    /// With web pages that may ask.
    #[must_use]
    pub fn with_origins(mut self, origins: Vec<String>) -> Self {
        self.origins = Arc::new(origins);
        self
    }
}

impl FromRef<Hall> for Keeper {
    fn from_ref(hall: &Hall) -> Self {
        hall.keeper.clone()
    }
}
