//! The root of a guest, made as that of a jail is: read-only, from the image's trees, with places of the box's own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_wire::egress::RESOLV_CONF;
use blastbox_wire::plan::{DeviceName, Exec};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, chmodat, chownat, makedev, mkdirat, mknodat, open, openat,
    readlinkat, statat, symlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::drivers::{DISK, WORKSPACE};
use super::orders::{Orders, Workspace};

/// What an image may not bring along, because the box makes it itself.
const OURS: [&str; 7] = ["dev", "proc", "sys", "tmp", "run", "home", "workspace"];
/// The places that are filled here, parents first.
const PLACES: [&str; 9] =
    ["dev", "dev/pts", "dev/shm", "proc", "tmp", "run", "home", "home/user", "workspace"];
const LINKS: [(&str, &str); 5] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];
/// The payload's user and group, and their number as text for mounts.
const PAYLOAD: (u32, &str) = (1000, "1000");
/// Where things lie until the root is exchanged, all of it in the memory that the kernel unpacked us into.
const IMAGE: &str = ".image";
const ROOT: &str = ".root";
const SCRATCH: &str = ".scratch";
const LOWER: &str = ".lower";
const RESOLVERS: &str = ".resolvers";
const MACHINE: &str = ".machine";
/// Where programs look for a number that no other machine has.
const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
/// What says that a path of the image leads to no file.
const NOT_THERE: [Option<Errno>; 3] = [Some(Errno::NOENT), Some(Errno::NOTDIR), Some(Errno::LOOP)];

/// Makes the root and goes there. Nothing of what was before can be reached afterwards, but for the file with the machine's number, for
/// whoever makes a copy another machine.
pub(super) fn make(orders: &Orders) -> io::Result<OwnedFd> {
    rustix::process::umask(Mode::empty());
    let before = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for place in [IMAGE, ROOT, SCRATCH, RESOLVERS, MACHINE] {
        mkdirat(&before, place, Mode::from_raw_mode(0o755))?;
    }
    let image =
        mount::create("squashfs", &[("source", Some(DISK)), ("ro", None)], Attributes::PLAIN.read_only())?;
    mount::attach(image.as_fd(), before.as_fd(), IMAGE)?;
    let small = [("mode", Some("0755")), ("size", Some("1m")), ("nr_inodes", Some("1024"))];
    // Devices are opened here, and nowhere else in the box.
    let root = mount::create("tmpfs", &small, Attributes::PLAIN.no_programs())?;
    mount::attach(root.as_fd(), before.as_fd(), ROOT)?;
    for place in PLACES {
        mkdirat(&root, place, Mode::from_raw_mode(0o755))?;
    }
    show(&image, &root)?;
    devices(&root)?;
    // The image's own programs ask the gateway for names, where the image says whom they ask at all.
    if orders.network {
        cover(&before, &root, RESOLVERS, &["etc/resolv.conf"], RESOLV_CONF.as_bytes())?;
    }
    let machine = cover(&before, &root, MACHINE, &MACHINE_IDS, machine_id(&orders.name).as_bytes())?;
    scratch(&before, &root, orders)?;
    let shown = [("hidepid", Some("ptraceable")), ("subset", Some("pid"))];
    let processes = mount::create("proc", &shown, Attributes::PLAIN.no_programs())?;
    mount::attach(processes.as_fd(), root.as_fd(), "proc")?;
    let (_, id) = PAYLOAD;
    let terminals =
        [("ptmxmode", Some("0666")), ("mode", Some("0620")), ("uid", Some(id)), ("gid", Some(id))];
    let terminals = mount::create("devpts", &terminals, Attributes::DEVICE)?;
    mount::attach(terminals.as_fd(), root.as_fd(), "dev/pts")?;
    mount::restrict(root.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)?;
    // The first file system of a kernel cannot be exchanged by pivot_root; covering it is what there is. The payload
    // has no capability to look under the cover, and nothing is there that it could not see anyway.
    mount::cover_root(root.as_fd())?;
    rustix::process::chroot(".")?;
    rustix::process::chdir("/")?;
    Ok(machine)
}

/// The number of a machine as it stands in its file: a digest (FNV-1a) of the name of its box, which no other has and which it keeps when
/// it goes on from disk. An image's own would be that of all its boxes.
fn machine_id(name: &str) -> String {
    let step = |sum: u128, byte: u8| (sum ^ u128::from(byte)).wrapping_mul(0x100_0000_0000_0000_0000_013b);
    format!("{:032x}\n", name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step))
}

/// Gives a machine the number that belongs to this name.
pub(super) fn renew_machine_id(file: &OwnedFd, name: &str) -> io::Result<()> {
    let text = machine_id(name);
    match rustix::io::pwrite(file, text.as_bytes(), 0)? == text.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Every entry at the top of the image, except what the box makes itself.
fn show(image: &OwnedFd, root: &OwnedFd) -> io::Result<()> {
    let list = openat(image, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in Dir::new(list)? {
        let entry = entry?;
        let name = entry.file_name();
        let Ok(text) = name.to_str() else { return Err(io::ErrorKind::InvalidData.into()) };
        if matches!(text, "." | "..") || OURS.contains(&text) {
            continue;
        }
        let stat = statat(image, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => mkdirat(root, name, Mode::from_raw_mode(0o755))?,
            FileType::RegularFile => {
                mknodat(root, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?;
            }
            FileType::Symlink => {
                symlinkat(readlinkat(image, name, Vec::new())?, root, name)?;
                continue;
            }
            _ => continue,
        }
        let tree = mount::copy(image, text, Beneath::LeftOut)?;
        mount::attach(tree.as_fd(), root.as_fd(), text)?;
    }
    Ok(())
}

/// Shows a file of the box's own where the image has one: what it lies in as `name`, and the file itself, to be written to.
fn cover(before: &OwnedFd, root: &OwnedFd, name: &str, places: &[&str], text: &[u8]) -> io::Result<OwnedFd> {
    // On a file system of its own: an image has names of its choice at the top of its root, also this one.
    let small = [("mode", Some("0755")), ("size", Some("64k")), ("nr_inodes", Some("16"))];
    let place = mount::create("tmpfs", &small, Attributes::PLAIN.no_programs())?;
    mount::attach(place.as_fd(), before.as_fd(), name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&place, name, flags, Mode::from_raw_mode(0o644))?;
    let mut made = std::fs::File::from(file);
    io::Write::write_all(&mut made, text)?;
    for at in places {
        let shown = mount::copy(&place, name, Beneath::LeftOut)?;
        mount::restrict(shown.as_fd(), Attributes::PLAIN.no_programs().read_only(), Beneath::LeftOut)?;
        match mount::attach(shown.as_fd(), root.as_fd(), at) {
            // No such file, or a link to somewhere: then there is nothing to cover.
            Err(error) if NOT_THERE.contains(&Errno::from_io_error(&error)) => {}
            attached => attached?,
        }
    }
    Ok(made.into())
}

/// The harmless devices, on a file system of their own: the root itself allows none.
fn devices(root: &OwnedFd) -> io::Result<()> {
    let small = [("mode", Some("0755")), ("size", Some("64k")), ("nr_inodes", Some("64"))];
    let made = mount::create("tmpfs", &small, Attributes::DEVICE)?;
    mount::attach(made.as_fd(), root.as_fd(), "dev")?;
    for place in ["pts", "shm"] {
        mkdirat(&made, place, Mode::from_raw_mode(0o755))?;
    }
    for (at, to) in LINKS {
        symlinkat(to, &made, at.trim_start_matches("dev/"))?;
    }
    for name in DeviceName::HARMLESS {
        let (major, minor) = match name.as_str() {
            "null" => (1, 3),
            "zero" => (1, 5),
            "full" => (1, 7),
            "random" => (1, 8),
            "urandom" => (1, 9),
            "tty" => (5, 0),
            // What a guest has no use for.
            _ => continue,
        };
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&made, name.as_str(), FileType::CharacterDevice, mode, makedev(major, minor))?;
    }
    Ok(())
}

/// What is never the scratch space's: for the agent, and for commands that clear it. Files outlive whoever made them, so nobody could
/// be killed for their memory, and a guest that has none left gives up.
const NEVER_SCRATCH: u64 = 24 << 20;
/// About what a name of a file and its entry take of the kernel's memory.
const ENTRY: u64 = 1 << 10;

/// How many bytes and files the scratch space has, in a guest with so much memory left. Never none, which kernels take for no end.
fn room(free: u64, (bytes, inodes): (u64, u64)) -> (u64, u64) {
    (bytes.min(free.saturating_sub(NEVER_SCRATCH).max(1 << 20)), inodes.min((free / 4 / ENTRY).max(1 << 10)))
}

/// One memory file system for everything that the box can write, shown at several places.
fn scratch(before: &OwnedFd, root: &OwnedFd, orders: &Orders) -> io::Result<()> {
    let info = rustix::system::sysinfo();
    let (bytes, inodes) =
        room(info.freeram.saturating_mul(info.mem_unit.into()), (orders.bytes, orders.inodes));
    let (bytes, inodes) = (bytes.to_string(), inodes.to_string());
    let options =
        [("mode", Some("0755")), ("size", Some(bytes.as_str())), ("nr_inodes", Some(inodes.as_str()))];
    let scratch = mount::create("tmpfs", &options, Attributes::PLAIN)?;
    mount::attach(scratch.as_fd(), before.as_fd(), SCRATCH)?;
    let (everybody, payload) = (Mode::from_raw_mode(0o1777), Mode::from_raw_mode(0o755));
    let mut places = vec![
        ("tmp", everybody, orders.exec),
        ("home/user", payload, orders.exec),
        // Shared memory is never a place for programs, whatever the policy says about scratch space.
        ("dev/shm", everybody, Exec::Denied),
    ];
    if orders.workspace == Workspace::Empty {
        places.push(("workspace", payload, orders.exec));
    }
    for (at, mode, exec) in places {
        let name = at.replace('/', "-");
        mkdirat(&scratch, name.as_str(), mode)?;
        if mode == payload {
            let (id, _) = PAYLOAD;
            let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
            chownat(&scratch, name.as_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        } else {
            chmodat(&scratch, name.as_str(), mode, AtFlags::empty())?;
        }
        let tree = mount::copy(&scratch, &name, Beneath::LeftOut)?;
        if exec == Exec::Denied {
            mount::restrict(tree.as_fd(), Attributes::PLAIN.no_programs(), Beneath::LeftOut)?;
        }
        mount::attach(tree.as_fd(), root.as_fd(), at)?;
    }
    if orders.workspace.has_disk() {
        workspace(before, root, &scratch, orders)?;
    }
    Ok(())
}

/// The caller's directory, which is a disk that nobody can write to; changes, where they may be, lie in the scratch space.
fn workspace(before: &OwnedFd, root: &OwnedFd, scratch: &OwnedFd, orders: &Orders) -> io::Result<()> {
    let mut attributes = Attributes::PLAIN;
    if orders.exec == Exec::Denied {
        attributes = attributes.no_programs();
    }
    let options = [("source", Some(WORKSPACE)), ("ro", None)];
    let disk = mount::create("squashfs", &options, attributes.read_only())?;
    if orders.workspace == Workspace::ReadOnly {
        return mount::attach(disk.as_fd(), root.as_fd(), "workspace");
    }
    mkdirat(before, LOWER, Mode::from_raw_mode(0o755))?;
    mount::attach(disk.as_fd(), before.as_fd(), LOWER)?;
    let (id, _) = PAYLOAD;
    for name in ["upper", "work"] {
        mkdirat(scratch, name, Mode::from_raw_mode(0o755))?;
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        chownat(scratch, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let [lower, upper, work] = [format!("/{LOWER}"), format!("/{SCRATCH}/upper"), format!("/{SCRATCH}/work")];
    let options = [
        ("lowerdir", Some(lower.as_str())),
        ("upperdir", Some(upper.as_str())),
        ("workdir", Some(work.as_str())),
    ];
    let merged = mount::create("overlay", &options, attributes)?;
    mount::attach(merged.as_fd(), root.as_fd(), "workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_space_leaves_the_agent_memory_and_is_never_without_end() {
        const MIB: u64 = 1 << 20;
        let asked = (256 * MIB, 65_536);
        assert_eq!(room(310 * MIB, asked), asked);
        assert_eq!(room(64 * MIB, asked), (40 * MIB, 16 << 10));
        assert_eq!(room(0, asked), (MIB, 1 << 10));
        assert_eq!(room(0, (4096, 16)), (4096, 16));
    }

    #[test]
    fn a_machines_number_is_that_of_its_name() {
        // The digest's own examples.
        assert_eq!(machine_id(""), "6c62272e07bb014262b821756295c58d\n");
        assert_eq!(machine_id("a"), "d228cb696f1a8caf78912b704e4a8964\n");
    }
}
