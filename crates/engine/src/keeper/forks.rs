//! Forks: boxes that begin as what another one is now. They are copies of one snapshot that nobody keeps.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;

use super::cards::{BoxCard, Tenant};
use super::config::NewBox;
use super::error::KeepError;
use super::face::{Keeper, to_its_end};
use super::make::{make, need_of};
use super::snapshots::{Begin, copy, fill, on_thread};

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
    /// Makes boxes that are what this one is now, with everything that runs in it. All of them or none.
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
    ) -> Result<Vec<Result<BoxCard, KeepError>>, KeepError> {
        if count == 0 || count > MOST_FORKS {
            return Err(KeepError::QuotaSpent { what: "forks" });
        }
        let kept = self.touch(tenant, id)?;
        let (keeper, tenant) = (self.clone(), tenant.clone());
        self.0.engine.may_snapshot(&kept.live).map_err(KeepError::Snapshot)?;
        // A quota that is spent is told before the box stands still.
        let need = need_of(&kept.policy());
        let mut holds: Vec<_> = (0..count).map(|_| self.0.admission.reserve(&tenant, need)).collect();
        let failed = holds.iter().filter(|hold| hold.is_err()).count();
        if failed == count || (failed > 0 && together == Together::AllOrNone) {
            let first = holds.iter().position(Result::is_err).unwrap_or(0);
            return holds.swap_remove(first).map(|_| Vec::new());
        }
        let turn = self.0.album.copying.turn(&tenant, id).await?;
        to_its_end(async move {
            let (snapshot, execs) = copy(&keeper.0, &kept, &format!("{count} forks")).await?;
            let filling = Arc::clone(&snapshot.template);
            on_thread(move || fill(&filling)).await?;
            drop(turn);
            let image = kept.image.as_ref().ok_or(KeepError::Gone)?;
            let mut forks: Vec<Result<BoxCard, KeepError>> = Vec::new();
            for hold in holds {
                let hold = match hold {
                    Ok(hold) => hold,
                    Err(error) => {
                        forks.push(Err(error));
                        continue;
                    }
                };
                let new = NewBox {
                    policy: SealedPolicy::clone(&kept.policy()),
                    image: Arc::clone(image),
                    preparation: None,
                    workspace: None,
                    metadata: kept.card.metadata.clone(),
                    life,
                    idle,
                    on_timeout: kept.card.on_timeout,
                    from: Some(Begin::taken(&snapshot, &execs, &kept.card.id)),
                };
                let made = make(&keeper.0, &tenant, new, Some(hold)).await;
                if made.is_err() && together == Together::AllOrNone {
                    for fork in forks.into_iter().flatten() {
                        keeper.kill(&tenant, &fork.id).await.ok();
                    }
                    return made.map(|_| Vec::new());
                }
                forks.push(made);
            }
            Ok(forks)
        })
        .await
    }
}
