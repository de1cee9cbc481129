//! What each kind of file operation does in one step.

use blastbox_wire::agent::{
    Coverage, Depth, Entry, EntryKind, Extent, FileAct, FileEnd, FileSay, Parents, Target, Writing,
};
use blastbox_wire::limits::{MAX_FILE_CHUNK, MAX_LISTED, MAX_PATH};

use super::failed;
use super::pack::Pack;
use super::walk::Walk;
use crate::files::{Facts, Ino, Kind, ROOT, Tree, Trouble};

/// What a path without a slash in front begins at.
const HOME: &[u8] = b"/home/user";
/// The box's one user.
const USER: u32 = 1000;
/// Levels of directories that are removed at once.
const DEEPEST: u32 = 1024;
/// Entries that go into one frame.
const BATCH: usize = 256;

/// What comes after a step.
pub(super) enum Next {
    /// Another one.
    Again,
    /// Nothing, until credit or bytes come.
    Sleep,
    /// Nothing: it is over.
    Done(FileEnd),
}

/// An operation that is under way.
pub(super) enum Work {
    /// A file on its way to the host.
    Read { ino: Ino, at: u64, left: u64, sent: u64, opening: Option<Entry> },
    /// A file on its way from the host; it gets its last name when all is there.
    Write { ino: Ino, at: u64, written: u64, rename: Option<Rename> },
    /// Entries on their way to the host.
    List(List),
    /// A directory on its way to the host.
    Pack(Pack),
    /// What was done or found at once.
    Told { entry: Option<Entry>, amount: u64 },
}

/// What lies beneath a directory, down to a depth. It is looked for as it is sent.
pub(super) struct List {
    walk: Walk,
    depth: usize,
    /// One that was found while there was no credit for it.
    waiting: Option<Entry>,
    /// Entries that may still be sent.
    left: u64,
    sent: u64,
}

impl List {
    fn step(
        &mut self,
        tree: &mut Tree,
        allowance: usize,
        say: &mut dyn FnMut(FileSay<'_>),
    ) -> Result<Next, Trouble> {
        let (mut batch, mut cost) = (Vec::new(), 0_usize);
        let end = loop {
            if batch.len() >= BATCH {
                break None;
            }
            let Some(entry) = self.next(tree)? else { break Some(self.covered()) };
            let with = cost.saturating_add(entry.cost());
            if self.left == 0 || with > allowance {
                self.waiting = Some(entry);
                break (self.left == 0).then_some(Coverage::Cut);
            }
            cost = with;
            self.left = self.left.saturating_sub(1);
            batch.push(entry);
        };
        self.sent = self.sent.saturating_add(u64::try_from(batch.len()).unwrap_or(u64::MAX));
        if !batch.is_empty() {
            say(FileSay::Entries { entries: batch });
            // What ended it is found once more.
            return Ok(Next::Again);
        }
        let amount = self.sent;
        Ok(end.map_or(Next::Sleep, |coverage| Next::Done(FileEnd::Finished { amount, skipped: 0, coverage })))
    }

    /// Where a guest makes entries as fast as they are looked at, that ends it as the host's own bound does.
    fn covered(&self) -> Coverage {
        if self.walk.gave_up() { Coverage::Cut } else { Coverage::Whole }
    }

    /// The next entry that has a path which can be said.
    fn next(&mut self, tree: &mut Tree) -> Result<Option<Entry>, Trouble> {
        if let Some(entry) = self.waiting.take() {
            return Ok(Some(entry));
        }
        while let Some((path, facts)) = self.walk.next(tree)? {
            if path.len() > MAX_PATH {
                continue;
            }
            let found = entry(path.clone(), &facts);
            if facts.kind == Kind::Directory && self.walk.depth() < self.depth {
                self.walk.enter(tree, facts.ino, path);
            }
            return Ok(Some(found));
        }
        Ok(None)
    }
}

/// A file that has a passing name until it is whole.
pub(super) struct Rename {
    directory: Ino,
    passing: Vec<u8>,
    name: Vec<u8>,
}

impl Work {
    /// Begins one, or says why not.
    pub(super) fn begin(tree: &mut Tree, act: FileAct) -> Result<Self, FileEnd> {
        Self::try_begin(tree, act).map_err(failed)
    }

    fn try_begin(tree: &mut Tree, act: FileAct) -> Result<Self, Trouble> {
        let home = tree.find(ROOT, HOME)?;
        match act {
            FileAct::Read { path, offset, most, extent } => {
                let ino = tree.find(home, &path)?;
                let facts = tree.facts(ino)?;
                if facts.kind == Kind::Directory {
                    return Err(Trouble::IsDirectory);
                }
                let left = match extent {
                    Extent::Seen => most.min(facts.size.saturating_sub(offset)),
                    Extent::Growing => most,
                };
                tree.hold(ino);
                Ok(Self::Read { ino, at: offset, left, sent: 0, opening: Some(entry(path, &facts)) })
            }
            FileAct::Write { path, mode, writing, parents } => {
                write(tree, home, &path, mode, writing, parents)
            }
            FileAct::List { path, depth, most } => {
                let ino = tree.find(home, &path)?;
                let depth = usize::try_from(depth.max(1)).unwrap_or(usize::MAX);
                let (walk, left) = (Walk::begin(tree, ino)?, u64::from(most.min(MAX_LISTED)));
                Ok(Self::List(List { walk, depth, waiting: None, left, sent: 0 }))
            }
            FileAct::Stat { path, links: _ } => {
                let facts = tree.facts(tree.find(home, &path)?)?;
                Ok(Self::Told { entry: Some(entry(path, &facts)), amount: 1 })
            }
            FileAct::MakeDirectory { path, mode, parents } => {
                let (directory, name) = place(tree, home, &path, parents)?;
                tree.make_directory(directory, &name, mode & 0o777)?;
                Ok(Self::Told { entry: None, amount: 1 })
            }
            FileAct::Move { from, to, target, parents } => {
                let (old, name) = place(tree, home, &from, Parents::Expect)?;
                tree.find(old, &name)?;
                let (new, other) = place(tree, home, &to, parents)?;
                if target == Target::Fresh && tree.find(new, &other).is_ok() {
                    return Err(Trouble::Exists);
                }
                tree.rename((old, &name), (new, &other))?;
                Ok(Self::Told { entry: None, amount: 1 })
            }
            FileAct::Remove { path, depth } => {
                let (directory, name) = place(tree, home, &path, Parents::Expect)?;
                let amount = match depth {
                    Depth::One => {
                        tree.remove(directory, &name)?;
                        1
                    }
                    Depth::All => remove_all(tree, directory, &name, DEEPEST)?,
                };
                Ok(Self::Told { entry: None, amount })
            }
            FileAct::Pack { path } => {
                let ino = tree.find(home, &path)?;
                Ok(Self::Pack(Pack::open(tree, ino, &path)?))
            }
            FileAct::Watch { .. } | FileAct::Unpack { .. } => Err(Trouble::NotOffered),
        }
    }

    /// Whether bytes of the host go there.
    pub(super) fn takes_data(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// One step: `piece` is what came from the host, `whole` whether more will come, `allowance` what may be sent.
    pub(super) fn step(
        &mut self,
        tree: &mut Tree,
        piece: Option<&[u8]>,
        whole: bool,
        allowance: usize,
        say: &mut dyn FnMut(FileSay<'_>),
    ) -> Result<Next, Trouble> {
        match self {
            Self::Read { ino, at, left, sent, opening } => {
                if let Some(entry) = opening.take() {
                    say(FileSay::Begun { entry });
                }
                if *left == 0 {
                    return Ok(finished(*sent));
                }
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(allowance).min(MAX_FILE_CHUNK);
                if most == 0 {
                    return Ok(Next::Sleep);
                }
                let mut bytes = vec![0; most];
                let got = tree.read(*ino, *at, &mut bytes)?;
                if got == 0 {
                    return Ok(finished(*sent));
                }
                say(FileSay::Chunk { bytes: bytes.get(..got).unwrap_or_default() });
                let got = u64::try_from(got).unwrap_or(u64::MAX);
                (*at, *left, *sent) =
                    (at.saturating_add(got), left.saturating_sub(got), sent.saturating_add(got));
                Ok(Next::Again)
            }
            Self::Write { ino, at, written, rename } => {
                if let Some(piece) = piece {
                    let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
                    tree.write(*ino, *at, piece)?;
                    (*at, *written) = (at.saturating_add(length), written.saturating_add(length));
                    say(FileSay::Taken { bytes: u32::try_from(piece.len()).unwrap_or(u32::MAX) });
                    return Ok(Next::Again);
                }
                if !whole {
                    return Ok(Next::Sleep);
                }
                if let Some(Rename { directory, passing, name }) = rename.take() {
                    tree.rename((directory, &passing), (directory, &name))?;
                }
                Ok(finished(*written))
            }
            Self::List(list) => list.step(tree, allowance, say),
            Self::Pack(pack) => pack.step(tree, allowance, say),
            Self::Told { entry, amount } => {
                if let Some(told) = entry.take() {
                    if told.cost() > allowance {
                        *entry = Some(told);
                        return Ok(Next::Sleep);
                    }
                    say(FileSay::Entries { entries: vec![told] });
                }
                Ok(finished(*amount))
            }
        }
    }

    /// It is over. What is half made goes.
    pub(super) fn close(self, tree: &mut Tree) {
        match self {
            Self::Read { ino, .. } => tree.release(ino),
            Self::Write { ino, rename, .. } => {
                if let Some(Rename { directory, passing, .. }) = rename {
                    tree.remove(directory, &passing).ok();
                }
                tree.release(ino);
            }
            Self::Pack(pack) => pack.close(tree),
            Self::List(list) => list.walk.close(tree),
            Self::Told { .. } => {}
        }
    }
}

fn finished(amount: u64) -> Next {
    Next::Done(FileEnd::Finished { amount, skipped: 0, coverage: Coverage::Whole })
}

/// The directory and the last name of a path.
fn place(tree: &mut Tree, home: Ino, path: &[u8], parents: Parents) -> Result<(Ino, Vec<u8>), Trouble> {
    if parents == Parents::Make
        && let Some(cut) = path.iter().rposition(|byte| *byte == b'/').filter(|cut| *cut > 0)
    {
        let above = path.get(..cut).unwrap_or_default();
        let whole = if above.first() == Some(&b'/') { above.to_vec() } else { [HOME, above].join(&b'/') };
        tree.make_all(&whole)?;
    }
    match tree.place(home, path)? {
        (directory, Some(name)) => Ok((directory, name)),
        (_, None) => Err(Trouble::IsDirectory),
    }
}

fn write(
    tree: &mut Tree,
    home: Ino,
    path: &[u8],
    mode: u32,
    writing: Writing,
    parents: Parents,
) -> Result<Work, Trouble> {
    let (directory, name) = place(tree, home, path, parents)?;
    let there = tree.find(directory, &name).ok();
    if let Some(ino) = there
        && tree.facts(ino)?.kind == Kind::Directory
    {
        return Err(Trouble::IsDirectory);
    }
    let (ino, at, rename) = match (writing, there) {
        (Writing::New, Some(_)) => return Err(Trouble::Exists),
        (Writing::Truncate, Some(ino)) => {
            tree.resize(ino, 0)?;
            (ino, 0, None)
        }
        (Writing::Append, Some(ino)) => (ino, tree.facts(ino)?.size, None),
        (Writing::Replace, _) => {
            let mut passing = b".blastbox-".to_vec();
            passing.extend_from_slice(name.get(..name.len().min(200)).unwrap_or_default());
            // A file of that name was left by an operation that is under way, or is a guest's own mischief.
            let ino = tree.make_file(directory, &passing, mode & 0o777)?;
            (ino, 0, Some(Rename { directory, passing, name }))
        }
        (Writing::New | Writing::Truncate | Writing::Append, None) => {
            (tree.make_file(directory, &name, mode & 0o777)?, 0, None)
        }
    };
    tree.hold(ino);
    Ok(Work::Write { ino, at, written: 0, rename })
}

/// Removes an entry with everything beneath it. A guest can nest directories deeper than we want to follow.
fn remove_all(tree: &mut Tree, directory: Ino, name: &[u8], deep: u32) -> Result<u64, Trouble> {
    if deep == 0 {
        return Err(Trouble::NameTooLong);
    }
    let ino = tree.find(directory, name)?;
    let mut amount: u64 = 1;
    if tree.facts(ino)?.kind == Kind::Directory {
        for (inner, _) in tree.list(ino, 0, usize::MAX)? {
            amount = amount.saturating_add(remove_all(tree, ino, &inner, deep.saturating_sub(1))?);
        }
    }
    tree.remove(directory, name)?;
    Ok(amount)
}

pub(super) fn entry(path: Vec<u8>, facts: &Facts) -> Entry {
    let path = if path.len() > MAX_PATH { Vec::new() } else { path };
    let kind = match facts.kind {
        Kind::File => EntryKind::File,
        Kind::Directory => EntryKind::Directory,
    };
    Entry {
        path,
        kind,
        size: facts.size,
        mode: facts.mode,
        uid: USER,
        gid: USER,
        modified_nanos: facts.modified,
        link: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::files::Caps;

    fn tree() -> Tree {
        let caps = Caps { bytes: 1 << 20, entries: 10_000, file: 1 << 20 };
        let mut tree = Tree::new(caps, Budget::new(1 << 30));
        let at = tree.make_all(b"/home/user/a/b").unwrap();
        for number in 0..600 {
            tree.make_file(at, format!("f{number:03}").as_bytes(), 0o644).unwrap();
        }
        tree
    }

    /// Every path of a list, and how it ended; each step may send so much.
    fn list(tree: &mut Tree, depth: u32, most: u32, allowance: usize) -> (Vec<String>, FileEnd) {
        let act = FileAct::List { path: b"/home/user".to_vec(), depth, most };
        let Ok(mut work) = Work::begin(tree, act) else { panic!("it does not begin") };
        let mut seen = Vec::new();
        loop {
            let mut cost = 0;
            let mut say = |say: FileSay<'_>| {
                let FileSay::Entries { entries } = say else { panic!("no entries") };
                cost += entries.iter().map(Entry::cost).sum::<usize>();
                seen.extend(entries.into_iter().map(|entry| String::from_utf8(entry.path).unwrap()));
            };
            let next = work.step(tree, None, false, allowance, &mut say);
            assert!(cost <= allowance);
            match next.unwrap() {
                Next::Again => {}
                Next::Sleep => panic!("it waits for more than it may send"),
                Next::Done(end) => {
                    work.close(tree);
                    return (seen, end);
                }
            }
        }
    }

    fn finished(amount: u64, coverage: Coverage) -> FileEnd {
        FileEnd::Finished { amount, skipped: 0, coverage }
    }

    #[test]
    fn a_list_is_whole_to_its_depth_and_cut_behind_what_is_asked_for() {
        let mut tree = tree();
        for allowance in [1000, 1 << 20] {
            let (seen, end) = list(&mut tree, 9, 10_000, allowance);
            assert_eq!((&seen[..3], seen.len()), (&["a", "a/b", "a/b/f000"].map(String::from)[..], 602));
            assert_eq!(end, finished(602, Coverage::Whole));
            assert_eq!(
                list(&mut tree, 2, 10_000, allowance),
                (seen[..2].to_vec(), finished(2, Coverage::Whole))
            );
            for most in [0, 1, 256, 512, 601] {
                let (some, end) = list(&mut tree, 9, most, allowance);
                assert_eq!((some.len(), end), (most as usize, finished(u64::from(most), Coverage::Cut)));
                assert_eq!(some, seen[..some.len()]);
            }
            assert_eq!(list(&mut tree, 9, 602, allowance).1, finished(602, Coverage::Whole));
        }
        // A directory that was listed can go.
        assert!(remove_all(&mut tree, ROOT, b"home", DEEPEST).is_ok());
        assert!(tree.find(ROOT, b"home").is_err());
    }

    #[test]
    fn a_list_that_nobody_takes_holds_nothing_of_what_it_will_say() {
        let mut tree = tree();
        let act = FileAct::List { path: b"/home/user".to_vec(), depth: 9, most: 10_000 };
        let Ok(mut work) = Work::begin(&mut tree, act) else { panic!("it does not begin") };
        let next = work.step(&mut tree, None, false, 0, &mut |_| panic!("nothing may be sent"));
        assert!(matches!(next, Ok(Next::Sleep)));
        let Work::List(List { walk, waiting, .. }) = &work else { panic!("no list") };
        assert!(waiting.as_ref().is_some_and(|entry| entry.path == b"a") && walk.depth() == 2);
        work.close(&mut tree);
    }
}
