//! Looks whether the disk that volumes lie on has room left, and ends every sandbox that has one where it has not.
//!
//! Whose sandbox has filled it nobody can tell: what a sandbox hides is in no measure of its volume. This is no limit either: what is
//! written between two looks, and until sandboxes have ended, comes out of what was to stay free.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::Why;
use super::endings::Endings;
use crate::e2b::desk::Desk;
use crate::e2b::volumes::shelf::Shelf;

/// How often it is looked: at 2 GiB a second this is most of what is to stay free.
const EVERY: Duration = Duration::from_millis(200);
const NEARLY_FULL: Why = Why::Outgrown("the disk of the host is nearly full");

/// Begins to look, for as long as there is a desk.
pub(super) fn guard(desk: Weak<Desk>, shelf: Arc<Shelf>, endings: Endings) -> io::Result<()> {
    let runtime = Handle::current();
    on_a_thread_of_its_own(EVERY, move || {
        let Some(desk) = desk.upgrade() else { return ControlFlow::Break(()) };
        // Ends are tasks of the runtime, and so is what goes with a desk that nobody else has any more.
        let _runtime = runtime.enter();
        if !shelf.disk_has_room() {
            end_all(&desk, &shelf, &endings);
        }
        drop(desk);
        ControlFlow::Continue(())
    })
}

/// Threads of the runtime that wait for disks are everybody's: who filled them all would have nobody look while he fills the disk.
fn on_a_thread_of_its_own(
    every: Duration,
    mut look: impl FnMut() -> ControlFlow<()> + Send + 'static,
) -> io::Result<()> {
    // A look that panics is one look: without the next one, sandboxes would write with nobody there to end them.
    let mut careful = move || catch_unwind(AssertUnwindSafe(&mut look)).unwrap_or(ControlFlow::Continue(()));
    let looks = move || {
        while careful().is_continue() {
            std::thread::sleep(every);
        }
    };
    std::thread::Builder::new().name("disk-guard".to_owned()).spawn(looks).map(drop)
}

fn end_all(desk: &Desk, shelf: &Shelf, endings: &Endings) {
    for tenant in shelf.tenants() {
        for (sandbox, _) in desk.of(&tenant) {
            if let Some((_, name)) = sandbox.mounts.ids().next() {
                endings.end(desk.keeper(), &sandbox, name, &NEARLY_FULL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_is_looked_also_while_every_thread_that_waits_for_disks_is_taken() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.max_blocking_threads(1).build().unwrap();
        let (end, may_end) = mpsc::channel::<()>();
        let taken = runtime.spawn_blocking(move || may_end.recv().unwrap());
        let (looked, has_looked) = mpsc::channel();
        runtime.block_on(async {
            let look = move || match looked.send(()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            on_a_thread_of_its_own(Duration::from_millis(1), look).unwrap();
            for _ in 0..3 {
                has_looked.recv().unwrap();
            }
        });
        end.send(()).unwrap();
        runtime.block_on(taken).unwrap();
    }
}
