//! Boxes that have outlived the daemon before: taken over with their names, deadlines and running commands.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use blastbox_images::Image;
use blastbox_policy::parse;
use blastbox_wire::BoxId;
use blastbox_wire::event::{About, Event, KilledBy};
use blastbox_wire::receipt::{Outcome, Usage};
use tokio::time::timeout;

use super::admission::Lodging;
use super::begin::Inherited;
use super::cards::{BoxCard, Phase, Tenant};
use super::clock::{Clock, Now};
use super::commands::{Purpose, Title};
use super::events::{Happened, wall_clock};
use super::face::Keeper;
use super::house::House;
use super::kept::{Kept, Made};
use super::make::need_of;
use super::pen::about_row;
use super::pump::pump;
use super::tape::Tape;
use super::watch;
use crate::driver::Stood;
use crate::failpoint;
use crate::store::{BoxRow, BoxState, ExecRow};

/// How long an agent may take to say how it stands.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a box is not taken over.
enum Lost {
    /// What is written down of it is not what was sealed.
    Row,
    /// The ledger does not take the record.
    Unrecorded,
    /// Its agent does not answer, or wrongly.
    Mute,
}

impl Keeper {
    /// Takes boxes over that have outlived the daemon before. To be asked before the doors are opened. How many live on.
    pub async fn adopt(&self, kept: Vec<(BoxRow, OwnedFd)>) -> usize {
        let tasks: Vec<_> = kept
            .into_iter()
            .map(|(row, channel)| tokio::spawn(adopt_or_lose(Arc::clone(&self.0), row, channel)))
            .collect();
        let mut adopted = 0;
        for task in tasks {
            adopted += usize::from(task.await.unwrap_or(false));
        }
        adopted
    }
}

async fn adopt_or_lose(house: Arc<House>, row: BoxRow, channel: OwnedFd) -> bool {
    let (id, tenant, about) = (row.id.clone(), row.tenant.clone(), about_row(&row));
    if adopt(&house, row, channel).await.is_ok() {
        return true;
    }
    house.engine.let_go(&id);
    // Whoever asks meanwhile hears that its end is not acknowledged yet.
    house.past.leave(&id, &tenant);
    let waits = house.pen.post().must_acknowledge();
    let telling = tokio::spawn(async move { tell_lost(&house, &id, &tenant, &about).await });
    if !waits {
        telling.await.ok();
    }
    // Otherwise the doors do not stay closed until a sink is there.
    false
}

/// Records the end of a box that was not taken over, and tells it when every sink that must has it.
async fn tell_lost(house: &House, id: &BoxId, tenant: &Tenant, about: &About) {
    // From here on the next daemon asks the ledger whether its end is told: it is told once.
    house.register.moved(id, BoxState::Ending);
    house.pen.record(about, &Event::KillAsked { by: KilledBy::Reaper });
    let (outcome, post) = (Outcome::Lost, house.pen.post());
    let recorded = house.pen.record_end(about, &Event::BoxEnded { outcome, spent: Usage::default() }).await;
    let heard = match recorded {
        Ok(Some(seq)) if post.must_acknowledge() => {
            house.register.moved(id, BoxState::Ended);
            post.acknowledged(seq).await
        }
        Ok(_) => Ok(()),
        Err(unheard) => Err(unheard),
    };
    if heard.is_err() {
        // The next daemon finds it in the store, and tells it.
        return;
    }
    let reason = outcome.as_str().to_owned();
    house.register.gone(id, &reason);
    house.past.told(id);
    house.hub.tell(Some((tenant, id)), Happened::BoxEnded { outcome, reason });
}

async fn adopt(house: &Arc<House>, row: BoxRow, channel: OwnedFd) -> Result<(), Lost> {
    let policy = parse(&row.policy_text).and_then(|draft| draft.seal()).map_err(|_| Lost::Row)?;
    if policy.digest() != row.policy {
        return Err(Lost::Row);
    }
    house.pen.announce(Some(&about_row(&row)), &Event::BoxAdopted).map_err(|_| Lost::Unrecorded)?;
    failpoint::reach("box-adopting");
    let (hold, room) = house.admission.count(&row.tenant, need_of(&policy));
    let execs = house.register.execs(&row.id);
    let open: Vec<u32> = execs.iter().filter(|exec| exec.ended.is_none()).map(|exec| exec.number).collect();
    let now = Now::read();
    let left = Clock::inherit(&row.deadlines, now).left(now.monotonic);
    let (mut live, stood) = house
        .engine
        .adopt(row.id.clone(), &policy, &Image::host(), channel, &open, left)
        .map_err(|_| Lost::Mute)?;
    match timeout(PATIENCE, live.ready()).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) | Err(_) => return Err(Lost::Mute),
    }
    let stood = stood.await.map_err(|_| Lost::Mute)?;
    let last = execs.iter().map(|exec| exec.number).chain(stood.iter().map(|stood| stood.exec)).max();
    live.took_numbers(last.unwrap_or(0));
    let clock = Clock::inherit(&row.deadlines, Now::read());
    let kept = Kept::new(Made {
        card: card(&row, &policy),
        live,
        image: None,
        policy,
        register: Arc::clone(&house.register),
        asked: row.made_at,
        pooled: Duration::ZERO,
        clock,
        prepared: None,
    });
    let commands = find_commands(house, &kept, stood, &execs, &[]);
    commands.into_iter().for_each(|command| drop(tokio::spawn(command)));
    house.move_in(&kept).map_err(|_| Lost::Mute)?;
    house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), Happened::BoxAdopted);
    failpoint::reach("box-adopted");
    // It was let go on to answer. One whose life was over goes on no more than one that its owner stopped, also where the
    // daemon before died between the two.
    if row.state == BoxState::Paused || row.deadlines.overtime {
        watch::pause_or_end(house, &kept).await;
    }
    let room = Lodging::new(room, None);
    tokio::spawn(watch::watch(Arc::clone(house), kept, room, hold));
    Ok(())
}

/// The commands that were found in a box, as its own. What is left is to spawn what listens to them.
pub(super) fn find_commands(
    house: &Arc<House>,
    kept: &Arc<Kept>,
    stood: Vec<Stood>,
    execs: &[ExecRow],
    inherited: &[Inherited],
) -> Vec<impl Future<Output = ()> + Send + use<>> {
    let mut listeners = Vec::new();
    for found in stood {
        let known = inherited.iter().find(|known| known.number == found.exec);
        // Nobody is at the other end of what carried bytes between the box that was copied and a stranger.
        let carries = known.is_some_and(|known| known.carrier);
        let purpose = if carries { Purpose::Carrier } else { Purpose::Owner };
        let row = execs.iter().find(|exec| exec.number == found.exec);
        // It went on while no daemon was there, and so did its time.
        let left = || row?.ends_up.map(|ends| ends.saturating_sub(Now::read().up));
        let timeout =
            if carries { Some(Duration::ZERO) } else { known.and_then(Inherited::left).or_else(left) };
        let title = Title::found(row, purpose);
        let (from, pid) = (found.from, found.pid);
        let exec = kept.commands.add(title, kept.live.found(found), Tape::begun_at(from));
        if pid != 0 {
            exec.started(pid);
        }
        kept.fate().clock.running += 1;
        listeners.push(pump(Arc::clone(house), Arc::clone(kept), exec, timeout.into()));
    }
    listeners
}

pub(super) fn card(row: &BoxRow, policy: &blastbox_policy::SealedPolicy) -> BoxCard {
    BoxCard {
        id: row.id.clone(),
        tenant: row.tenant.clone(),
        phase: Phase::Ready,
        tier: row.tier,
        level: policy.level(),
        policy: row.policy.to_string(),
        image: row.image.clone(),
        gaps: row.gaps.clone(),
        created_at: wall_clock(row.made_at),
        ends_at: String::new(),
        idle_seconds: row.deadlines.idle.as_secs(),
        on_timeout: row.deadlines.on_timeout,
        on_disk: false,
        warm: false,
        metadata: row.metadata.clone(),
    }
}
