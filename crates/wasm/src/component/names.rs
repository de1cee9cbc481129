//! `wasi:filesystem/types`: calls that name a file.

use wasmtime::component::{Linker, Resource, WasmStr};

use super::codes::{
    DescriptorFlags, DescriptorStat, ErrorCode, MetadataHash, NewTimestamp, OpenFlags, PathFlags,
};
use super::files::{Answer, set_time};
use super::handles::{Opened, Thing};
use super::{Call, FileHandle, offer, owned};
use crate::files::{Facts, Ino, Kind, LONGEST_PATH, Tree};
use crate::wasi::paths::{CREATE, DIRECTORY, EXCLUSIVE, TRUNCATE, find_to_keep};
use crate::wasi::{Errno, Guest, Host, pay};

type File = Resource<FileHandle>;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "wasi:filesystem/types@0.2.0";
        "[method]descriptor.open-at" => |call, this: File, _links: PathFlags, path: WasmStr, how: OpenFlags, flags: DescriptorFlags| -> Answer<File> {
            let path = said(&mut call, &path)?;
            let found = path.and_then(|path| open(&call.data().host, this.rep(), &path, how, flags));
            let opened = found.and_then(|opened| call.data_mut().host.handles.keep_file(Thing::File(opened)));
            opened.map(owned).map_err(ErrorCode::from)
        }
        "[method]descriptor.stat-at" => |call, this: File, _links: PathFlags, path: WasmStr| -> Answer<DescriptorStat> {
            named(&mut call, &this, &path)?.map(|facts| (&facts).into()).map_err(ErrorCode::from)
        }
        "[method]descriptor.metadata-hash-at" => |call, this: File, _links: PathFlags, path: WasmStr| -> Answer<MetadataHash> {
            named(&mut call, &this, &path)?.map(|facts| (&facts).into()).map_err(ErrorCode::from)
        }
        "[method]descriptor.set-times-at" => |call, this: File, _links: PathFlags, path: WasmStr, _read: NewTimestamp, modified: NewTimestamp| -> Answer<()> {
            let path = said(&mut call, &path)?;
            let host = &call.data().host;
            let set = path.and_then(|path| {
                let from = directory(host, this.rep())?;
                let mut tree = host.tree();
                let ino = tree.find(from, &path)?;
                set_time(&mut tree, ino, modified)
            });
            set.map_err(ErrorCode::from)
        }
        "[method]descriptor.create-directory-at" => |call, this: File, path: WasmStr| -> Answer<()> {
            let path = said(&mut call, &path)?;
            let host = &call.data().host;
            let made = path.and_then(|path| {
                let mut tree = host.tree();
                let (directory, name) = place(host, &tree, this.rep(), &path)?;
                Ok(tree.make_directory(directory, &name, 0o755)?)
            });
            made.map(drop).map_err(ErrorCode::from)
        }
        "[method]descriptor.unlink-file-at" => |call, this: File, path: WasmStr| -> Answer<()> {
            let path = said(&mut call, &path)?;
            path.and_then(|path| remove(&call.data().host, this.rep(), &path, Kind::File)).map_err(ErrorCode::from)
        }
        "[method]descriptor.remove-directory-at" => |call, this: File, path: WasmStr| -> Answer<()> {
            let path = said(&mut call, &path)?;
            path.and_then(|path| remove(&call.data().host, this.rep(), &path, Kind::Directory)).map_err(ErrorCode::from)
        }
        "[method]descriptor.rename-at" => |call, this: File, path: WasmStr, to: File, new: WasmStr| -> Answer<()> {
            let (path, new) = (said(&mut call, &path)?, said(&mut call, &new)?);
            let host = &call.data().host;
            let renamed = path.and_then(|path| {
                let mut tree = host.tree();
                let (from, old) = place(host, &tree, this.rep(), &path)?;
                let (to, new) = place(host, &tree, to.rep(), &new?)?;
                Ok(tree.rename((from, &old), (to, &new))?)
            });
            renamed.map_err(ErrorCode::from)
        }
        // No links: what does not exist cannot lead astray whoever looks at the files afterwards.
        "[method]descriptor.link-at" => |_call, _this: File, _links: PathFlags, _path: WasmStr, _to: File, _new: WasmStr| -> Answer<()> {
            Err(ErrorCode::Unsupported)
        }
        "[method]descriptor.symlink-at" => |_call, _this: File, _path: WasmStr, _new: WasmStr| -> Answer<()> {
            Err(ErrorCode::Unsupported)
        }
        "[method]descriptor.readlink-at" => |call, this: File, path: WasmStr| -> Answer<String> {
            named(&mut call, &this, &path)?.map_err(ErrorCode::from).and(Err(ErrorCode::Invalid))
        }
    }
    Ok(())
}

/// A path as the guest said it, if it is none that is longer than any. Its length is known only when it was made UTF-8 ([`super::run`]),
/// which is work.
fn said(call: &mut Call<'_>, path: &WasmStr) -> wasmtime::Result<Result<Vec<u8>, Errno>> {
    let path = path.to_str(&*call)?;
    let length = u64::try_from(path.len()).unwrap_or(u64::MAX);
    let kept = if path.len() > LONGEST_PATH { Err(Errno::NameTooLong) } else { Ok(path.as_bytes().to_vec()) };
    drop(path);
    pay(call, length)?;
    Ok(kept)
}

/// The directory that paths begin at.
fn directory(host: &Host, number: u32) -> Result<Ino, Errno> {
    match host.handles.file(number)? {
        Opened { ino, kind: Kind::Directory, .. } => Ok(ino),
        Opened { .. } => Err(Errno::NotDirectory),
    }
}

/// What is known of what a path leads to.
fn named(call: &mut Call<'_>, this: &File, path: &WasmStr) -> wasmtime::Result<Result<Facts, Errno>> {
    let path = said(call, path)?;
    let host = &call.data().host;
    let find = |path: Vec<u8>| {
        let from = directory(host, this.rep())?;
        let tree = host.tree();
        Ok(tree.facts(tree.find(from, &path)?)?)
    };
    Ok(path.and_then(find))
}

/// The directory and the last name of a path.
fn place(host: &Host, tree: &Tree, number: u32, path: &[u8]) -> Result<(Ino, Vec<u8>), Errno> {
    match tree.place(directory(host, number)?, path)? {
        (directory, Some(name)) => Ok((directory, name)),
        (_, None) => Err(Errno::Exists),
    }
}

fn remove(host: &Host, number: u32, path: &[u8], kind: Kind) -> Result<(), Errno> {
    let mut tree = host.tree();
    let (directory, name) = place(host, &tree, number, path)?;
    let ino = tree.find(directory, &name)?;
    match (kind, tree.facts(ino)?.kind) {
        (Kind::File, Kind::Directory) => Err(Errno::IsDirectory),
        (Kind::Directory, Kind::File) => Err(Errno::NotDirectory),
        _ => Ok(tree.remove(directory, &name)?),
    }
}

/// What a path leads to, held, to be kept.
fn open(
    host: &Host,
    number: u32,
    path: &[u8],
    how: OpenFlags,
    flags: DescriptorFlags,
) -> Result<Opened, Errno> {
    let from = directory(host, number)?;
    let writes = flags.contains(DescriptorFlags::WRITE);
    let bits = [
        (OpenFlags::CREATE, CREATE),
        (OpenFlags::DIRECTORY, DIRECTORY),
        (OpenFlags::EXCLUSIVE, EXCLUSIVE),
        (OpenFlags::TRUNCATE, TRUNCATE),
    ];
    // As preview 1 says it.
    let how = bits.into_iter().filter(|(flag, _)| how.contains(*flag)).fold(0, |all, (_, bit)| all | bit);
    let Facts { ino, kind, .. } = find_to_keep(&mut host.tree(), from, path, how, writes)?;
    Ok(Opened { ino, kind, reads: flags.contains(DescriptorFlags::READ), writes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::ROOT;

    #[test]
    fn a_file_that_was_found_is_held_before_another_command_can_take_its_number() {
        let mut host = Host::alone(false, false);
        let root = Opened { ino: ROOT, kind: Kind::Directory, reads: true, writes: true };
        let root = host.handles.open_file(Thing::File(root)).unwrap();
        host.tree().make_file(ROOT, b"f", 0o644).unwrap();
        let found = open(&host, root, b"f", OpenFlags::default(), DescriptorFlags::READ).unwrap();
        // Another command.
        host.tree().remove(ROOT, b"f").unwrap();
        let other = host.tree().make_file(ROOT, b"g", 0o644).unwrap();
        assert_ne!(found.ino, other);
        let file = host.handles.keep_file(Thing::File(found)).unwrap();
        assert!(host.tree().facts(found.ino).is_ok());
        host.handles.close(file);
        assert!(host.tree().facts(found.ino).is_err() && host.tree().facts(other).is_ok());
        // What is found and finds no place is let go.
        let found = open(&host, root, b"g", OpenFlags::default(), DescriptorFlags::READ).unwrap();
        while host.handles.open_file(Thing::File(found)).is_ok() {}
        assert_eq!(host.handles.keep_file(Thing::File(found)), Err(Errno::ManyFiles));
        host.tree().remove(ROOT, b"g").unwrap();
        drop(std::mem::replace(&mut host.handles, super::super::Handles::new(8, host.tree.clone())));
        assert!(host.tree().facts(other).is_err());
    }
}
