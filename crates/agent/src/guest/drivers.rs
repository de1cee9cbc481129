//! The drivers that the kernel has as modules, and the two devices that they bring.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::orders::{Orders, Workspace};

/// Where the host has put the modules, each called by its place in the order of loading.
const MODULES: &str = "/modules";
/// The port that leads to the host.
const PORT: &str = "blastbox.control";
/// The disk with the image.
pub(crate) const DISK: &str = "/dev/vda";
/// The disk with a copy of the caller's directory.
pub(crate) const WORKSPACE: &str = "/dev/vdb";
/// How long devices may take to come: an emulated processor on a busy host is slow.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
/// The file is compressed, and the kernel knows how.
const COMPRESSED: i32 = 4;

/// Those of a network card, which a guest without one has no use for.
const OF_A_CARD: [&str; 4] = ["failover", "net_failover", "dimlib", "virtio_net"];
/// The only interface beside the loopback.
pub(super) const CARD: &str = "eth0";

/// Loads every module that the host has given along, in order; one that needs something of another that comes later, once more behind it:
/// which needs which is for each kernel to say. One without a use is left where it is, and goes with it.
pub(crate) fn load(orders: &Orders) -> io::Result<()> {
    let mut names: Vec<_> = match fs::read_dir(MODULES) {
        Ok(list) => list.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?,
        // A kernel that has everything built in.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    names.sort();
    names.retain(|name| {
        let of_a_card = OF_A_CARD.contains(&called(name).unwrap_or_default());
        let of_changes = called(name) == Some("overlay");
        !(of_a_card && !orders.network || of_changes && orders.workspace != Workspace::CopyOnWrite)
    });
    in_any_order(names, |name| insert(name))
}

/// Does what can be done with each until it is done with all. What is to come first is `NOENT`: a symbol that nobody has yet.
fn in_any_order<T>(mut waiting: Vec<T>, act: impl Fn(&T) -> Result<(), Errno>) -> io::Result<()> {
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut early = Vec::new();
        for one in waiting {
            match act(&one) {
                Ok(()) => {}
                Err(Errno::NOENT) => early.push(one),
                Err(errno) => return Err(errno.into()),
            }
        }
        if early.len() == before {
            return Err(Errno::NOENT.into());
        }
        waiting = early;
    }
    Ok(())
}

fn insert(name: &Path) -> Result<(), Errno> {
    let file = open(name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = if name.extension().is_some_and(|end| end == "ko") { 0 } else { COMPRESSED };
    match rustix::system::finit_module(file.as_fd(), c"", flags) {
        Ok(()) | Err(Errno::EXIST) => rustix::fs::unlink(name),
        Err(errno) => Err(errno),
    }
}

/// What a module is called in a file such as `03-virtio_pci.ko.xz`.
fn called(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.split_once('-')?.1.split_once(".ko").map(|(name, _)| name)
}

/// The port that leads to the host, opened. Until its kernel has heard that somebody listens at the other end, reading
/// from it looks as if the host had gone.
pub(crate) fn port() -> io::Result<OwnedFd> {
    let port = opened_port()?;
    await_device(|| {
        let mut look = [PollFd::new(&port, PollFlags::OUT)];
        rustix::event::poll(&mut look, Some(&Timespec::default())).ok()?;
        look.first().filter(|port| port.revents() == PollFlags::OUT).map(drop)
    })?;
    Ok(port)
}

fn opened_port() -> io::Result<OwnedFd> {
    await_device(|| {
        for entry in fs::read_dir("/sys/class/virtio-ports").ok()? {
            let entry = entry.ok()?;
            let name = fs::read_to_string(entry.path().join("name")).ok()?;
            if name.trim_end() == PORT {
                let path = Path::new("/dev").join(entry.file_name());
                return open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
            }
        }
        None
    })
}

/// Waits until a disk is there.
pub(crate) fn disk(path: &str) -> io::Result<()> {
    await_device(|| fs::metadata(path).ok().map(drop))
}

/// Waits until the network card is there.
pub(crate) fn card() -> io::Result<()> {
    await_device(|| fs::metadata(Path::new("/sys/class/net").join(CARD)).ok().map(drop))
}

/// Devices come when their drivers have found them, a moment after the driver was loaded.
fn await_device<T>(look: impl Fn() -> Option<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn what_needs_something_that_comes_later_is_tried_again_behind_it() {
        let done = RefCell::new(Vec::new());
        let needs = |one: &&str| match *one {
            "virtio" => !done.borrow().contains(&"virtio_ring"),
            "virtio_pci" => !done.borrow().contains(&"virtio"),
            "broken" => true,
            _ => false,
        };
        let act = |one: &&'static str| {
            if needs(one) {
                return Err(Errno::NOENT);
            }
            done.borrow_mut().push(*one);
            Ok(())
        };
        in_any_order(vec!["virtio", "virtio_pci", "virtio_ring"], act).unwrap();
        assert_eq!(*done.borrow(), ["virtio_ring", "virtio", "virtio_pci"]);
        // What nobody has is said, and ends.
        assert_eq!(in_any_order(vec!["broken"], act).unwrap_err().raw_os_error(), Some(2));
        assert!(in_any_order(vec!["x"], |_| Err(Errno::INVAL)).is_err());
    }

    #[test]
    fn a_module_is_known_by_what_stands_behind_its_place_in_the_order() {
        assert_eq!(called(Path::new("/modules/11-virtio_net.ko.xz")), Some("virtio_net"));
        assert_eq!(called(Path::new("/modules/09-failover.ko")), Some("failover"));
        assert_eq!(called(Path::new("/modules/README")), None);
    }
}
