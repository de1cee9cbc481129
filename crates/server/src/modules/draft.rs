//! A module on its way in: written where nobody looks, compiled, and put into its place whole.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use blastbox_isolation::tiers::wasm::Metering;
use blastbox_policy::GuestName;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

use super::place::{BROUGHT, brought_as};
use super::{ModuleCard, ModuleTrouble, Turn};

/// A module on its way in. Dropped, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Draft {
    turn: Turn,
    name: GuestName,
    home: Home,
    file: File,
    written: u64,
    /// What its tenant may add, the module that it takes the place of not counted.
    room: u64,
}

/// A directory that goes with this, unless it has got another name.
#[derive(Debug)]
struct Home(PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

impl Draft {
    pub(super) fn new(turn: Turn, name: GuestName) -> Result<Self, ModuleTrouble> {
        let modules = &turn.modules;
        let replaced = modules.place.used_by(&turn.tenant, &name);
        let used = modules.place.used(&turn.tenant).saturating_sub(replaced);
        let home = Home(modules.place.fresh(&turn.tenant)?);
        let file = fs::OpenOptions::new().write(true).create_new(true).open(home.0.join(BROUGHT))?;
        let room = modules.limits.disk.saturating_sub(used);
        Ok(Self { name, home, file: File::from_std(file), written: 0, room, turn })
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
        Ok(self.file.write_all(piece).await?)
    }

    /// That was all of it: it is compiled, and takes the place of the one that was called so.
    pub(crate) async fn compile(mut self) -> Result<ModuleCard, ModuleTrouble> {
        self.file.flush().await?;
        // Its name says what it is, also after a power failure.
        self.file.sync_all().await?;
        let modules = Arc::clone(&self.turn.modules);
        let seat = modules.seat().await?;
        // Everything that is held goes along: whoever asked may go away, and the compiler does not.
        let work = move || {
            let _seat = seat;
            self.settle()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(ModuleTrouble::Defect))
    }

    fn settle(self) -> Result<ModuleCard, ModuleTrouble> {
        let Self { turn, name, home, room, .. } = self;
        let (modules, tenant) = (&turn.modules, &turn.tenant);
        let brought = home.0.join(BROUGHT);
        let mut module = modules.compile(&brought, &name, Metering::None, &home.0)?;
        if super::place::size(&home.0) > room {
            return Err(ModuleTrouble::Full { most: modules.limits.disk });
        }
        fs::rename(&brought, home.0.join(brought_as(module.form, &module.digest)))?;
        modules.place.put(tenant, &name, &home.0)?;
        // It lies elsewhere now.
        let key = module.directory.file_name().map(PathBuf::from).unwrap_or_default();
        module.directory = modules.place.home(tenant, &name).join(key);
        modules.forget(tenant, name.as_str());
        modules.learn(tenant, Metering::None, &module);
        let listed = modules.place.list(tenant)?;
        listed.into_iter().find(|card| card.name == name.as_str()).ok_or(ModuleTrouble::Defect)
    }
}
