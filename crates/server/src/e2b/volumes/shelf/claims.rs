//! Who has a volume, or will, and who may delete it.

use std::fs;
use std::io;
use std::sync::Arc;

use blastbox_engine::keeper::Tenant;

use super::{Kept, Shelf, Stay, Volume};

/// Volumes that a sandbox in the making will have, or one that is written to: they stay until it has them, or this is dropped.
#[derive(Debug)]
pub(in crate::e2b) struct Claim {
    shelf: Arc<Shelf>,
    ids: Vec<String>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.shelf.all();
        for id in &self.ids {
            if let Some(kept) = all.get_mut(id) {
                kept.claims = kept.claims.saturating_sub(1);
            }
        }
    }
}

/// One that is about to be deleted. It stays, as it was, unless its record is gone when this is dropped.
struct Leaving<'a> {
    shelf: &'a Shelf,
    id: &'a str,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.shelf.all().get_mut(self.id) {
            kept.stay = Stay::Stays;
        }
    }
}

/// What became of a wish to delete a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::e2b::volumes) enum Parting {
    Gone,
    /// Somebody else has taken it out, and clears it.
    Unknown,
    /// A sandbox has it, or will, or somebody writes to it.
    Used,
    /// Somebody else is about to.
    Underway,
}

impl Shelf {
    /// Claims a tenant's volumes by their names; an error is the name that there is none of.
    pub(in crate::e2b::volumes) fn claim(
        self: &Arc<Self>,
        tenant: &Tenant,
        names: &[&str],
    ) -> Result<(Claim, Vec<Volume>), String> {
        let mut all = self.all();
        let mut claimed = Vec::new();
        for name in names {
            let own = |kept: &&Kept| {
                kept.stay == Stay::Stays && kept.volume.tenant == *tenant && kept.volume.name == *name
            };
            let found = all.values().find(own).ok_or_else(|| (*name).to_owned())?;
            claimed.push(found.volume.clone());
        }
        let ids: Vec<String> = claimed.iter().map(|volume| volume.id.clone()).collect();
        for id in &ids {
            if let Some(kept) = all.get_mut(id) {
                kept.claims += 1;
            }
        }
        drop(all);
        Ok((Claim { shelf: Arc::clone(self), ids }, claimed))
    }

    /// Claims one to write to it. `None`: it is gone, or about to go.
    pub(in crate::e2b::volumes) fn claim_one(self: &Arc<Self>, id: &str) -> Option<Claim> {
        let mut all = self.all();
        let kept = all.get_mut(id).filter(|kept| kept.stay == Stay::Stays)?;
        kept.claims += 1;
        drop(all);
        Some(Claim { shelf: Arc::clone(self), ids: vec![id.to_owned()] })
    }

    /// Takes a volume out, unless somebody has it: what is in it stays until [`Self::clear`]. Looks at the disk.
    pub(in crate::e2b::volumes) fn take_out(
        &self,
        id: &str,
        is_used: impl FnOnce() -> bool,
    ) -> io::Result<Parting> {
        match self.all().get_mut(id) {
            None => return Ok(Parting::Unknown),
            Some(Kept { stay: Stay::Leaves, .. }) => return Ok(Parting::Underway),
            Some(kept) if kept.claims > 0 => return Ok(Parting::Used),
            Some(kept) => kept.stay = Stay::Leaves,
        }
        let _leaving = Leaving { shelf: self, id };
        // From here on nobody can claim it; who had before is a sandbox by now.
        if is_used() {
            return Ok(Parting::Used);
        }
        fs::remove_file(self.record(id))?;
        self.all().remove(id);
        Ok(Parting::Gone)
    }
}
