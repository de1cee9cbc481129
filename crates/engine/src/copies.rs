//! Machines that sleep, so that boxes begin as copies of them instead of booting.
//!
//! A template is a machine that booted once for everything that a box relies on, ran nothing, and fell asleep. It has no name of a
//! box, no secret, no file of anybody. Which there are, and where one comes from, says [`Shelf`](crate::shelf::Shelf).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blastbox_images::Image;
use blastbox_images::machine::{Template, Templates};
use blastbox_isolation::{Copies, MachineEngine};
use blastbox_wire::BoxId;
use blastbox_wire::agent::Wake;
use blastbox_wire::event::Hash;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::CreateError;
use crate::link::Link;
use crate::monitor::Monitor;

/// What a copy is of.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) engine: MachineEngine,
    pub(crate) template: Arc<Template>,
    pub(crate) bound: Hash,
    /// What becomes of it if it turns out to be useless.
    pub(crate) useless: Useless,
}

/// What becomes of a machine of which copies end without a word: of one, nothing, for somebody may have killed it; of two in a row, this.
#[derive(Debug, Clone)]
pub(crate) enum Useless {
    /// Nobody begins with it any more, in this process or the next.
    ForgetIn(Templates),
    /// The same of one that only this process has.
    Forget,
    /// It is somebody's snapshot, and theirs to keep.
    Stays,
}

impl Source {
    /// Somebody's box as it was when it slept.
    pub(crate) fn snapshot(engine: MachineEngine, template: Arc<Template>, bound: Hash) -> Self {
        Self { engine, template, bound, useless: Useless::Stays }
    }
}

/// What a box that begins as a copy holds until its agent has spoken.
#[derive(Debug)]
pub(crate) struct Birth {
    from: Source,
    /// The engine's line for orders. It is closed when nobody needs it any more.
    orders: StdStream,
}

impl Birth {
    /// The copy never spoke. Where the one before did not either, something is wrong with their template.
    pub(crate) fn failed(self) {
        let Source { template, bound, useless, engine: _ } = self.from;
        match useless {
            Useless::ForgetIn(store) if template.copy_died() => store.forget(&bound),
            Useless::ForgetIn(store) => store.doubt(&bound),
            Useless::Forget => {
                template.copy_died();
            }
            Useless::Stays => {}
        }
    }

    /// The copy has spoken.
    pub(crate) fn succeeded(self) {
        let Source { template, bound, useless, engine: _ } = self.from;
        template.copy_spoke();
        if let Useless::ForgetIn(store) = useless {
            // Also what another process has doubted since.
            store.trust(&bound);
        }
    }

    /// The line for orders, for who may have to say more than how it begins.
    pub(crate) fn line(&self) -> Option<Monitor> {
        Monitor::new(self.from.engine, self.orders.try_clone().ok()?).ok()
    }
}

/// What is needed to make a template: everything that travels with its plan but the memory and the line for orders.
pub(crate) struct Need<'a> {
    pub(crate) link: &'a Arc<Link>,
    pub(crate) copies: &'a Copies,
    pub(crate) image: &'a Image,
    pub(crate) shows: &'a [OwnedFd],
    pub(crate) id: BoxId,
    pub(crate) timeout: Duration,
}

/// Has the copy that will be started with these descriptors go on from its template: the orders for its engine, and, as the first
/// bytes of the control channel, what no two copies may have in common. Gives what travels with the plan, and what is held.
pub(crate) fn bear(
    from: Source,
    id: &BoxId,
    control: BorrowedFd<'_>,
) -> Result<(Birth, [OwnedFd; 2]), CreateError> {
    let (orders, theirs) = StdStream::pair().map_err(CreateError::Channel)?;
    let state = from.template.state_file().map_err(CreateError::Channel)?;
    from.engine.wake(&orders, state.as_fd()).map_err(CreateError::Channel)?;
    let mut fresh = [0_u8; 64];
    // So many come whole or not at all.
    getrandom(&mut fresh, GetRandomFlags::empty()).map_err(|errno| CreateError::Randomness(errno.into()))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos());
    let wake = Wake { fresh, time, name: id.as_host_name() }.encode();
    // The socket is empty: what is so short goes in whole.
    if rustix::io::write(control, &wake).map_err(|errno| CreateError::Channel(errno.into()))? != wake.len() {
        return Err(CreateError::Channel(std::io::ErrorKind::WriteZero.into()));
    }
    let memory = from.template.memory().try_clone_to_owned().map_err(CreateError::Channel)?;
    Ok((Birth { from, orders }, [memory, theirs.into()]))
}

#[cfg(test)]
impl Source {
    /// A template that nothing booted, kept nowhere.
    pub(crate) fn test() -> (Self, Arc<Template>) {
        let memory = blastbox_images::machine::blank(4096)
            .and_then(|memory| Template::seal(memory, b"state".to_vec()));
        let template = Arc::new(memory.unwrap());
        let (bound, store) =
            (Hash::from_bytes([1; 32]), Templates::of_store(std::path::Path::new("/nowhere")));
        let engine = MachineEngine::Qemu;
        (Self { engine, template: Arc::clone(&template), bound, useless: Useless::ForgetIn(store) }, template)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use blastbox_wire::agent::WAKE;

    use super::*;

    #[test]
    fn a_template_is_forgotten_after_two_copies_in_a_row_that_never_spoke_and_not_after_one() {
        let (from, template) = Source::test();
        let born = |number| {
            let (ours, _theirs) = StdStream::pair().unwrap();
            bear(from.clone(), &BoxId::from_random([number; 20]), ours.as_fd()).unwrap().0
        };
        let births = [1, 2, 3, 4].map(born);
        let [first, second, third, fourth] = births;
        first.failed();
        assert!(!template.is_spoilt());
        second.succeeded();
        third.failed();
        assert!(!template.is_spoilt(), "the one before spoke");
        fourth.failed();
        assert!(template.is_spoilt());
    }

    #[test]
    fn two_copies_of_a_template_are_never_told_the_same() {
        let (from, _) = Source::test();
        let born = |number| {
            let (ours, mut theirs) = StdStream::pair().unwrap();
            let id = BoxId::from_random([number; 20]);
            let (birth, [memory, _line]) = bear(from.clone(), &id, ours.as_fd()).unwrap();
            let mut wake = [0; WAKE];
            theirs.read_exact(&mut wake).unwrap();
            assert!(
                rustix::io::pwrite(&memory, b"x", 0).is_err(),
                "an engine could write to what copies share"
            );
            (birth, Wake::parse(&wake).unwrap(), id)
        };
        let ((_one, first, id), (_two, second, _)) = (born(1), born(2));
        assert_ne!(first.fresh, second.fresh);
        assert_ne!(first.name, second.name);
        assert_eq!(first.name, id.as_host_name());
    }
}
