//! A box that ends when whoever made it goes away, unless it is kept: a caller that hangs up, a build that is ended in the middle.

use blastbox_engine::keeper::{Keeper, Tenant};
use blastbox_wire::BoxId;
use tokio::runtime::Handle;

#[derive(Debug)]
pub(super) struct Ending(Option<(Keeper, Tenant, BoxId)>);

impl Ending {
    pub(super) fn of(keeper: &Keeper, tenant: &Tenant, id: &BoxId) -> Self {
        Self(Some((keeper.clone(), tenant.clone(), id.clone())))
    }

    /// It is somebody's, and stays.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }

    /// Ends it, and waits until it is gone.
    pub(super) async fn now(mut self) {
        if let Some((keeper, tenant, id)) = &self.0 {
            // An error: it is gone already.
            keeper.kill(tenant, id).await.ok();
        }
        self.0 = None;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Without a runtime the daemon ends, and its boxes do too.
        if let (Some((keeper, tenant, id)), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { keeper.kill(&tenant, &id).await.is_ok() });
        }
    }
}
