//! Calls that name a file.

use wasmtime::Linker;

use super::facts::filestat;
use super::moving::set_time;
use super::{Descriptor, Errno, Guest, GuestMemory, Host, Stop, calls};
use crate::files::{Facts, Ino, Kind, Tree, Trouble};

/// How a file is opened.
pub(crate) const CREATE: u32 = 1;
pub(crate) const DIRECTORY: u32 = 2;
pub(crate) const EXCLUSIVE: u32 = 4;
pub(crate) const TRUNCATE: u32 = 8;
const APPEND: u32 = 1;
const MAY_READ: u64 = 1 << 1;
const MAY_WRITE: u64 = 1 << 6;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    calls! { linker;
        "path_open" => |memory, host, fd: u32, _links: u32, at: u32, length: u32, how: u32, rights: u64, _later: u64, flags: u32, out: u32| {
            let path = memory.path(at, length)?.to_vec();
            let found = open(host, fd, &path, how, rights, flags)?;
            Ok(memory.put_u32(out, host.descriptors.keep(found)?)?)
        };
        "path_filestat_get" => |memory, host, fd: u32, _links: u32, at: u32, length: u32, out: u32| {
            let from = host.descriptors.directory(fd)?;
            let stat = {
                let tree = host.tree();
                filestat(&tree.facts(tree.find(from, memory.path(at, length)?)?)?)
            };
            Ok(memory.put(out, &stat)?)
        };
        "path_filestat_set_times" => |memory, host, fd: u32, _links: u32, at: u32, length: u32, _read: u64, modified: u64, flags: u32| {
            let from = host.descriptors.directory(fd)?;
            let mut tree = host.tree();
            let ino = tree.find(from, memory.path(at, length)?)?;
            set_time(&mut tree, ino, modified, flags)
        };
        "path_create_directory" => |memory, host, fd: u32, at: u32, length: u32| {
            let mut tree = host.tree();
            let (directory, name) = named(memory, host, &tree, fd, (at, length))?;
            tree.make_directory(directory, &name, 0o755)?;
            Ok(())
        };
        "path_unlink_file" => |memory, host, fd: u32, at: u32, length: u32| {
            remove(memory, host, fd, (at, length), Kind::File)
        };
        "path_remove_directory" => |memory, host, fd: u32, at: u32, length: u32| {
            remove(memory, host, fd, (at, length), Kind::Directory)
        };
        "path_rename" => |memory, host, fd: u32, at: u32, length: u32, new_fd: u32, new_at: u32, new_length: u32| {
            let mut tree = host.tree();
            let (from, old) = named(memory, host, &tree, fd, (at, length))?;
            let (to, new) = named(memory, host, &tree, new_fd, (new_at, new_length))?;
            Ok(tree.rename((from, &old), (to, &new))?)
        };
        // No links: what does not exist cannot lead astray whoever looks at the files afterwards.
        "path_symlink" => |_memory, _host, _at: u32, _length: u32, _fd: u32, _new_at: u32, _new_length: u32| {
            Err(Errno::NotSupported.into())
        };
        "path_link" => |_memory, _host, _fd: u32, _links: u32, _at: u32, _length: u32, _new_fd: u32, _new_at: u32, _new_length: u32| {
            Err(Errno::NotSupported.into())
        };
        "path_readlink" => |memory, host, fd: u32, at: u32, length: u32, _to: u32, _room: u32, _out: u32| {
            let from = host.descriptors.directory(fd)?;
            host.tree().find(from, memory.path(at, length)?)?;
            Err(Errno::Invalid.into())
        };
    }
    Ok(())
}

/// The directory and the last name of a path.
fn named(
    memory: &GuestMemory<'_>,
    host: &Host,
    tree: &Tree,
    fd: u32,
    (at, length): (u32, u32),
) -> Result<(Ino, Vec<u8>), Stop> {
    let from = host.descriptors.directory(fd)?;
    match tree.place(from, memory.path(at, length)?)? {
        (directory, Some(name)) => Ok((directory, name)),
        (_, None) => Err(Errno::Exists.into()),
    }
}

fn remove(memory: &GuestMemory<'_>, host: &Host, fd: u32, path: (u32, u32), kind: Kind) -> Result<(), Stop> {
    let mut tree = host.tree();
    let (directory, name) = named(memory, host, &tree, fd, path)?;
    let ino = tree.find(directory, &name)?;
    match (kind, tree.facts(ino)?.kind) {
        (Kind::File, Kind::Directory) => Err(Errno::IsDirectory.into()),
        (Kind::Directory, Kind::File) => Err(Errno::NotDirectory.into()),
        _ => Ok(tree.remove(directory, &name)?),
    }
}

/// What a path leads to, held, to be kept.
fn open(host: &Host, fd: u32, path: &[u8], how: u32, rights: u64, flags: u32) -> Result<Descriptor, Stop> {
    let from = host.descriptors.directory(fd)?;
    let (reads, writes) = (rights & MAY_READ != 0, rights & MAY_WRITE != 0);
    let Facts { ino, kind, .. } = find_to_keep(&mut host.tree(), from, path, how, writes)?;
    Ok(match kind {
        Kind::Directory => Descriptor::Directory { ino, given: None },
        Kind::File => Descriptor::File { ino, at: 0, append: flags & APPEND != 0, reads, writes },
    })
}

/// The entry that a path leads to, made or emptied where that is asked for, and held.
pub(crate) fn find_to_keep(
    tree: &mut Tree,
    from: Ino,
    path: &[u8],
    how: u32,
    writes: bool,
) -> Result<Facts, Errno> {
    find_or_make(tree, from, path, how, writes).inspect(|facts| tree.hold(facts.ino))
}

fn find_or_make(tree: &mut Tree, from: Ino, path: &[u8], how: u32, writes: bool) -> Result<Facts, Errno> {
    let ino = match tree.find(from, path) {
        Ok(_) if how & CREATE != 0 && how & EXCLUSIVE != 0 => return Err(Errno::Exists),
        Ok(ino) => ino,
        Err(Trouble::NotFound) if how & CREATE != 0 && how & DIRECTORY == 0 => {
            if path.last() == Some(&b'/') {
                return Err(Errno::IsDirectory);
            }
            let (directory, name) = tree.place(from, path)?;
            tree.make_file(directory, &name.ok_or(Errno::NotFound)?, 0o644)?
        }
        Err(trouble) => return Err(trouble.into()),
    };
    let facts = tree.facts(ino)?;
    if facts.kind == Kind::File && how & TRUNCATE != 0 {
        if !writes {
            return Err(Errno::Invalid);
        }
        tree.resize(ino, 0)?;
    }
    if facts.kind == Kind::File && writes && !tree.may_write(ino) {
        return Err(Errno::ReadOnly);
    }
    match facts.kind {
        Kind::Directory if how & TRUNCATE != 0 => Err(Errno::IsDirectory),
        Kind::File if how & DIRECTORY != 0 => Err(Errno::NotDirectory),
        _ => Ok(facts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ROOT;

    #[test]
    fn a_file_that_was_found_is_held_before_another_command_can_take_its_number() {
        let mut host = Host::alone(false, false);
        host.tree().hold(ROOT);
        let root = host.descriptors.keep(Descriptor::Directory { ino: ROOT, given: None }).unwrap();
        let ino = host.tree().make_file(ROOT, b"f", 0o644).unwrap();
        let found = open(&host, root, b"f", 0, MAY_READ, 0).unwrap();
        // Another command.
        host.tree().remove(ROOT, b"f").unwrap();
        let other = host.tree().make_file(ROOT, b"g", 0o644).unwrap();
        assert_ne!(ino, other);
        let file = host.descriptors.keep(found).unwrap();
        assert_eq!(host.descriptors.ino(file), Ok(ino));
        host.descriptors.close(file).unwrap();
        assert!(host.tree().facts(ino).is_err() && host.tree().facts(other).is_ok());
        // What is found and finds no place is let go.
        let more = || open(&host, root, b"g", 0, MAY_READ, 0).unwrap();
        let found: Vec<Descriptor> = std::iter::repeat_with(more).take(8).collect();
        let kept: Vec<_> = found.into_iter().map(|found| host.descriptors.keep(found)).collect();
        assert_eq!(kept.last(), Some(&Err(Errno::ManyFiles)));
        host.tree().remove(ROOT, b"g").unwrap();
        kept.into_iter().flatten().for_each(|fd| host.descriptors.close(fd).unwrap());
        assert!(host.tree().facts(other).is_err());
    }
}
