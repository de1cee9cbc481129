//! A module on its way in: written where nobody looks, compiled, and put into its place whole.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use blastbox_isolation::tiers::wasm::Metering;
use blastbox_policy::GuestName;
use blastbox_wire::event::{Event, Label};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::place::{BROUGHT, brought_as, size};
use super::{ModuleCard, ModuleTrouble, Turn, on_thread, seat};

/// How many bytes are written until the disk is looked at again.
const AHEAD: u64 = 4 << 20;

/// A module on its way in. Dropped, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Draft {
    turn: Turn,
    name: GuestName,
    home: Home,
    file: File,
    written: u64,
    /// How far the disk was looked at.
    free: u64,
    /// What its tenant may add, the module that it takes the place of not counted.
    room: u64,
}

/// A directory that goes with this, as long as it is a draft's.
#[derive(Debug)]
struct Home {
    path: PathBuf,
    is_ours: bool,
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.is_ours {
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

impl Draft {
    pub(super) fn new(turn: Turn, name: GuestName) -> Result<Self, ModuleTrouble> {
        let modules = &turn.modules;
        let replaced = modules.place.used_by(&turn.tenant, &name);
        let used = modules.place.used(&turn.tenant).saturating_sub(replaced);
        modules.place.has_free(AHEAD)?;
        let home = Home { path: modules.place.fresh(&turn.tenant)?, is_ours: true };
        let file = fs::OpenOptions::new().write(true).create_new(true).open(home.path.join(BROUGHT))?;
        let room = modules.limits.disk.saturating_sub(used);
        Ok(Self { name, home, file: File::from_std(file), written: 0, free: AHEAD, room, turn })
    }

    /// The next piece of it.
    pub(crate) async fn write(&mut self, piece: &Bytes) -> Result<(), ModuleTrouble> {
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(length);
        let limits = self.turn.modules.limits;
        if self.written > limits.largest {
            return Err(ModuleTrouble::TooLarge { most: limits.largest });
        }
        if self.written > self.room {
            return Err(ModuleTrouble::Full { most: limits.disk });
        }
        if self.written > self.free {
            self.free = self.written.saturating_add(AHEAD);
            let modules = Arc::clone(&self.turn.modules);
            let ahead = length.saturating_add(AHEAD);
            on_thread(move || Ok(modules.place.has_free(ahead)?)).await?;
        }
        Ok(self.file.write_all(piece).await?)
    }

    /// That was all of it: it is compiled, and takes the place of the one that was called so.
    pub(crate) async fn compile(mut self) -> Result<ModuleCard, ModuleTrouble> {
        self.file.flush().await?;
        // Its name says what it is, also after a power failure.
        self.file.sync_all().await?;
        let held = seat(&self.turn.modules.seats).await?;
        // Everything that is held goes along: whoever asked may go away, and the compiler does not.
        on_thread(move || {
            let _held = held;
            self.settle()
        })
        .await
    }

    fn settle(self) -> Result<ModuleCard, ModuleTrouble> {
        let Self { turn, name, mut home, room, .. } = self;
        let (modules, tenant) = (&turn.modules, &turn.tenant);
        let brought = home.path.join(BROUGHT);
        let mut module = modules.compile(&brought, &name, Metering::None, &home.path)?;
        if size(&home.path) > room {
            return Err(ModuleTrouble::Full { most: modules.limits.disk });
        }
        fs::rename(&brought, home.path.join(brought_as(module.form, &module.digest)))?;
        let digest = format!("sha256:{}", module.digest).parse().map_err(|_| ModuleTrouble::Defect)?;
        let [whose, called] = [tenant.as_str(), name.as_str()].map(Label::new);
        modules.announce(&Event::ModuleBrought { tenant: whose, module: called, digest })?;
        let lease = modules.forget(tenant, name.as_str());
        let before = modules.place.put(tenant, &name, &home.path)?;
        // There may lie what was there before, which boxes may begin with.
        home.is_ours = false;
        if let Some(before) = before {
            lease.end(before);
        }
        // It lies elsewhere now.
        let key = module.directory.file_name().map(PathBuf::from).unwrap_or_default();
        module.directory = modules.place.home(tenant, &name).join(key);
        modules.learn(tenant, Metering::None, module);
        let listed = modules.place.list(tenant)?;
        listed.into_iter().find(|card| card.name == name.as_str()).ok_or(ModuleTrouble::Defect)
    }
}
