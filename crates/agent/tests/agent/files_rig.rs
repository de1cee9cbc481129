//! A host that asks about files, and a directory that the payload may use.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use blastbox_wire::agent::{
    Change, Coverage, Depth, Entry, Extent, Fault, FileAct, FileAsk, FileEnd, HostFrame, Links, Parents,
    Target, Writing,
};
use blastbox_wire::limits::FILE_WINDOW;

use crate::rig::{Agent, Said, Word};

/// Everything that an operation brought.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) begun: Option<Entry>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) end: FileEnd,
}

impl Told {
    pub(crate) fn fault(&self) -> Option<(Fault, i32)> {
        match self.end {
            FileEnd::Failed { fault, errno } => Some((fault, errno)),
            FileEnd::Finished { .. } => None,
        }
    }
    /// Amount and skipped, of an operation that was done to its end.
    pub(crate) fn done(&self) -> (u64, u64) {
        match self.end {
            FileEnd::Finished { amount, skipped, coverage: Coverage::Whole } => (amount, skipped),
            other => panic!("{other:?}"),
        }
    }
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
        names.sort();
        names
    }
}

impl Agent {
    pub(crate) fn ask(&mut self, op: u32, ask: FileAsk) {
        self.say(&HostFrame::File { op, ask });
    }

    pub(crate) fn begin(&mut self, op: u32, act: FileAct) {
        self.ask(op, FileAsk::Begin { window: FILE_WINDOW, act });
    }

    /// The next word about this operation.
    pub(crate) fn word(&mut self, op: u32) -> Word {
        match self.next() {
            Said::File(about, word) if about == op => word,
            other => panic!("{other:?}"),
        }
    }

    /// Follows an operation to its end, giving credit for everything.
    pub(crate) fn follow(&mut self, op: u32) -> Told {
        let mut told = Told {
            begun: None,
            bytes: Vec::new(),
            entries: Vec::new(),
            end: FileEnd::Failed { fault: Fault::Failed, errno: 0 },
        };
        loop {
            let cost = match self.word(op) {
                Word::Begun(entry) => {
                    told.begun = Some(entry);
                    0
                }
                Word::Chunk(bytes) => {
                    let cost = bytes.len();
                    told.bytes.extend(bytes);
                    cost
                }
                Word::Entries(entries) => {
                    let cost = entries.iter().map(Entry::cost).sum();
                    told.entries.extend(entries);
                    cost
                }
                Word::Taken(_) | Word::Changes(_) => 0,
                Word::Done(end) => {
                    told.end = end;
                    return told;
                }
            };
            self.ask(op, FileAsk::Credit { bytes: u32::try_from(cost).unwrap() });
        }
    }

    /// The same for one that began with a small window.
    pub(crate) fn follow_after_credit(&mut self, op: u32) -> Told {
        self.ask(op, FileAsk::Credit { bytes: FILE_WINDOW });
        self.follow(op)
    }

    /// Does one thing to its end.
    pub(crate) fn act(&mut self, act: FileAct) -> Told {
        self.begin(9, act);
        self.follow(9)
    }

    /// Writes or unpacks all of this, as far as the agent takes it.
    pub(crate) fn upload(&mut self, act: FileAct, bytes: &[u8]) -> Told {
        self.begin(9, act);
        let mut room = FILE_WINDOW;
        let mut chunks = bytes.chunks(64 * 1024).peekable();
        loop {
            while let Some(chunk) = chunks.next_if(|chunk| u32::try_from(chunk.len()).unwrap() <= room) {
                room -= u32::try_from(chunk.len()).unwrap();
                self.ask(9, FileAsk::Data { bytes: chunk.to_vec() });
            }
            if chunks.peek().is_none() {
                self.ask(9, FileAsk::DataEnd);
                return self.follow(9);
            }
            match self.word(9) {
                Word::Taken(bytes) => room += bytes,
                Word::Done(end) => {
                    return Told { begun: None, bytes: Vec::new(), entries: Vec::new(), end };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Changes until the given ones have all been seen.
    pub(crate) fn changes_until(
        &mut self,
        op: u32,
        mut enough: impl FnMut(&[Change]) -> bool,
    ) -> Vec<Change> {
        let mut seen = Vec::new();
        while !enough(&seen) {
            match self.word(op) {
                Word::Changes(changes) => {
                    let cost: usize = changes.iter().map(Change::cost).sum();
                    seen.extend(changes);
                    self.ask(op, FileAsk::Credit { bytes: u32::try_from(cost).unwrap() });
                }
                other => panic!("{other:?} after {seen:?}"),
            }
        }
        seen
    }
}

/// A directory of the payload's, removed at the end.
pub(crate) struct Room(pub(crate) PathBuf);

impl Room {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("blastbox-agent-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let room = Self(path);
        room.give(".");
        room
    }
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// The path as the host would say it.
    pub(crate) fn path(&self, name: &str) -> Vec<u8> {
        bytes(&self.at(name))
    }
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.at(name), content).unwrap();
        self.give(name);
    }
    pub(crate) fn make(&self, name: &str) {
        std::fs::create_dir_all(self.at(name)).unwrap();
        let mut at = self.0.clone();
        for part in Path::new(name).components() {
            at.push(part);
            give(&at);
        }
    }
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).unwrap()
    }
    /// Makes it the payload's, where that is another user.
    pub(crate) fn give(&self, name: &str) {
        give(&self.at(name));
    }
}

fn give(path: &Path) {
    if is_root() {
        std::os::unix::fs::lchown(path, Some(1000), Some(1000)).unwrap();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

pub(crate) fn read(path: Vec<u8>) -> FileAct {
    FileAct::Read { path, offset: 0, most: u64::MAX, extent: Extent::Seen }
}

pub(crate) fn write(path: Vec<u8>, writing: Writing) -> FileAct {
    FileAct::Write { path, mode: 0o640, writing, parents: Parents::Make }
}

pub(crate) fn list(path: Vec<u8>, depth: u32) -> FileAct {
    FileAct::List { path, depth, most: u32::MAX }
}

pub(crate) fn stat(path: Vec<u8>) -> FileAct {
    FileAct::Stat { path, links: Links::Keep }
}

pub(crate) fn remove(path: Vec<u8>) -> FileAct {
    FileAct::Remove { path, depth: Depth::All }
}

pub(crate) fn rename(from: Vec<u8>, to: Vec<u8>) -> FileAct {
    FileAct::Move { from, to, target: Target::Replace, parents: Parents::Make }
}
