//! `wasi:filesystem/types` and `preopens`: what is done with what is open. What names a file is in [`super::names`].

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::component::{Linker, Resource, WasmList};

use super::about::text;
use super::codes::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, MetadataHash,
    NewTimestamp,
};
use super::handles::{Input, Opened, Output, Thing};
use super::{Call, EntriesHandle, ErrorHandle, FileHandle, InputHandle, OutputHandle, kinds, offer, owned};
use crate::files::{Ino, Kind, ROOT, Tree};
use crate::wasi::{Errno, Guest, Host, pay};

/// Bytes that one read gives at most.
const MOST: usize = 256 * 1024;

/// Directories of the root that are given by name.
const MOST_GIVEN: usize = 16;

/// What a call about files gives.
pub(super) type Answer<T> = Result<T, ErrorCode>;
type File = Resource<FileHandle>;

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    kinds! { linker, "wasi:filesystem/types@0.2.0"; "descriptor" => FileHandle, "directory-entry-stream" => EntriesHandle, }
    link_streams(linker)?;
    link_facts(linker)?;
    offer! { linker, "wasi:filesystem/types@0.2.0";
        "[method]descriptor.advise" => |call, this: File, _from: u64, _length: u64, _advice: Advice| -> Answer<()> {
            plain(file(&call, &this))
        }
        "[method]descriptor.sync-data" => |call, this: File| -> Answer<()> { plain(file(&call, &this)) }
        "[method]descriptor.sync" => |call, this: File| -> Answer<()> { plain(file(&call, &this)) }
        "[method]descriptor.set-size" => |call, this: File, size: u64| -> Answer<()> { resize(&mut call, &this, size)? }
        "[method]descriptor.read" => |call, this: File, length: u64, at: u64| -> Answer<(Vec<u8>, bool)> {
            let read = read(&call.data().host, this.rep(), length, at);
            pay(&mut call, read.as_ref().map_or(0, |(bytes, _)| count(bytes)))?;
            read.map_err(ErrorCode::from)
        }
        "[method]descriptor.write" => |call, this: File, bytes: WasmList<u8>, at: u64| -> Answer<u64> {
            pay(&mut call, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
            write(&mut call, &this, &bytes, at)?
        }
        "[method]descriptor.read-directory" => |call, this: File| -> Answer<Resource<EntriesHandle>> {
            read_directory(&mut call.data_mut().host, this.rep()).map(owned).map_err(ErrorCode::from)
        }
        "[method]directory-entry-stream.read-directory-entry" => |call, this: Resource<EntriesHandle>| -> Answer<Option<DirectoryEntry>> {
            next_entry(&mut call.data_mut().host, this.rep()).map_err(ErrorCode::from)
        }
        "filesystem-error-code" => |call, error: Resource<ErrorHandle>| -> Option<ErrorCode> {
            call.data().host.handles.error(error.rep()).map(ErrorCode::from)
        }
    }
    offer! { linker, "wasi:filesystem/preopens@0.2.0";
        "get-directories" => |call| -> Vec<(File, String)> {
            let host = &mut call.data_mut().host;
            let directory = |ino| Opened { ino, kind: Kind::Directory, reads: true, writes: true };
            // Whoever may open few files is given the first of them alone.
            let open = |(ino, name): (Ino, String)| {
                Some((owned(host.handles.give(Thing::File(directory(ino)))?), name))
            };
            given(&host.tree, &host.directory).into_iter().filter_map(open).collect::<Vec<(File, String)>>()
        }
    }
    Ok(())
}

fn link_streams(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "wasi:filesystem/types@0.2.0";
        "[method]descriptor.read-via-stream" => |call, this: File, at: u64| -> Answer<Resource<InputHandle>> {
            let host = &mut call.data_mut().host;
            let opened = readable(host, this.rep());
            let stream = opened.and_then(|ino| host.handles.open_file(Thing::Input(Input::File { ino, at })));
            stream.map(owned).map_err(ErrorCode::from)
        }
        "[method]descriptor.write-via-stream" => |call, this: File, at: u64| -> Answer<Resource<OutputHandle>> {
            let host = &mut call.data_mut().host;
            let opened = writable(host, this.rep());
            let stream = opened.and_then(|ino| host.handles.open_file(Thing::Output(Output::File { ino, at })));
            stream.map(owned).map_err(ErrorCode::from)
        }
        "[method]descriptor.append-via-stream" => |call, this: File| -> Answer<Resource<OutputHandle>> {
            let host = &mut call.data_mut().host;
            let opened = writable(host, this.rep());
            let stream = opened.and_then(|ino| host.handles.open_file(Thing::Output(Output::End { ino })));
            stream.map(owned).map_err(ErrorCode::from)
        }
    }
    Ok(())
}

fn link_facts(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    offer! { linker, "wasi:filesystem/types@0.2.0";
        "[method]descriptor.get-flags" => |call, this: File| -> Answer<DescriptorFlags> {
            file(&call, &this).map(|opened| {
                let mut flags = DescriptorFlags::default();
                let every = [
                    (opened.reads, DescriptorFlags::READ),
                    (opened.writes, DescriptorFlags::WRITE),
                    (opened.kind == Kind::Directory, DescriptorFlags::MUTATE_DIRECTORY),
                ];
                for (_, flag) in every.into_iter().filter(|(is_set, _)| *is_set) {
                    flags |= flag;
                }
                flags
            })
        }
        "[method]descriptor.get-type" => |call, this: File| -> Answer<DescriptorType> {
            file(&call, &this).map(|opened| opened.kind.into())
        }
        "[method]descriptor.stat" => |call, this: File| -> Answer<DescriptorStat> {
            file(&call, &this).and_then(|opened| Ok((&call.data().host.tree().facts(opened.ino).map_err(Errno::from)?).into()))
        }
        "[method]descriptor.set-times" => |call, this: File, _read: NewTimestamp, modified: NewTimestamp| -> Answer<()> {
            file(&call, &this).and_then(|opened| Ok(set_time(&mut call.data().host.tree(), opened.ino, modified)?))
        }
        "[method]descriptor.is-same-object" => |call, this: File, other: File| -> bool {
            let host = &call.data().host;
            host.handles.file(this.rep())?.ino == host.handles.file(other.rep())?.ino
        }
        "[method]descriptor.metadata-hash" => |call, this: File| -> Answer<MetadataHash> {
            file(&call, &this).and_then(|opened| Ok((&call.data().host.tree().facts(opened.ino).map_err(Errno::from)?).into()))
        }
    }
    Ok(())
}

/// The directories that a component is given. C libraries look for the longest name that a path begins with, and for that leave the
/// first slash away: with the root alone they would take `/tmp/x` for a name in the directory of the command. All are held.
fn given(tree: &Mutex<Tree>, here: &[u8]) -> Vec<(Ino, String)> {
    let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
    let mut given = vec![(ROOT, "/".to_owned())];
    // Names that do not begin with a slash begin here.
    given.extend(tree.find(ROOT, here).ok().map(|ino| (ino, ".".to_owned())));
    let top = tree.list(ROOT, 0, MOST_GIVEN).unwrap_or_default();
    let directories = top.into_iter().filter(|(_, facts)| facts.kind == Kind::Directory);
    given.extend(directories.map(|(name, facts)| (facts.ino, format!("/{}", text(&name)))));
    given.iter().for_each(|(ino, _)| tree.hold(*ino));
    given
}

fn file(call: &Call<'_>, this: &File) -> Answer<Opened> {
    Ok(call.data().host.handles.file(this.rep())?)
}

fn plain(found: Answer<Opened>) -> Answer<()> {
    found.map(drop)
}

fn readable(host: &Host, number: u32) -> Result<Ino, Errno> {
    match host.handles.file(number)? {
        Opened { kind: Kind::Directory, .. } => Err(Errno::IsDirectory),
        Opened { reads: false, .. } => Err(Errno::BadFd),
        Opened { ino, .. } => Ok(ino),
    }
}

fn writable(host: &Host, number: u32) -> Result<Ino, Errno> {
    match host.handles.file(number)? {
        Opened { kind: Kind::Directory, .. } => Err(Errno::IsDirectory),
        Opened { writes: false, .. } => Err(Errno::BadFd),
        Opened { ino, .. } => Ok(ino),
    }
}

/// Gives a file another size; what it grows by is work, since it is filled with zeros where something is written behind it.
fn resize(call: &mut Call<'_>, this: &File, size: u64) -> wasmtime::Result<Answer<()>> {
    let host = &call.data().host;
    let resized = writable(host, this.rep()).and_then(|ino| {
        let mut tree = host.tree();
        let before = tree.facts(ino)?.size;
        tree.resize(ino, size)?;
        Ok(size.saturating_sub(before))
    });
    pay(call, *resized.as_ref().unwrap_or(&0))?;
    Ok(resized.map(drop).map_err(ErrorCode::from))
}

/// Bytes, and whether the file ends behind them.
fn read(host: &Host, number: u32, length: u64, at: u64) -> Result<(Vec<u8>, bool), Errno> {
    let ino = readable(host, number)?;
    let tree = host.tree();
    let size = tree.facts(ino)?.size;
    let there = length.min(size.saturating_sub(at));
    let mut bytes = vec![0; usize::try_from(there).unwrap_or(usize::MAX).min(MOST)];
    let got = tree.read(ino, at, &mut bytes)?;
    bytes.truncate(got);
    let ends = at.saturating_add(count(&bytes)) >= size;
    Ok((bytes, ends))
}

fn write(call: &mut Call<'_>, this: &File, bytes: &WasmList<u8>, at: u64) -> wasmtime::Result<Answer<u64>> {
    let host = &call.data().host;
    let written = writable(host, this.rep()).and_then(|ino| {
        let mut tree = host.tree();
        let before = tree.facts(ino)?.size;
        let done = tree.write(ino, at, bytes.as_le_slice(&*call))?;
        // A hole is filled with zeros, as far as it lies beside what is written.
        Ok((u64::try_from(done).unwrap_or(u64::MAX), at.saturating_sub(before)))
    });
    pay(call, written.as_ref().map_or(0, |(_, hole)| *hole))?;
    Ok(written.map(|(done, _)| done).map_err(ErrorCode::from))
}

fn read_directory(host: &mut Host, number: u32) -> Result<u32, Errno> {
    let Opened { ino, kind, .. } = host.handles.file(number)?;
    match kind {
        Kind::File => Err(Errno::NotDirectory),
        Kind::Directory => host.handles.open_file(Thing::Entries { ino, after: None }),
    }
}

/// The next one by its name: whoever removes what was read misses nothing.
fn next_entry(host: &mut Host, number: u32) -> Result<Option<DirectoryEntry>, Errno> {
    let tree = Arc::clone(&host.tree);
    let (ino, after) = host.handles.entries(number)?;
    let tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((name, facts)) = tree.behind(ino, after.as_deref())? else { return Ok(None) };
    let entry = DirectoryEntry { kind: facts.kind.into(), name: text(&name) };
    *after = Some(name);
    Ok(Some(entry))
}

/// Sets the time of the last change. Nothing here has a time of its last reading.
pub(super) fn set_time(tree: &mut Tree, ino: Ino, modified: NewTimestamp) -> Result<(), Errno> {
    let modified = match modified {
        NewTimestamp::NoChange => return Ok(()),
        NewTimestamp::Now => tree.now(),
        NewTimestamp::Timestamp(moment) => moment.nanos()?,
    };
    Ok(tree.touch(ino, modified)?)
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
