//! Forks: boxes that begin as what another one is now. They are copies of one snapshot that nobody keeps.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::admission::Hold;
use super::album::{fill, on_thread};
use super::begin::{Begin, Origin};
use super::cards::{BoxCard, Tenant};
use super::config::NewBox;
use super::copy::{Copied, copy};
use super::copy_queue::Turn;
use super::error::KeepError;
use super::face::Keeper;
use super::kept::Kept;
use super::make::{make, need_of};
use crate::engine::Afterwards;

/// Forks of one box that may be asked for at once.
pub const MOST_FORKS: usize = 16;

/// What becomes of the others when one fork cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Together {
    /// There are all of them, or none.
    AllOrNone,
    /// Each stands for itself.
    EachAlone,
}

impl Keeper {
    /// Makes boxes that are what this one is now, with everything that runs in it. All of them or none; none for a caller that goes
    /// away meanwhile.
    pub async fn fork(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        count: usize,
        life: Duration,
        idle: Duration,
    ) -> Result<Vec<BoxCard>, KeepError> {
        let forks = self.forks(tenant, id, count, (life, idle), Together::AllOrNone).await?;
        forks.into_iter().collect()
    }

    /// The same, but each fork is made or not by itself. An error: none could be made, because the box cannot be copied.
    pub async fn fork_each(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        count: usize,
        life: Duration,
        idle: Duration,
    ) -> Result<Vec<Result<BoxCard, KeepError>>, KeepError> {
        self.forks(tenant, id, count, (life, idle), Together::EachAlone).await
    }

    async fn forks(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        count: usize,
        (life, idle): (Duration, Duration),
        together: Together,
    ) -> Result<Forks, KeepError> {
        if count == 0 || count > MOST_FORKS {
            return Err(KeepError::QuotaSpent { what: "forks" });
        }
        let kept = self.touch(tenant, id)?;
        let (keeper, tenant) = (self.clone(), tenant.clone());
        self.0.engine.may_snapshot(&kept.live, &kept.policy()).map_err(KeepError::Snapshot)?;
        // A quota that is spent is told before the box stands still.
        let need = need_of(&kept.policy());
        let mut holds: Vec<_> = (0..count).map(|_| self.0.admission.reserve(&tenant, need)).collect();
        let failed = holds.iter().filter(|hold| hold.is_err()).count();
        if failed == count || (failed > 0 && together == Together::AllOrNone) {
            let first = holds.iter().position(Result::is_err).unwrap_or(0);
            return holds.swap_remove(first).map(|_| Vec::new());
        }
        let turn = self.0.album.copying.turn(&tenant, id).await?;
        let asked = Asked { tenant, life, idle, holds, together };
        // Boxes that nobody is told of are nobody's.
        let (caller, forks) = oneshot::channel();
        tokio::spawn(async move {
            let forked = copy_for(&keeper, &kept, asked, turn, &caller).await;
            let tenant = kept.card.tenant.clone();
            // An error: whoever asked has gone away, and what comes back ends them.
            caller.send(forked.map(|forks| Untold { keeper, tenant, forks })).ok();
        });
        let mut told = forks.await.unwrap_or(Err(KeepError::Stopping))?;
        Ok(std::mem::take(&mut told.forks))
    }
}

/// Forks on their way to whoever asked. They end where nobody takes them, also where they were sent already.
pub(super) struct Untold {
    pub(super) keeper: Keeper,
    pub(super) tenant: Tenant,
    pub(super) forks: Forks,
}

impl Drop for Untold {
    fn drop(&mut self) {
        let forks = std::mem::take(&mut self.forks);
        // Without a runtime everything ends.
        if let (false, Ok(runtime)) = (forks.is_empty(), Handle::try_current()) {
            let (keeper, tenant) = (self.keeper.clone(), self.tenant.clone());
            runtime.spawn(async move { end_all(&keeper, &tenant, forks).await });
        }
    }
}

/// What was asked for, with the part of the quota that each of them takes.
struct Asked {
    tenant: Tenant,
    life: Duration,
    idle: Duration,
    holds: Vec<Result<Hold, KeepError>>,
    together: Together,
}

type Forks = Vec<Result<BoxCard, KeepError>>;

async fn copy_for(
    keeper: &Keeper,
    kept: &Arc<Kept>,
    asked: Asked,
    turn: Turn,
    caller: &oneshot::Sender<Result<Untold, KeepError>>,
) -> Result<Forks, KeepError> {
    let Asked { tenant, life, idle, holds, together } = asked;
    let room = keeper.0.room_for_machine(need_of(&kept.policy()).memory).await?;
    let to = format!("{} forks", holds.len());
    let Copied { snapshot, execs, inherited, policy, .. } =
        copy(&keeper.0, kept, &to, Afterwards::GoesOn).await?;
    let filling = Arc::clone(&snapshot.template);
    on_thread(move || fill(&filling)).await?;
    drop(turn);
    let image = kept.image.as_ref().ok_or(KeepError::Gone)?;
    let mut forks = Forks::new();
    for hold in holds {
        let hold = match hold {
            Ok(hold) => hold,
            Err(error) => {
                forks.push(Err(error));
                continue;
            }
        };
        if caller.is_closed() {
            break;
        }
        let begin = Begin {
            machine: snapshot.bound,
            execs: execs.clone(),
            inherited: inherited.clone(),
            from: kept.card.id.to_string(),
            itself: None,
            origin: Origin::Taken(snapshot.clone(), Arc::clone(&room)),
        };
        let new = NewBox {
            policy: SealedPolicy::clone(&policy),
            image: Arc::clone(image),
            preparation: None,
            workspace: None,
            volumes: Vec::new(),
            secrets: Vec::new(),
            metadata: kept.card.metadata.clone(),
            life,
            idle,
            on_timeout: kept.card.on_timeout,
            from: Some(begin),
        };
        let made = make(&keeper.0, &tenant, new, Some(hold)).await;
        if made.is_err() && together == Together::AllOrNone {
            end_all(keeper, &tenant, forks).await;
            return made.map(|_| Vec::new());
        }
        forks.push(made);
    }
    Ok(forks)
}

async fn end_all(keeper: &Keeper, tenant: &Tenant, forks: Forks) {
    for fork in forks.into_iter().flatten() {
        keeper.kill(tenant, &fork.id).await.ok();
    }
}
