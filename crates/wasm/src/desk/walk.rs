//! A walk through a directory and everything beneath it, one entry at a time.
//!
//! Nothing of it is gathered: a guest can make many thousand entries beneath a path of 4 KiB, and together their paths would be far
//! more than the box's memory. Where a walk goes on is a name for each level; the directories on the way to it are held, so that their
//! numbers stand for nothing else meanwhile.

use crate::files::{Facts, Ino, Tree, Trouble};

/// The directories from the first one to where it is.
pub(super) struct Walk {
    levels: Vec<Level>,
    /// The path of the last one, which those of the others begin.
    path: Vec<u8>,
    /// Entries that may still come: as many as a box may have at once. A guest that makes more of them behind each other's back keeps
    /// nobody walking for ever.
    left: u64,
}

struct Level {
    ino: Ino,
    /// How much of the path is its own.
    path: usize,
    /// What was seen of it last.
    last: Option<Vec<u8>>,
}

impl Walk {
    /// Of a directory; paths begin in it.
    pub(super) fn begin(tree: &mut Tree, ino: Ino) -> Result<Self, Trouble> {
        tree.directory(ino)?;
        let mut walk = Self { levels: Vec::new(), path: Vec::new(), left: tree.most_entries() };
        walk.enter(tree, ino, Vec::new());
        Ok(walk)
    }

    /// Goes into the directory that came last: what lies in it comes before its neighbours.
    pub(super) fn enter(&mut self, tree: &mut Tree, ino: Ino, path: Vec<u8>) {
        tree.hold(ino);
        self.levels.push(Level { ino, path: path.len(), last: None });
        self.path = path;
    }

    /// How many directories lie above the next one.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The next entry. `None`: there is none any more.
    pub(super) fn next(&mut self, tree: &mut Tree) -> Result<Option<(Vec<u8>, Facts)>, Trouble> {
        while let Some(level) = self.levels.last_mut() {
            if let Some((name, facts)) = tree.behind(level.ino, level.last.as_deref())? {
                let path = match self.path.get(..level.path).unwrap_or_default() {
                    [] => name.clone(),
                    above => [above, name.as_slice()].join(&b'/'),
                };
                level.last = Some(name);
                let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
                self.left = left;
                return Ok(Some((path, facts)));
            }
            tree.release(level.ino);
            self.levels.pop();
        }
        Ok(None)
    }

    /// Whether it has given up: more may be there than came.
    pub(super) fn gave_up(&self) -> bool {
        !self.levels.is_empty()
    }

    /// It is over.
    pub(super) fn close(self, tree: &mut Tree) {
        for level in self.levels {
            tree.release(level.ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::files::{Caps, Kind, ROOT};

    /// Everything, by its path.
    fn all(tree: &mut Tree, mut walk: Walk) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some((path, facts)) = walk.next(tree).unwrap() {
            seen.push(String::from_utf8(path.clone()).unwrap());
            if facts.kind == Kind::Directory {
                walk.enter(tree, facts.ino, path);
            }
        }
        assert!(!walk.gave_up());
        walk.close(tree);
        seen
    }

    fn tree() -> Tree {
        let caps = Caps { bytes: 1 << 20, entries: 100_000, file: 1 << 20 };
        let mut tree = Tree::new(caps, Budget::new(1 << 30));
        let b = tree.make_all(b"/a/b").unwrap();
        let a = tree.find(ROOT, b"a").unwrap();
        for (directory, name) in [(b, b"x"), (b, b"y"), (a, b"c"), (ROOT, b"z")] {
            tree.make_file(directory, name, 0o644).unwrap();
        }
        tree
    }

    #[test]
    fn what_lies_in_a_directory_comes_behind_it_and_before_its_neighbours() {
        let mut tree = tree();
        let walk = Walk::begin(&mut tree, ROOT).unwrap();
        assert_eq!(all(&mut tree, walk), ["a", "a/b", "a/b/x", "a/b/y", "a/c", "z"]);
        let file = tree.find(ROOT, b"z").unwrap();
        assert!(Walk::begin(&mut tree, file).is_err());
    }

    #[test]
    fn a_directory_that_goes_meanwhile_is_left_and_no_other_is_taken_for_it() {
        let mut tree = tree();
        let mut walk = Walk::begin(&mut tree, ROOT).unwrap();
        let (path, a) = walk.next(&mut tree).unwrap().unwrap();
        walk.enter(&mut tree, a.ino, path);
        let (path, b) = walk.next(&mut tree).unwrap().unwrap();
        walk.enter(&mut tree, b.ino, path);
        for name in [b"x", b"y"] {
            tree.remove(b.ino, name).unwrap();
        }
        tree.remove(a.ino, b"b").unwrap();
        // A directory that is new has another number than the one that is gone.
        let new = tree.make_directory(ROOT, b"new", 0o755).unwrap();
        tree.make_file(new, b"inner", 0o644).unwrap();
        assert_ne!(new, b.ino);
        assert_eq!(all(&mut tree, walk), ["a/c", "new", "new/inner", "z"]);
        assert!(tree.facts(b.ino).is_err(), "nobody holds it any more");
    }

    #[test]
    fn a_guest_that_makes_one_entry_after_the_other_keeps_nobody_walking_for_ever() {
        let mut tree = Tree::new(Caps { bytes: 0, entries: 50, file: 0 }, Budget::new(1 << 20));
        let mut walk = Walk::begin(&mut tree, ROOT).unwrap();
        let (mut seen, mut last) = (0, String::new());
        for number in 0..1000 {
            let next = format!("{number:04}");
            tree.make_file(ROOT, next.as_bytes(), 0o644).unwrap();
            seen += usize::from(walk.next(&mut tree).unwrap().is_some());
            tree.remove(ROOT, next.as_bytes()).unwrap();
            last = next;
        }
        assert!((50..100).contains(&seen) && walk.gave_up(), "{seen}, the last was {last}");
        walk.close(&mut tree);
    }

    #[test]
    fn what_a_walk_holds_is_its_way_and_not_what_it_has_yet_to_see() {
        let mut tree = tree();
        let deep: Vec<u8> = [b"/", [b'd'; 200].as_slice()].concat().repeat(18);
        let last = tree.make_all(&deep).unwrap();
        for number in 0..20_000 {
            tree.make_file(last, format!("f{number}").as_bytes(), 0o644).unwrap();
        }
        let mut walk = Walk::begin(&mut tree, ROOT).unwrap();
        let (mut seen, mut most) = (0, 0);
        while let Some((path, facts)) = walk.next(&mut tree).unwrap() {
            seen += 1;
            if facts.kind == Kind::Directory {
                walk.enter(&mut tree, facts.ino, path);
            }
            let names = walk.levels.iter().map(|level| level.last.as_ref().map_or(0, Vec::len));
            most = most.max(names.sum::<usize>() + walk.path.capacity());
        }
        // Their paths are 72 MB together.
        assert!(seen > 20_000 && most < 16_384, "{seen} {most}");
    }
}
