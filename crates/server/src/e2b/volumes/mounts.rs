//! Volumes that a sandbox shall have: by name, each at a place of its own.

use std::sync::Arc;

use blastbox_engine::VolumeDir;
use blastbox_isolation::MOST_VOLUMES;
use blastbox_policy::{Gap, SealedPolicy};
use blastbox_wire::plan::{GuestPath, VOLUMES_AT};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shelf::{Claim, Shelf, Volume};
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::trouble::line;
use blastbox_engine::keeper::Tenant;

/// As an owner asks for it.
#[derive(Debug, Deserialize)]
pub(in crate::e2b) struct Asked {
    name: String,
    path: String,
}

/// One that a sandbox has.
#[derive(Debug)]
pub(in crate::e2b) struct Mount {
    id: String,
    name: String,
    path: String,
}

/// Those of one sandbox.
#[derive(Debug, Default)]
pub(in crate::e2b) struct Mounts(Vec<Mount>);

/// What becomes of a box that has them.
#[derive(Debug)]
pub(in crate::e2b) struct Wanted {
    pub(in crate::e2b) directories: Vec<VolumeDir>,
    pub(in crate::e2b) mounts: Mounts,
    /// Held until the sandbox is known.
    pub(in crate::e2b) claim: Option<Claim>,
}

fn refused(why: String) -> No {
    No::bad(why).coded("sandbox_create_refused")
}

impl Mounts {
    pub(in crate::e2b) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|mount| mount.id == id)
    }

    pub(in crate::e2b) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|mount| (mount.id.as_str(), mount.name.as_str()))
    }

    /// As E2B shows them.
    pub(in crate::e2b) fn show(&self) -> Value {
        self.0.iter().map(|mount| json!({ "name": mount.name, "path": mount.path })).collect()
    }

    /// Opens what a new sandbox of this tenant shall have. Looks at the disk.
    pub(in crate::e2b) async fn open(
        desk: &Desk,
        tenant: &Tenant,
        asked: Option<&[Asked]>,
    ) -> Result<Wanted, No> {
        let asked = asked.unwrap_or_default();
        if asked.is_empty() {
            return Ok(Wanted { directories: Vec::new(), mounts: Self::default(), claim: None });
        }
        let shelf = Arc::clone(super::shelf(desk)?);
        let places = places(asked)?;
        let names: Vec<&str> = asked.iter().map(|asked| asked.name.as_str()).collect();
        let claimed = shelf.claim(tenant, &names);
        let (claim, volumes) =
            claimed.map_err(|name| refused(format!("volumeMounts: volume \"{}\" not found", echo(&name))))?;
        let mounts = volumes.iter().zip(asked).map(|(volume, asked)| Mount {
            id: volume.id.clone(),
            name: volume.name.clone(),
            path: asked.path.clone(),
        });
        let mounts = Self(mounts.collect());
        let opened = desk.apart.of(tenant).run(move || directories(&shelf, &volumes, places)).await;
        let directories = opened??;
        Ok(Wanted { directories, mounts, claim: Some(claim) })
    }
}

/// Where each goes. One of a name that two have would hide the other.
fn places(asked: &[Asked]) -> Result<Vec<GuestPath>, No> {
    if asked.len() > MOST_VOLUMES {
        return Err(refused(format!("volumeMounts: a sandbox has at most {MOST_VOLUMES} volumes")));
    }
    let mut places: Vec<GuestPath> = Vec::new();
    for Asked { path, .. } in asked {
        let place = path.parse::<GuestPath>().ok();
        let name = path.strip_prefix(VOLUMES_AT).and_then(|rest| rest.strip_prefix('/'));
        let one = name.is_some_and(|name| !name.is_empty() && !name.contains('/'));
        match place.filter(|_| one) {
            Some(place) if !places.contains(&place) => places.push(place),
            Some(_) => return Err(refused(format!("volumeMounts: \"{}\" is there twice", echo(path)))),
            None => {
                let path = echo(path);
                return Err(refused(format!(
                    "volumeMounts: \"{path}\" is refused: a volume is mounted at {VOLUMES_AT}/NAME"
                )));
            }
        }
    }
    Ok(places)
}

fn directories(shelf: &Shelf, volumes: &[Volume], places: Vec<GuestPath>) -> Result<Vec<VolumeDir>, No> {
    let mut directories = Vec::new();
    for (volume, place) in volumes.iter().zip(places) {
        let unread = |error: std::io::Error| {
            No::new(500, format!("volume \"{}\" cannot be opened: {error}", volume.name))
        };
        let amount = shelf.measure(&volume.id).map_err(unread)?;
        if amount.bytes > shelf.most().bytes || amount.entries > shelf.most().entries {
            return Err(No::new(
                507,
                format!(
                    "volume \"{}\" is full: it may have {} bytes in {} entries; remove something from it first",
                    volume.name,
                    shelf.most().bytes,
                    shelf.most().entries
                ),
            ));
        }
        directories.push(VolumeDir::new(place, shelf.tree(&volume.id).map_err(unread)?.into_directory()));
    }
    if !shelf.disk_has_room() {
        return Err(No::new(507, "the disk of the host has no room for what a sandbox writes to volumes"));
    }
    Ok(directories)
}

/// The same policy for a sandbox with volumes: the operator, who has them on, accepts that nobody's kernel holds their size.
pub(in crate::e2b) fn accepted(policy: &SealedPolicy) -> Result<SealedPolicy, No> {
    policy
        .draft()
        .accept(Gap::VolumeSize)
        .seal()
        .map_err(|error| refused(format!("volumeMounts: {}", line(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_goes_to_one_place_of_its_own() {
        let asked = |paths: &[&str]| {
            let all: Vec<Asked> =
                paths.iter().map(|path| Asked { name: "v".to_owned(), path: (*path).to_owned() }).collect();
            places(&all).map(|places| places.len())
        };
        assert_eq!(asked(&["/mnt/a", "/mnt/b"]).unwrap(), 2);
        for bad in [
            "/mnt",
            "/mnt/",
            "/mnt/a/b",
            "/mnt/..",
            "/mntx/a",
            "/usr",
            "/home/user/v",
            "mnt/a",
            "/mnt//a",
            "",
        ] {
            assert_eq!(asked(&[bad]).unwrap_err().status(), 400, "{bad}");
        }
        assert!(asked(&["/mnt/a", "/mnt/a"]).is_err());
        assert!(asked(&["/mnt/a", "/mnt/b", "/mnt/c", "/mnt/d", "/mnt/e"]).is_err());
    }

    #[test]
    fn the_size_of_volumes_is_accepted_below_critical_alone() {
        use blastbox_policy::Profile;
        let sealed = |profile: Profile| profile.draft().unwrap().seal().unwrap();
        assert!(accepted(&sealed(Profile::Default)).unwrap().accepts(Gap::VolumeSize));
        assert!(!sealed(Profile::Default).accepts(Gap::VolumeSize));
        assert_eq!(accepted(&sealed(Profile::Critical)).unwrap_err().status(), 400);
    }
}
