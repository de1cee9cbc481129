//! The snapshots of a keeper: how many there may be, and the machines of those in use.
//!
//! What a tenant may keep is bounded, and so is what all of them together may. The machine of a snapshot is read one at a time, and
//! only for a box that was let in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use blastbox_images::machine::{SnapshotFault, Snapshots, Template};
use blastbox_wire::BoxId;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use super::admission::Room;
use super::cards::Tenant;
use super::copy_queue::{CopyQueue, busy};
use super::error::KeepError;
use super::house::House;
use super::in_turn::InTurn;
use super::snapshot_card::SnapshotLimits;
use super::snapshot_id::SnapshotId;
use super::snapshot_note::{Note, bound, list};
use crate::engine::SnapshotError;

/// How long somebody waits until the machines of others are read.
const OPENING: Duration = Duration::from_secs(60);
/// What must be left on the disk beside a snapshot: the ledger and the list of boxes lie there too.
const SPARE: u64 = 512 << 20;

/// A machine that boxes have begun with, and its room.
type InUse = (SnapshotId, Weak<Template>, Weak<Room>);

/// The snapshots of a keeper.
#[derive(Debug)]
pub(crate) struct Album {
    files: Option<Snapshots>,
    limits: SnapshotLimits,
    pub(super) copying: CopyQueue,
    /// Held while the machine of one is read, by whoever reads it: one whose caller went away goes on reading.
    opening: InTurn,
    /// Those that boxes have begun with which still live: the next one shares their memory, and its room.
    open: Mutex<Vec<InUse>>,
    /// What is written on all of them is read for one caller of each tenant at a time, whoever waits for it.
    reading: Mutex<BTreeMap<Tenant, Arc<tokio::sync::Mutex<()>>>>,
}

impl Album {
    pub(crate) fn new(limits: SnapshotLimits) -> Self {
        let files = limits.place.as_deref().map(Snapshots::at);
        if let Some(files) = &files {
            // What a daemon left that was killed while it wrote.
            files.sweep();
        }
        Self {
            files,
            limits,
            copying: CopyQueue::default(),
            opening: InTurn::default(),
            open: Mutex::default(),
            reading: Mutex::default(),
        }
    }

    pub(super) fn files(&self) -> Result<Snapshots, KeepError> {
        self.files.clone().ok_or(KeepError::Snapshot(SnapshotError::NotKept))
    }

    /// A tenant's turn to read them. It goes along to the thread that reads: one whose caller went away goes on reading.
    pub(super) async fn reading(&self, tenant: &Tenant) -> OwnedMutexGuard<()> {
        let own = {
            let mut all = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(all.entry(tenant.clone()).or_default())
        };
        own.lock_owned().await
    }

    fn find_open(&self, id: &SnapshotId) -> Option<(Arc<Template>, Arc<Room>)> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, template, room)| template.strong_count() > 0 && room.strong_count() > 0);
        let (_, template, room) = open.iter().find(|(known, ..)| known == id)?;
        template.upgrade().zip(room.upgrade())
    }

    fn note_open(&self, id: &SnapshotId, template: &Arc<Template>, room: &Arc<Room>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push((id.clone(), Arc::downgrade(template), Arc::downgrade(room)));
    }

    /// Takes away the files of boxes that do not lie on disk: a killed keeper may have left one.
    pub(super) fn sweep_paused(&self, lies: impl Fn(&BoxId) -> bool) {
        let Some(files) = &self.files else { return };
        for (name, note, _) in list(files) {
            if note.paused.is_some() && !(lies(&note.of) && name == SnapshotId::of_box(&note.of)) {
                // One that cannot be removed counts towards what its tenant keeps, and is tried again.
                files.remove(name.as_str()).ok();
            }
        }
    }

    /// Whether there is room for one more, at most so large.
    pub(super) fn room(&self, files: &Snapshots, tenant: &Tenant, memory: u64) -> Result<(), KeepError> {
        let mine = list(files).filter(|(_, note, _)| note.tenant == tenant.as_str());
        let (count, bytes) =
            mine.fold((0, 0_u64), |(count, sum), (_, _, bytes)| (count + 1, sum.saturating_add(bytes)));
        let total = files.bytes();
        let SnapshotLimits { count: most, tenant_bytes, bytes: host_bytes, .. } = self.limits;
        let what = match () {
            () if count >= most => "snapshots",
            () if bytes.saturating_add(memory) > tenant_bytes => "snapshot_bytes",
            () if total.saturating_add(memory) > host_bytes => "host_snapshot_bytes",
            () => return is_free(files.room(), memory),
        };
        Err(KeepError::QuotaSpent { what })
    }
}

fn is_free(room: Option<u64>, memory: u64) -> Result<(), KeepError> {
    match room {
        Some(room) if room < memory.saturating_add(SPARE) => {
            Err(KeepError::Snapshot(SnapshotError::DiskFull))
        }
        Some(_) | None => Ok(()),
    }
}

/// Takes room for all of a machine's memory before boxes begin as copies of it: what they touch and find empty would be taken twice
/// from what each of them may have.
pub(super) fn fill(template: &Template) -> Result<(), KeepError> {
    template.fill().map_err(|error| {
        KeepError::Snapshot(SnapshotError::Failed(format!("no memory for what is copied: {error}")))
    })
}

pub(super) fn fault(fault: SnapshotFault) -> KeepError {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    KeepError::Snapshot(match fault {
        SnapshotFault::Place(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
            SnapshotError::DiskFull
        }
        fault => SnapshotError::File(fault),
    })
}

/// Work on files is nobody else's to wait for.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(KeepError::Stopping))
}

/// The machine of a snapshot: that of boxes which began with it and still live, or what its file holds.
pub(super) async fn open(
    house: &Arc<House>,
    name: SnapshotId,
    note: Note,
) -> Result<(Arc<Template>, Arc<Room>), KeepError> {
    // That of a box is the last one of that name: who began with another may still be there.
    let shared = note.paused.is_none();
    if let Some(open) = house.album.find_open(&name).filter(|_| shared) {
        return Ok(open);
    }
    let files = house.album.files()?;
    let tenant: Tenant = note.tenant.parse().map_err(|_| fault(SnapshotFault::Foreign))?;
    let until = Instant::now() + OPENING;
    let (opening, room) = loop {
        let opening = timeout_at(until, house.album.opening.turn(&tenant)).await.map_err(|_| busy())?;
        // Whoever was before may have read it.
        if let Some(open) = house.album.find_open(&name).filter(|_| shared) {
            return Ok(open);
        }
        if let Some(room) = house.try_room_for_machine(note.memory) {
            break (opening, room);
        }
        if Instant::now() >= until {
            return Err(busy());
        }
        // Room is waited for without a turn: those whose machine fits do not wait for it.
        drop(opening);
        drop(house.room_for_machine(note.memory).await?);
    };
    let house = Arc::clone(house);
    on_thread(move || {
        // Until it is read, whoever waits for it.
        let _opening = opening;
        let found = files.find(name.as_str(), &bound(&name, &note), note.memory).map_err(fault)?;
        let template = Arc::new(found.ok_or(KeepError::NotFound)?);
        fill(&template)?;
        if shared {
            house.album.note_open(&name, &template, &room);
        }
        Ok((template, room))
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_disk_takes_a_machine_only_where_enough_stays_free_beside_it() {
        const MEMORY: u64 = 256 << 20;
        assert!(is_free(Some(MEMORY + SPARE), MEMORY).is_ok());
        // Nobody can say: then the disk will, when it is written to.
        assert!(is_free(None, u64::MAX).is_ok());
        for (room, memory) in [(MEMORY + SPARE - 1, MEMORY), (0, 0), (u64::MAX - 1, u64::MAX)] {
            let refused = is_free(Some(room), memory);
            assert!(
                matches!(refused, Err(KeepError::Snapshot(SnapshotError::DiskFull))),
                "{room}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_disk_that_becomes_full_is_told_by_name_and_other_trouble_as_what_it_is() {
        use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
        let told = |kind: std::io::ErrorKind| fault(SnapshotFault::Place(kind.into()));
        for full in [StorageFull, QuotaExceeded] {
            assert!(matches!(told(full), KeepError::Snapshot(SnapshotError::DiskFull)), "{full:?}");
        }
        assert!(matches!(told(PermissionDenied), KeepError::Snapshot(SnapshotError::File(_))));
        let cut = fault(SnapshotFault::Truncated);
        assert!(matches!(cut, KeepError::Snapshot(SnapshotError::File(SnapshotFault::Truncated))));
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_reads_its_snapshots_once_at_a_time_and_holds_up_nobody_else() {
        let album = Album::new(SnapshotLimits::default());
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let first = album.reading(&ann).await;
        assert!(timeout(OPENING, album.reading(&ann)).await.is_err());
        drop(timeout(OPENING, album.reading(&bob)).await.unwrap());
        drop(first);
        drop(timeout(OPENING, album.reading(&ann)).await.unwrap());
        drop(album.reading(&bob).await);
        assert_eq!(album.reading.lock().unwrap().len(), 1, "nobody who is done is remembered");
    }
}
