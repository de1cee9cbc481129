//! What the handles of one component stand for: files, streams, what is waited for, and errors. They are counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::files::{Ino, Tree};
use crate::wasi::Errno;

/// Handles at most, whatever they stand for: each takes some hundred bytes of the worker.
pub(super) const MOST: usize = 4096;

/// The guest holds as many as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest holds {MOST} handles, and may hold no more")]
pub(super) struct TooMany;

/// A file or directory that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) ino: Ino,
    pub(super) kind: crate::files::Kind,
    pub(super) reads: bool,
    pub(super) writes: bool,
}

/// Where bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Standard,
    File { ino: Ino, at: u64 },
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Standard output (1) or error (2).
    Standard(u8),
    File {
        ino: Ino,
        at: u64,
    },
    /// Wherever the file ends then.
    End {
        ino: Ino,
    },
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// What never waits.
    Now,
    /// Something to read.
    Input,
    /// A moment of the guest's life.
    Until(u64),
}

/// What a handle stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Thing {
    File(Opened),
    /// What lies in a directory behind this name.
    Entries {
        ino: Ino,
        after: Option<Vec<u8>>,
    },
    Input(Input),
    Output(Output),
    Wanted(Wanted),
    Error(Errno),
}

impl Thing {
    /// The entry that stays as long as this does.
    fn ino(&self) -> Option<Ino> {
        match self {
            Self::File(Opened { ino, .. })
            | Self::Entries { ino, .. }
            | Self::Input(Input::File { ino, .. })
            | Self::Output(Output::File { ino, .. } | Output::End { ino }) => Some(*ino),
            Self::Input(Input::Standard)
            | Self::Output(Output::Standard(_))
            | Self::Wanted(_)
            | Self::Error(_) => None,
        }
    }
}

/// All of them.
pub(crate) struct Handles {
    list: Vec<Option<Thing>>,
    free: Vec<usize>,
    /// Open files among them, and how many there may be.
    files: usize,
    most_files: usize,
    tree: Arc<Mutex<Tree>>,
}

impl Handles {
    pub(crate) fn new(open_files: u32, tree: Arc<Mutex<Tree>>) -> Self {
        let most_files = usize::try_from(open_files).unwrap_or(usize::MAX).max(8);
        Self { list: Vec::new(), free: Vec::new(), files: 0, most_files, tree }
    }

    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens one more. What belongs to a file keeps it from going, and whoever opens it holds the file already.
    pub(super) fn open(&mut self, thing: Thing) -> Result<u32, TooMany> {
        if let Some(ino) = thing.ino() {
            self.tree().hold(ino);
        }
        self.keep(thing)
    }

    /// The same of what is held already, by whoever found it and under the same lock: in between another command could remove it and
    /// make another of the same number, which somebody else holds.
    fn keep(&mut self, thing: Thing) -> Result<u32, TooMany> {
        let held = self.list.len().saturating_sub(self.free.len());
        if held >= MOST {
            self.let_go(&thing);
            return Err(TooMany);
        }
        if thing.ino().is_some() {
            self.files = self.files.saturating_add(1);
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            self.list.len().saturating_sub(1)
        });
        if let Some(place) = self.list.get_mut(at) {
            *place = Some(thing);
        }
        u32::try_from(at).map_err(|_| TooMany)
    }

    /// The same of what is or belongs to a file, whose number has a limit of its own that a guest can be told of.
    pub(super) fn open_file(&mut self, thing: Thing) -> Result<u32, Errno> {
        if let Some(ino) = thing.ino() {
            self.tree().hold(ino);
        }
        self.keep_file(thing)
    }

    /// The same of what is held already.
    pub(super) fn keep_file(&mut self, thing: Thing) -> Result<u32, Errno> {
        if self.files >= self.most_files {
            self.let_go(&thing);
            return Err(Errno::ManyFiles);
        }
        self.keep(thing).map_err(|TooMany| Errno::ManyFiles)
    }

    /// The same of what nobody asked for: half of what it may hold is left to the guest. `None`: no more is given.
    pub(super) fn give(&mut self, thing: Thing) -> Option<u32> {
        if self.files >= self.most_files / 2 {
            self.let_go(&thing);
            return None;
        }
        self.keep(thing).ok()
    }

    fn let_go(&self, thing: &Thing) {
        if let Some(ino) = thing.ino() {
            self.tree().release(ino);
        }
    }

    /// Forgets one. A guest cannot name one that is not there: its handles are Wasmtime's to check.
    pub(crate) fn close(&mut self, number: u32) {
        let Ok(at) = usize::try_from(number) else { return };
        let Some(thing) = self.list.get_mut(at).and_then(Option::take) else { return };
        self.free.push(at);
        self.let_go(&thing);
        if thing.ino().is_some() {
            self.files = self.files.saturating_sub(1);
        }
    }

    fn get(&self, number: u32) -> Option<&Thing> {
        self.list.get(usize::try_from(number).ok()?)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Thing> {
        self.list.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    pub(super) fn file(&self, number: u32) -> Result<Opened, Errno> {
        match self.get(number) {
            Some(Thing::File(opened)) => Ok(*opened),
            _ => Err(Errno::BadFd),
        }
    }

    /// Where a directory goes on.
    pub(super) fn entries(&mut self, number: u32) -> Result<(Ino, &mut Option<Vec<u8>>), Errno> {
        match self.get_mut(number) {
            Some(Thing::Entries { ino, after }) => Ok((*ino, after)),
            _ => Err(Errno::BadFd),
        }
    }

    pub(super) fn input(&mut self, number: u32) -> Result<&mut Input, Errno> {
        match self.get_mut(number) {
            Some(Thing::Input(input)) => Ok(input),
            _ => Err(Errno::BadFd),
        }
    }

    pub(super) fn output(&mut self, number: u32) -> Result<&mut Output, Errno> {
        match self.get_mut(number) {
            Some(Thing::Output(output)) => Ok(output),
            _ => Err(Errno::BadFd),
        }
    }

    pub(super) fn wanted(&self, number: u32) -> Result<Wanted, Errno> {
        match self.get(number) {
            Some(Thing::Wanted(wanted)) => Ok(*wanted),
            _ => Err(Errno::BadFd),
        }
    }

    pub(super) fn error(&self, number: u32) -> Option<Errno> {
        match self.get(number) {
            Some(Thing::Error(errno)) => Some(*errno),
            _ => None,
        }
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        let mut tree = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        for ino in self.list.iter().flatten().filter_map(Thing::ino) {
            tree.release(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::files::{Caps, Kind, ROOT};

    fn handles() -> Handles {
        let tree = Tree::new(Caps { bytes: 1000, entries: 8, file: 1000 }, Budget::new(1 << 20));
        Handles::new(8, Arc::new(Mutex::new(tree)))
    }

    fn root() -> Thing {
        Thing::File(Opened { ino: ROOT, kind: Kind::Directory, reads: true, writes: true })
    }

    #[test]
    fn handles_are_counted_and_what_is_closed_makes_room() {
        let mut handles = handles();
        for _ in 0..MOST {
            handles.open(Thing::Wanted(Wanted::Now)).unwrap();
        }
        assert_eq!(handles.open(Thing::Wanted(Wanted::Now)), Err(TooMany));
        handles.close(7);
        handles.close(7);
        handles.close(u32::MAX);
        assert_eq!(handles.open(Thing::Wanted(Wanted::Input)), Ok(7));
        assert_eq!(handles.wanted(7), Ok(Wanted::Input));
    }

    #[test]
    fn open_files_have_a_limit_of_their_own() {
        let mut handles = handles();
        let all: Vec<u32> = (0..8).map(|_| handles.open_file(root()).unwrap()).collect();
        assert_eq!(handles.open_file(root()), Err(Errno::ManyFiles));
        assert!(handles.open(Thing::Wanted(Wanted::Now)).is_ok() && handles.give(root()).is_none());
        handles.close(all[3]);
        assert!(handles.open_file(root()).is_ok());
        // Of what is given there are half as many, so that something can be opened.
        all.iter().for_each(|number| handles.close(*number));
        assert_eq!(std::iter::from_fn(|| handles.give(root())).count(), 4, "half of eight");
        assert!(handles.open_file(root()).is_ok());
    }

    #[test]
    fn a_handle_of_one_kind_is_not_taken_for_another() {
        let mut handles = handles();
        let file = handles.open_file(root()).unwrap();
        assert_eq!(handles.input(file), Err(Errno::BadFd));
        assert_eq!(handles.wanted(file), Err(Errno::BadFd));
        assert!(handles.file(file).is_ok() && handles.file(file + 1).is_err());
    }

    #[test]
    fn a_file_that_is_open_outlives_its_name_and_no_longer() {
        let mut handles = handles();
        let ino = handles.tree().make_file(ROOT, b"f", 0o644).unwrap();
        let stream = handles.open_file(Thing::Input(Input::File { ino, at: 0 })).unwrap();
        handles.tree().remove(ROOT, b"f").unwrap();
        assert!(handles.tree().facts(ino).is_ok());
        handles.close(stream);
        assert!(handles.tree().facts(ino).is_err());
    }
}
