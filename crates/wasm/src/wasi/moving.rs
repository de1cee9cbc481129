//! Bytes between a guest and its descriptors.

use wasmtime::Linker;

use super::{Descriptor, Errno, Guest, GuestMemory, Host, Stop, calls};
use crate::files::Tree;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    calls! { linker;
        "fd_write" => |memory, host, fd: u32, list: u32, count: u32, out: u32| {
            write(memory, host, fd, (list, count), None, out)
        };
        "fd_pwrite" => |memory, host, fd: u32, list: u32, count: u32, at: u64, out: u32| {
            write(memory, host, fd, (list, count), Some(at), out)
        };
        "fd_read" => |memory, host, fd: u32, list: u32, count: u32, out: u32| {
            read(memory, host, fd, (list, count), None, out)
        };
        "fd_pread" => |memory, host, fd: u32, list: u32, count: u32, at: u64, out: u32| {
            read(memory, host, fd, (list, count), Some(at), out)
        };
        "fd_seek" => |memory, host, fd: u32, by: i64, whence: u32, out: u32| {
            let place = seek(host, fd, by, whence)?;
            Ok(memory.put_u64(out, place)?)
        };
        "fd_tell" => |memory, host, fd: u32, out: u32| {
            let place = seek(host, fd, 0, 1)?;
            Ok(memory.put_u64(out, place)?)
        };
        "fd_close" => |_memory, host, fd: u32| Ok(host.descriptors.close(fd)?);
        "fd_renumber" => |_memory, host, from: u32, to: u32| Ok(host.descriptors.renumber(from, to)?);
        "fd_advise" => |_memory, host, fd: u32, _at: u64, _length: u64, _advice: u32| known(host, fd);
        "fd_datasync" => |_memory, host, fd: u32| known(host, fd);
        "fd_sync" => |_memory, host, fd: u32| known(host, fd);
        "fd_allocate" => |memory, host, fd: u32, at: u64, length: u64| {
            let ino = writable(host, fd)?;
            let size = at.checked_add(length).ok_or(Errno::TooLarge)?;
            if size > host.tree().facts(ino)?.size { resize(memory, host, ino, size) } else { Ok(()) }
        };
        "fd_filestat_set_size" => |memory, host, fd: u32, size: u64| {
            let ino = writable(host, fd)?;
            resize(memory, host, ino, size)
        };
        "fd_filestat_set_times" => |_memory, host, fd: u32, _read: u64, modified: u64, flags: u32| {
            let ino = host.descriptors.ino(fd)?;
            set_time(&mut host.tree(), ino, modified, flags)
        };
    }
    Ok(())
}

fn known(host: &Host, fd: u32) -> Result<(), Stop> {
    host.descriptors.get(fd)?;
    Ok(())
}

fn writable(host: &Host, fd: u32) -> Result<usize, Errno> {
    match host.descriptors.get(fd)? {
        Descriptor::File { ino, writes: true, .. } => Ok(*ino),
        Descriptor::File { .. } => Err(Errno::BadFd),
        Descriptor::Directory { .. } => Err(Errno::IsDirectory),
        Descriptor::Input | Descriptor::Output(_) => Err(Errno::Invalid),
    }
}

/// Gives a file another size; what it grows by is filled with zeros.
fn resize(memory: &mut GuestMemory<'_>, host: &Host, ino: usize, size: u64) -> Result<(), Stop> {
    let mut tree = host.tree();
    let before = tree.facts(ino)?.size;
    tree.resize(ino, size)?;
    memory.move_bytes(size.saturating_sub(before));
    Ok(())
}

/// Sets the time of the last change, if the flags say so: 4 to a value, 8 to now.
pub(super) fn set_time(tree: &mut Tree, ino: usize, modified: u64, flags: u32) -> Result<(), Stop> {
    let modified = match flags & 12 {
        4 => i64::try_from(modified).map_err(|_| Errno::Invalid)?,
        8 => tree.now(),
        0 => return Ok(()),
        _ => return Err(Errno::Invalid.into()),
    };
    Ok(tree.touch(ino, modified)?)
}

fn write(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: u32,
    (list, count): (u32, u32),
    place: Option<u64>,
    out: u32,
) -> Result<(), Stop> {
    let pieces = memory.pieces(list, count)?;
    let mut done: u32 = 0;
    match host.descriptors.get(fd)?.clone() {
        Descriptor::Output(stream) if place.is_none() => {
            for (at, length) in pieces {
                if let Some(streams) = &host.streams {
                    streams.write(stream, memory.get(at, length)?)?;
                }
                done = done.saturating_add(length);
            }
        }
        Descriptor::File { ino, at, append, writes: true, .. } => {
            let mut tree = host.tree();
            let before = tree.facts(ino)?.size;
            let mut to = match place {
                Some(place) => place,
                None if append => before,
                None => at,
            };
            for (at, length) in pieces {
                match tree.write(ino, to, memory.get(at, length)?) {
                    Ok(_) => {}
                    // What was written before stays written, and the guest hears of the rest when it goes on.
                    Err(_) if done > 0 => break,
                    Err(trouble) => return Err(trouble.into()),
                }
                done = done.saturating_add(length);
                to = to.saturating_add(u64::from(length));
            }
            // A hole is filled with zeros.
            memory.move_bytes(tree.facts(ino)?.size.saturating_sub(before).saturating_sub(u64::from(done)));
            drop(tree);
            if place.is_none()
                && let Descriptor::File { at, .. } = host.descriptors.get_mut(fd)?
            {
                *at = to;
            }
        }
        Descriptor::Output(_) => return Err(Errno::NoSeek.into()),
        Descriptor::Directory { .. } => return Err(Errno::IsDirectory.into()),
        Descriptor::Input | Descriptor::File { .. } => return Err(Errno::BadFd.into()),
    }
    memory.move_bytes(u64::from(done));
    Ok(memory.put_u32(out, done)?)
}

fn read(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: u32,
    (list, count): (u32, u32),
    place: Option<u64>,
    out: u32,
) -> Result<(), Stop> {
    let pieces = memory.pieces(list, count)?;
    let mut done: usize = 0;
    match host.descriptors.get(fd)?.clone() {
        Descriptor::Input if place.is_none() => {
            // Only the first piece with room waits: what is there is handed over.
            if let (Some(streams), Some((at, length))) =
                (&host.streams, pieces.into_iter().find(|(_, length)| *length > 0))
            {
                done = streams.read(memory.get_mut(at, length)?)?;
            }
        }
        Descriptor::File { ino, at, reads: true, .. } => {
            let tree = host.tree();
            let mut from = place.unwrap_or(at);
            for (at, length) in pieces {
                let got = tree.read(ino, from, memory.get_mut(at, length)?)?;
                from = from.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
                done = done.saturating_add(got);
                if u32::try_from(got).map_or(true, |got| got < length) {
                    break;
                }
            }
            drop(tree);
            if place.is_none()
                && let Descriptor::File { at, .. } = host.descriptors.get_mut(fd)?
            {
                *at = from;
            }
        }
        Descriptor::Input => return Err(Errno::NoSeek.into()),
        Descriptor::Directory { .. } => return Err(Errno::IsDirectory.into()),
        Descriptor::Output(_) | Descriptor::File { .. } => return Err(Errno::BadFd.into()),
    }
    let done = u32::try_from(done).unwrap_or(u32::MAX);
    memory.move_bytes(u64::from(done));
    Ok(memory.put_u32(out, done)?)
}

/// Moves the place of the next read or write. Whence: 0 from the start, 1 from here, 2 from the end.
fn seek(host: &mut Host, fd: u32, by: i64, whence: u32) -> Result<u64, Stop> {
    let (ino, now) = match host.descriptors.get(fd)? {
        Descriptor::File { ino, at, .. } => (*ino, *at),
        Descriptor::Input | Descriptor::Output(_) => return Err(Errno::NoSeek.into()),
        Descriptor::Directory { .. } => return Err(Errno::BadFd.into()),
    };
    let base = match whence {
        0 => 0,
        1 => now,
        2 => host.tree().facts(ino)?.size,
        _ => return Err(Errno::Invalid.into()),
    };
    let place = base.checked_add_signed(by).ok_or(Errno::Invalid)?;
    if let Descriptor::File { at, .. } = host.descriptors.get_mut(fd)? {
        *at = place;
    }
    Ok(place)
}
