//! Snapshots of boxes that run: taken, listed, taken away, begun with.
//!
//! Whose turn it is says [`CopyQueue`]. What a tenant may keep is bounded, and so is what all of them together may. The machine of a
//! snapshot is read one at a time, and only for a box that was let in.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use blastbox_images::machine::{SnapshotFault, Snapshots, Template};
use blastbox_policy::{SealedPolicy, parse, to_toml};
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, Hash, Label};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::timeout;

use super::cards::{Phase, Tenant};
use super::config::NewBox;
use super::copy_queue::{CopyQueue, busy};
use super::error::KeepError;
use super::events::wall_clock;
use super::face::{Keeper, to_its_end};
use super::house::House;
use super::kept::Kept;
use super::snapshot_card::{Caption, SnapshotCard, SnapshotLimits};
use super::snapshot_id::SnapshotId;
use super::snapshot_note::{Note, NotedExec, any_note, bound, card, list, note_of};
use crate::engine::{Snapshot, SnapshotError};
use crate::failpoint;
use crate::store::ExecRow;

/// Commands of a box that are written down with it.
const MOST_EXECS: usize = 256;
/// How long somebody waits until the machines of others are read.
const OPENING: Duration = Duration::from_secs(60);
/// What must be left on the disk beside a snapshot.
const SPARE: u64 = 64 << 20;

/// What a box begins as, instead of as one of its kind that ran nothing.
#[derive(Debug, Clone)]
pub struct Begin {
    /// What a copy relies on.
    pub(crate) machine: Hash,
    /// The commands that ran in it, as they were written down.
    execs: Vec<ExecRow>,
    /// A snapshot's name, or a box's: for the ledger.
    from: String,
    origin: Origin,
}

#[derive(Debug, Clone)]
enum Origin {
    /// A box that sleeps no more.
    Taken(Snapshot),
    /// A file, of which only the note was read.
    Kept(SnapshotId, Box<Note>),
}

/// The same, with a machine that is there.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) snapshot: Snapshot,
    pub(crate) execs: Vec<ExecRow>,
    pub(crate) from: String,
}

impl Begin {
    /// What another box was a moment ago.
    pub(super) fn taken(snapshot: &Snapshot, execs: &[ExecRow], from: &BoxId) -> Self {
        let (machine, origin) = (snapshot.bound, Origin::Taken(snapshot.clone()));
        Self { machine, execs: execs.to_vec(), from: from.to_string(), origin }
    }

    /// Reads and checks the machine. It takes as much memory as the box may have: only for one that was let in.
    pub(crate) async fn open(self, house: &Arc<House>) -> Result<Begun, KeepError> {
        let Self { machine, execs, from, origin } = self;
        let snapshot = match origin {
            Origin::Taken(snapshot) => snapshot,
            Origin::Kept(name, note) => {
                Snapshot { template: open(house, name, *note).await?, bound: machine }
            }
        };
        Ok(Begun { snapshot, execs, from })
    }
}

impl Opened {
    /// A box of this kind, which begins with the snapshot.
    #[must_use]
    pub fn begin(self, new: NewBox) -> NewBox {
        let Self { name, note, .. } = self;
        let begin = Begin {
            machine: note.machine,
            execs: note.execs.iter().map(NotedExec::row).collect(),
            from: name.to_string(),
            origin: Origin::Kept(name, Box::new(note)),
        };
        NewBox { from: Some(begin), ..new }
    }
}

/// A snapshot, opened: everything that a box needs to begin with it.
#[derive(Debug)]
pub struct Opened {
    /// What may happen in it, as it was.
    pub policy: SealedPolicy,
    /// The image, by name and digest, as it was.
    pub image: String,
    /// What was written on it.
    pub caption: Option<Caption>,
    name: SnapshotId,
    note: Note,
}

/// The snapshots of a keeper.
#[derive(Debug)]
pub(crate) struct Album {
    files: Option<Snapshots>,
    limits: SnapshotLimits,
    pub(super) copying: CopyQueue,
    /// Held while the machine of one is read, by whoever reads it: one whose caller went away goes on reading.
    opening: Arc<tokio::sync::Mutex<()>>,
    /// Those that boxes have begun with which still live: the next one shares their memory.
    open: Mutex<Vec<(SnapshotId, Weak<Template>)>>,
}

impl Album {
    pub(crate) fn new(limits: SnapshotLimits) -> Self {
        let files = limits.place.as_deref().map(Snapshots::at);
        if let Some(files) = &files {
            // What a daemon left that was killed while it wrote.
            files.sweep();
        }
        Self { files, limits, copying: CopyQueue::default(), opening: Arc::default(), open: Mutex::default() }
    }

    fn files(&self) -> Result<Snapshots, KeepError> {
        self.files.clone().ok_or(KeepError::Snapshot(SnapshotError::NotKept))
    }

    fn find_open(&self, id: &SnapshotId) -> Option<Arc<Template>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, template)| template.strong_count() > 0);
        open.iter().find(|(known, _)| known == id).and_then(|(_, template)| template.upgrade())
    }

    fn note_open(&self, id: &SnapshotId, template: &Arc<Template>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.push((id.clone(), Arc::downgrade(template)));
    }

    /// Whether there is room for one more, at most so large.
    fn room(&self, files: &Snapshots, tenant: &Tenant, memory: u64) -> Result<(), KeepError> {
        let all = list(files);
        let mine = all.iter().filter(|(_, note, _)| note.tenant == tenant.as_str());
        let (count, bytes) =
            mine.fold((0, 0_u64), |(count, sum), (_, _, bytes)| (count + 1, sum.saturating_add(*bytes)));
        let total = files.bytes();
        let SnapshotLimits { count: most, tenant_bytes, bytes: host_bytes, .. } = self.limits;
        let what = match () {
            () if count >= most => "snapshots",
            () if bytes.saturating_add(memory) > tenant_bytes => "snapshot_bytes",
            () if total.saturating_add(memory) > host_bytes => "host_snapshot_bytes",
            () => return is_free(files, memory),
        };
        Err(KeepError::QuotaSpent { what })
    }
}

fn is_free(files: &Snapshots, memory: u64) -> Result<(), KeepError> {
    match files.room() {
        Some(room) if room < memory.saturating_add(SPARE) => {
            Err(fault(SnapshotFault::Place(std::io::ErrorKind::StorageFull.into())))
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
    KeepError::Snapshot(SnapshotError::File(fault))
}

/// Work on files is nobody else's to wait for.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(KeepError::Stopping))
}

fn new_name() -> Result<SnapshotId, KeepError> {
    let mut random = [0_u8; 20];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|errno| KeepError::Failed(crate::error::CreateError::Randomness(errno.into())))?;
    Ok(SnapshotId::from_random(random))
}

/// Copies a box of this tenant. What it is told to the ledger before.
pub(super) async fn copy(
    house: &House,
    kept: &Kept,
    to: &str,
) -> Result<(Snapshot, Vec<ExecRow>), KeepError> {
    let _whole = kept.copying.lock().await;
    match kept.phase() {
        Phase::Ready | Phase::Executing => {}
        Phase::Ending | Phase::Gone => return Err(KeepError::Gone),
        phase @ (Phase::Paused | Phase::Provisioning) => return Err(KeepError::WrongPhase(phase)),
    }
    let Some(image) = &kept.image else {
        return Err(KeepError::Snapshot(SnapshotError::Tier(kept.card.tier)));
    };
    house.engine.may_snapshot(&kept.live).map_err(KeepError::Snapshot)?;
    house.pen.announce(Some(&kept.about()), &Event::BoxCopied { to: Label::new(to) })?;
    failpoint::reach("box-copying");
    let snapshot = house.engine.snapshot(&kept.live, image).await.map_err(KeepError::Snapshot)?;
    let execs = house.register.execs(&kept.card.id);
    Ok((snapshot, execs.into_iter().filter(|exec| exec.ended.is_none()).take(MOST_EXECS).collect()))
}

impl Keeper {
    /// Writes a box that runs to a file, from which others can begin, with what is to be known of it. It stands still for a
    /// moment, and goes on.
    pub async fn snapshot(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        caption: Option<Caption>,
    ) -> Result<SnapshotCard, KeepError> {
        let kept = self.touch(tenant, id)?;
        let (house, tenant) = (Arc::clone(&self.0), tenant.clone());
        house.engine.may_snapshot(&kept.live).map_err(KeepError::Snapshot)?;
        let files = house.album.files()?;
        has_room(&house, &files, &tenant, &kept).await?;
        let turn = house.album.copying.turn(&tenant, id).await?;
        to_its_end(async move {
            let _turn = turn;
            // What others have kept while this one waited.
            has_room(&house, &files, &tenant, &kept).await?;
            let name = new_name()?;
            let (Snapshot { template, bound: machine }, execs) = copy(&house, &kept, name.as_str()).await?;
            let policy = kept.policy();
            let note = Note {
                tenant: tenant.to_string(),
                of: kept.card.id.clone(),
                created_at: wall_clock(SystemTime::now()),
                image: kept.card.image.clone(),
                policy: policy.digest().to_string(),
                policy_text: to_toml(&policy),
                level: policy.level(),
                machine,
                memory: template.bytes(),
                execs: execs.iter().map(NotedExec::of).collect(),
                caption,
            };
            on_thread(move || {
                // Plain data always becomes JSON.
                let text = serde_json::to_vec(&note).unwrap_or_default();
                let bytes =
                    files.keep(name.as_str(), &text, &bound(&name, &note), &template).map_err(fault)?;
                failpoint::reach("snapshot-kept");
                Ok(card(name, note, bytes))
            })
            .await
        })
        .await
    }

    /// The snapshots of a tenant, oldest first.
    pub async fn snapshots(&self, tenant: &Tenant) -> Result<Vec<SnapshotCard>, KeepError> {
        let Ok(files) = self.0.album.files() else { return Ok(Vec::new()) };
        let tenant = tenant.clone();
        on_thread(move || {
            let mine = list(&files).into_iter().filter(|(_, note, _)| note.tenant == tenant.as_str());
            let mut cards: Vec<SnapshotCard> = mine.map(|(id, note, bytes)| card(id, note, bytes)).collect();
            cards.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
            Ok(cards)
        })
        .await
    }

    /// Takes a snapshot away. Boxes that began with it live on.
    pub async fn remove_snapshot(&self, tenant: &Tenant, id: &SnapshotId) -> Result<(), KeepError> {
        let (house, files) = (Arc::clone(&self.0), self.0.album.files()?);
        let (tenant, id) = (tenant.clone(), id.clone());
        on_thread(move || {
            let note = note_of(&files, &tenant, &id)?;
            let (snapshot, of) = (Label::new(id.as_str()), Some(note.of));
            house.pen.announce(None, &Event::SnapshotRemoved { snapshot, of })?;
            if files.remove(id.as_str()).map_err(fault)? { Ok(()) } else { Err(KeepError::NotFound) }
        })
        .await
    }

    /// Takes a snapshot away of which nobody can say whose it is: only for the operator.
    pub async fn remove_unreadable_snapshot(&self, id: &SnapshotId) -> Result<(), KeepError> {
        let (house, files, id) = (Arc::clone(&self.0), self.0.album.files()?, id.clone());
        on_thread(move || {
            match any_note(&files, &id) {
                Err(KeepError::Snapshot(_)) => {}
                Ok(_) | Err(_) => return Err(KeepError::NotFound),
            }
            house
                .pen
                .announce(None, &Event::SnapshotRemoved { snapshot: Label::new(id.as_str()), of: None })?;
            if files.remove(id.as_str()).map_err(fault)? { Ok(()) } else { Err(KeepError::NotFound) }
        })
        .await
    }

    /// What a box needs to begin with a snapshot. Its machine is read when that box is made.
    pub async fn open_snapshot(&self, tenant: &Tenant, id: &SnapshotId) -> Result<Opened, KeepError> {
        let files = self.0.album.files()?;
        let (tenant, name) = (tenant.clone(), id.clone());
        on_thread(move || {
            let note = note_of(&files, &tenant, &name)?;
            let policy = parse(&note.policy_text).and_then(|draft| draft.seal()).ok();
            let policy = policy.filter(|policy| policy.digest().to_string() == note.policy);
            let policy = policy.ok_or(fault(SnapshotFault::Foreign))?;
            Ok(Opened { policy, image: note.image.clone(), caption: note.caption.clone(), name, note })
        })
        .await
    }
}

/// Whether this box may be kept, as far as quotas and the disk say.
async fn has_room(
    house: &Arc<House>,
    files: &Snapshots,
    tenant: &Tenant,
    kept: &Kept,
) -> Result<(), KeepError> {
    let (house, files, tenant) = (Arc::clone(house), files.clone(), tenant.clone());
    let most = kept.policy().kernel().memory.0;
    on_thread(move || house.album.room(&files, &tenant, most)).await
}

/// The machine of a snapshot: that of boxes which began with it and still live, or what its file holds.
async fn open(house: &Arc<House>, name: SnapshotId, note: Note) -> Result<Arc<Template>, KeepError> {
    if let Some(template) = house.album.find_open(&name) {
        return Ok(template);
    }
    let files = house.album.files()?;
    let opening = Arc::clone(&house.album.opening).lock_owned();
    let opening = timeout(OPENING, opening).await.map_err(|_| busy())?;
    let house = Arc::clone(house);
    on_thread(move || {
        // Until it is read, whoever waits for it.
        let _opening = opening;
        if let Some(template) = house.album.find_open(&name) {
            return Ok(template);
        }
        let found = files.find(name.as_str(), &bound(&name, &note), note.memory).map_err(fault)?;
        let template = Arc::new(found.ok_or(KeepError::NotFound)?);
        fill(&template)?;
        house.album.note_open(&name, &template);
        Ok(template)
    })
    .await
}
