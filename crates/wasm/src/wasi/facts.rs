//! What a descriptor is, and what lies in a directory.

use wasmtime::Linker;

use super::memory::step;
use super::{Descriptor, Errno, Guest, GuestMemory, Host, Stop, calls};
use crate::files::{Facts, Ino, Kind, Tree, Trouble};

/// What a standard stream is said to be. A character device would be taken for a terminal, with colours and all.
const STREAM: u8 = 6;
const DIRECTORY: u8 = 3;
const REGULAR: u8 = 4;
/// Every right that there is: ours are not taken away one by one.
const EVERY_RIGHT: u64 = (1 << 30) - 1;
/// Reading, writing and waiting: what can be done with a stream.
const STREAM_RIGHTS: u64 = (1 << 1) | (1 << 6) | (1 << 27);
const APPEND: u16 = 1;
/// Entries that are looked at in one call.
const BATCH: usize = 256;
/// What it costs to go past an entry, and to look at one, in the work of moving a byte.
const GONE_PAST: u64 = 4;
const LOOKED_AT: u64 = 64;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    calls! { linker;
        "fd_fdstat_get" => |memory, host, fd: u32, out: u32| {
            let (kind, flags, rights) = match host.descriptors.get(fd)? {
                Descriptor::Input | Descriptor::Output(_) => (STREAM, 0, STREAM_RIGHTS),
                Descriptor::Directory { .. } => (DIRECTORY, 0, EVERY_RIGHT),
                Descriptor::File { append, .. } => (REGULAR, if *append { APPEND } else { 0 }, EVERY_RIGHT),
            };
            let mut stat = [0; 24];
            put(&mut stat, 0, &[kind]);
            put(&mut stat, 2, &flags.to_le_bytes());
            put(&mut stat, 8, &rights.to_le_bytes());
            put(&mut stat, 16, &rights.to_le_bytes());
            Ok(memory.put(out, &stat)?)
        };
        "fd_fdstat_set_flags" => |_memory, host, fd: u32, flags: u32| {
            match host.descriptors.get_mut(fd)? {
                Descriptor::File { append, .. } => *append = flags & u32::from(APPEND) != 0,
                Descriptor::Input | Descriptor::Output(_) | Descriptor::Directory { .. } => {}
            }
            Ok(())
        };
        "fd_fdstat_set_rights" => |_memory, host, fd: u32, _base: u64, _inheriting: u64| {
            host.descriptors.get(fd)?;
            Ok(())
        };
        "fd_filestat_get" => |memory, host, fd: u32, out: u32| {
            let stat = match host.descriptors.get(fd)? {
                Descriptor::Input | Descriptor::Output(_) => {
                    let mut stat = [0; 64];
                    put(&mut stat, 16, &[STREAM]);
                    stat
                }
                Descriptor::Directory { ino, .. } | Descriptor::File { ino, .. } => {
                    filestat(&host.tree().facts(*ino)?)
                }
            };
            Ok(memory.put(out, &stat)?)
        };
        "fd_prestat_get" => |memory, host, fd: u32, out: u32| {
            let length = u32::try_from(given(host, fd)?.len()).map_err(|_| Errno::Fault)?;
            memory.put_u32(out, 0)?;
            Ok(memory.put_u32(step(out, 4)?, length)?)
        };
        "fd_prestat_dir_name" => |memory, host, fd: u32, at: u32, length: u32| {
            let name = given(host, fd)?;
            if u32::try_from(name.len()).map_or(true, |needed| needed > length) {
                return Err(Errno::NameTooLong.into());
            }
            Ok(memory.put(at, name)?)
        };
        "fd_readdir" => |memory, host, fd: u32, at: u32, length: u32, cookie: u64, out: u32| {
            read_directory(memory, host, fd, (at, length), cookie, out)
        };
    }
    Ok(())
}

/// The name of a directory that the guest was given. A guest asks for 3, 4, … until one is none.
fn given(host: &Host, fd: u32) -> Result<&[u8], Errno> {
    match host.descriptors.get(fd)? {
        Descriptor::Directory { given: Some(name), .. } => Ok(name),
        _ => Err(Errno::BadFd),
    }
}

/// As many entries as fit. The last one may be cut off: the guest sees that and asks again with more room.
fn read_directory(
    memory: &mut GuestMemory<'_>,
    host: &Host,
    fd: u32,
    (at, length): (u32, u32),
    cookie: u64,
    out: u32,
) -> Result<(), Stop> {
    let ino = host.descriptors.directory(fd)?;
    memory.get(at, length)?;
    let room = usize::try_from(length).unwrap_or(0);
    let Pack { bytes: packed, work } = pack(&host.tree(), ino, room, cookie)?;
    memory.move_bytes(work);
    memory.move_bytes(u64::try_from(packed.len()).unwrap_or(u64::MAX));
    memory.put(at, &packed)?;
    Ok(memory.put_u32(out, u32::try_from(packed.len()).unwrap_or(0))?)
}

/// Entries as they are told.
struct Pack {
    bytes: Vec<u8>,
    /// What was done to find them, beside moving them.
    work: u64,
}

/// A cookie is how many entries lie before it, and each of them is gone past: whoever reads a large directory entry by entry has
/// us do far more than is moved, and pays for it.
fn pack(tree: &Tree, ino: Ino, room: usize, cookie: u64) -> Result<Pack, Trouble> {
    let (mut bytes, mut work, mut next) = (Vec::new(), 0_u64, cookie);
    while bytes.len() < room {
        let skipped = usize::try_from(next).unwrap_or(usize::MAX);
        let entries = tree.list(ino, skipped, BATCH)?;
        let passed = count(skipped.min(tree.directory(ino)?.len()));
        work = work
            .saturating_add(passed.saturating_mul(GONE_PAST))
            .saturating_add(count(entries.len()).saturating_mul(LOOKED_AT));
        if entries.is_empty() {
            break;
        }
        for (name, facts) in entries {
            next = next.saturating_add(1);
            let mut head = [0; 24];
            put(&mut head, 0, &next.to_le_bytes());
            put(&mut head, 8, &count(facts.ino).to_le_bytes());
            put(&mut head, 16, &u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
            put(&mut head, 20, &[filetype(facts.kind)]);
            bytes.extend_from_slice(&head);
            bytes.extend_from_slice(&name);
            if bytes.len() >= room {
                break;
            }
        }
    }
    bytes.truncate(room);
    Ok(Pack { bytes, work })
}

/// What is known of an entry, in WASI's form.
pub(super) fn filestat(facts: &Facts) -> [u8; 64] {
    let mut stat = [0; 64];
    let modified = u64::try_from(facts.modified).unwrap_or(0).to_le_bytes();
    put(&mut stat, 0, &1_u64.to_le_bytes());
    put(&mut stat, 8, &count(facts.ino).saturating_add(1).to_le_bytes());
    put(&mut stat, 16, &[filetype(facts.kind)]);
    put(&mut stat, 24, &1_u64.to_le_bytes());
    put(&mut stat, 32, &facts.size.to_le_bytes());
    for at in [40, 48, 56] {
        put(&mut stat, at, &modified);
    }
    stat
}

fn filetype(kind: Kind) -> u8 {
    match kind {
        Kind::File => REGULAR,
        Kind::Directory => DIRECTORY,
    }
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    for (place, byte) in into.iter_mut().skip(at).zip(bytes) {
        *place = *byte;
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::files::{Caps, ROOT};

    #[test]
    fn what_a_cookie_leaves_behind_is_paid_for() {
        let caps = Caps { bytes: 1 << 20, entries: 10_000, file: 1 << 20 };
        let mut tree = Tree::new(caps, Budget::new(1 << 30));
        for number in 0..5_000 {
            tree.make_file(ROOT, format!("{number:04}").as_bytes(), 0o644).unwrap();
        }
        let one = 24 + 4;
        // The first is near, and the last is not; behind the end everything was gone past in vain.
        let work = |room: usize, cookie: u64| {
            let Pack { bytes, work } = pack(&tree, ROOT, room, cookie).unwrap();
            (bytes.len(), work)
        };
        assert_eq!(work(one, 0), (one, count(BATCH) * LOOKED_AT));
        assert_eq!(work(one, 4_999), (one, 4_999 * GONE_PAST + LOOKED_AT));
        assert_eq!(work(one, u64::MAX), (0, 5_000 * GONE_PAST));
        // All at once costs about what there is, and one by one the square of it.
        let at_once = work(usize::MAX, 0);
        assert_eq!(at_once.0, 5_000 * one);
        let one_by_one: u64 = (0..5_000).map(|cookie| work(one, cookie).1).sum();
        assert!(one_by_one > 10 * at_once.1, "{one_by_one} {at_once:?}");
    }
}
