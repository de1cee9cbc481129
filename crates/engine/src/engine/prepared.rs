//! Machines that were prepared once, before they were anybody's: members of a pool are copies of them.
//!
//! They lie beside the templates, which have run nothing, and in the same bound; they go with this process.

use std::sync::Arc;

use blastbox_images::Image;
use blastbox_images::machine::Template;
use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;
use blastbox_wire::event::Hash;

use super::{Afterwards, Engine, Snapshot, SnapshotError, Whose};
use crate::live::LiveBox;
use crate::shelf::PreparedBox;

/// What there is of a prepared machine.
#[derive(Debug)]
pub(crate) enum Machine {
    /// It is there, and boxes begin as copies of it: the box that was prepared, and its machine.
    There(BoxId, Snapshot),
    /// Nobody has made it yet.
    Wanted,
    /// None could be made a while ago.
    Failed,
}

impl Engine {
    /// The prepared machine of this kind.
    pub(crate) fn prepared(&self, kind: &Hash) -> Machine {
        let shelf = &self.house.copies;
        match shelf.find_prepared(kind) {
            Some((template, PreparedBox { bound, of })) => {
                Machine::There(of, Snapshot { template, bound, whose: Whose::Nobodys })
            }
            None if shelf.has_failed(kind) => Machine::Failed,
            None => Machine::Wanted,
        }
    }

    /// Copies a box that is nobody's and has been prepared: from now on boxes of its kind are copies of it. It stands still, and is to
    /// be ended. Where that fails it is not tried again for a while, and the box goes on.
    pub(crate) async fn prepare(
        &self,
        kind: Hash,
        live: &LiveBox,
        policy: &SealedPolicy,
        image: &Image,
    ) -> Result<(), SnapshotError> {
        let take = async {
            self.may_snapshot(live, policy)?;
            let memory = live.begun_from.as_ref().map_or(0, |begun| begun.bytes());
            let shelf = &self.house.copies;
            let Some(room) = shelf.make_room(memory) else {
                return Err(SnapshotError::Failed(
                    "it does not fit into the memory that there is for templates, or others take it"
                        .to_owned(),
                ));
            };
            let (snapshot, ()) = self.snapshot(live, policy, image, Afterwards::StandsStill, || ()).await?;
            let filling = Arc::clone(&snapshot.template);
            // A copy must not pay for what is empty in it.
            let filled = tokio::task::spawn_blocking(move || filling.fill()).await;
            if let Ok(Err(error)) = filled {
                self.go_on(live).await;
                return Err(SnapshotError::Failed(format!("no memory for it: {error}")));
            }
            let of = PreparedBox { bound: snapshot.bound, of: live.id().clone() };
            shelf.put_prepared(kind, of, &snapshot.template);
            drop(room);
            Ok(())
        };
        let taken = take.await;
        if taken.is_err() {
            self.house.copies.fail(kind);
        }
        taken
    }

    /// Copies of it do not become what they should: nobody begins with it any more, and none is made for a while.
    pub(crate) fn spoil_prepared(&self, kind: Hash, template: &Template) {
        template.spoil();
        self.house.copies.fail(kind);
    }

    /// The host makes other machines by now: nobody begins with this one any more.
    pub(crate) fn forget_prepared(&self, kind: &Hash) {
        self.house.copies.forget_prepared(kind);
    }
}
