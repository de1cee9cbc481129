//! A module that a box wants and this daemon has not handed out yet: held against its hashes where an earlier daemon has compiled it, and
//! compiled where nobody has.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use blastbox_images::ModuleImage;
use blastbox_isolation::tiers::wasm::{Kept, Metering};
use blastbox_policy::GuestName;

use super::lease::Lease;
use super::place::{is_of, size};
use super::{ModuleTrouble, Turn};

/// What is wanted, by whoever's turn it is.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) turn: Turn,
    pub(super) name: GuestName,
    pub(super) metering: Metering,
}

/// What a look at it came to.
#[derive(Debug)]
pub(super) enum Looked {
    /// It is compiled, and whole.
    Ready(ModuleImage, Arc<Lease>),
    /// It is what was brought, and is not compiled.
    Bare(Asked),
}

impl Asked {
    fn file(&self) -> Result<PathBuf, ModuleTrouble> {
        self.turn.modules.brought(&self.turn.tenant, &self.name)
    }

    /// The file with which the machine code ends that is compiled the other way.
    fn other_manifest(&self) -> String {
        let other = match self.metering {
            Metering::None => Metering::Fuel,
            Metering::Fuel => Metering::None,
        };
        other.manifest(self.name.as_str())
    }

    /// Looks whether there is machine code of it for this engine. Takes nothing away: what is whole stays, whatever else is wrong.
    pub(super) fn look(self) -> Result<Looked, ModuleTrouble> {
        let (modules, whose) = (&self.turn.modules, &self.turn.tenant);
        let file = self.file()?;
        let kept = modules.look(&file, &self.name, self.metering, &modules.place.home(whose, &self.name))?;
        let digest = match &kept {
            Kept::Whole(module) => &module.digest,
            Kept::Missing { digest } => digest,
        };
        if !is_of(&file, digest) {
            return Err(ModuleTrouble::Damaged { name: self.name.to_string() });
        }
        match kept {
            Kept::Whole(module) => {
                let (module, lease) = modules.learn(whose, self.metering, module);
                Ok(Looked::Ready(module, lease))
            }
            Kept::Missing { .. } => Ok(Looked::Bare(self)),
        }
    }

    /// Has it compiled.
    pub(super) fn compile(self) -> Result<(ModuleImage, Arc<Lease>), ModuleTrouble> {
        let (modules, whose) = (&self.turn.modules, &self.turn.tenant);
        let (file, home) = (self.file()?, modules.place.home(whose, &self.name));
        let most = modules.limits.disk;
        // None of it is whole: it was made for another version of the engine, and goes once there is another.
        let other = self.other_manifest();
        let outdated: u64 = modules.place.outdated(&home, None, &other)?.iter().map(|path| size(path)).sum();
        if modules.place.used(whose).saturating_sub(outdated) >= most {
            return Err(ModuleTrouble::Full { most });
        }
        let module = modules.compile(&file, &self.name, self.metering, &home)?;
        if !is_of(&file, &module.digest) {
            fs::remove_dir_all(&module.directory).ok();
            return Err(ModuleTrouble::Damaged { name: self.name.to_string() });
        }
        for path in modules.place.outdated(&home, Some(&module.directory), &other)? {
            // What cannot be removed is counted, and tried again.
            fs::remove_dir_all(path).ok();
        }
        if modules.place.used(whose) > most {
            fs::remove_dir_all(&module.directory).ok();
            return Err(ModuleTrouble::Full { most });
        }
        Ok(modules.learn(whose, self.metering, module))
    }
}
