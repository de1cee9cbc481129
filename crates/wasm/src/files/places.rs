//! Paths: how a name that a guest or the host says becomes an entry.

use super::tree::{Hold, Ino, ROOT, Tree, Trouble};

/// Longest path.
pub(crate) const LONGEST_PATH: usize = 4096;

/// Where a path leads: the directory, and the last name in it. `None`: to the directory itself.
pub(crate) type Place = (Ino, Option<Vec<u8>>);

impl Tree {
    /// The directory that a path lies in and its last name, which need not exist. Starts at `from`, or at the root for
    /// an absolute path where `absolute` allows one.
    pub(crate) fn place(&self, from: Ino, path: &[u8]) -> Result<Place, Trouble> {
        if path.len() > LONGEST_PATH {
            return Err(Trouble::NameTooLong);
        }
        if path.is_empty() {
            return Err(Trouble::NotFound);
        }
        if path.contains(&0) {
            return Err(Trouble::BadPath);
        }
        let mut here = if path.first() == Some(&b'/') { ROOT } else { from };
        let mut names =
            path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).peekable();
        while let Some(name) = names.next() {
            if name == b".." {
                if here == ROOT {
                    return Err(Trouble::Outside);
                }
                here = self.node(here)?.parent;
                continue;
            }
            if names.peek().is_none() {
                return Ok((here, Some(name.to_vec())));
            }
            here = *self.directory(here)?.get(name).ok_or(Trouble::NotFound)?;
            // What is not a directory leads nowhere.
            self.directory(here)?;
        }
        Ok((here, None))
    }

    /// The entry that a path leads to.
    pub(crate) fn find(&self, from: Ino, path: &[u8]) -> Result<Ino, Trouble> {
        let (directory, name) = self.place(from, path)?;
        let Some(name) = name else { return Ok(directory) };
        let ino = *self.directory(directory)?.get(&name).ok_or(Trouble::NotFound)?;
        if path.last() == Some(&b'/') {
            self.directory(ino)?;
        }
        Ok(ino)
    }

    /// Makes every directory of a path that is not there.
    pub(crate) fn make_all(&mut self, path: &[u8]) -> Result<Ino, Trouble> {
        let mut here = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
            if name == b".." {
                return Err(Trouble::BadPath);
            }
            here = match self.directory(here)?.get(name) {
                Some(&there) => there,
                None => self.make_directory(here, name, 0o755)?,
            };
        }
        self.directory(here)?;
        Ok(here)
    }

    /// Keeps guests from changing the directories of this path.
    pub(crate) fn fix(&mut self, path: &[u8], hold: Hold) -> Result<(), Trouble> {
        let mut here = ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            here = *self.directory(here)?.get(name).ok_or(Trouble::NotFound)?;
            self.node_mut(here)?.hold = hold;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Caps;
    use super::*;
    use crate::budget::Budget;

    fn tree() -> Tree {
        let mut tree = Tree::new(Caps { bytes: 1000, entries: 8, file: 1000 }, Budget::new(1 << 20));
        let inner = tree.make_all(b"/a/b").unwrap();
        tree.make_file(inner, b"f", 0o644).unwrap();
        tree
    }

    #[test]
    fn paths_lead_where_they_say() {
        let tree = tree();
        let inner = tree.find(ROOT, b"/a/b").unwrap();
        let file = tree.find(ROOT, b"a/./b//f").unwrap();
        assert_eq!(tree.find(inner, b"f"), Ok(file));
        assert_eq!(tree.find(inner, b"../b/f"), Ok(file));
        assert_eq!(tree.find(ROOT, b"a/x"), Err(Trouble::NotFound));
        assert_eq!(tree.find(ROOT, b"a/b/f/g"), Err(Trouble::NotDirectory));
        assert_eq!(tree.find(ROOT, b"a/b/f/"), Err(Trouble::NotDirectory));
        assert_eq!(tree.find(ROOT, b""), Err(Trouble::NotFound));
    }

    #[test]
    fn dotdot_cannot_leave_the_root() {
        let tree = tree();
        assert_eq!(tree.find(ROOT, b"../etc/passwd"), Err(Trouble::Outside));
        assert_eq!(tree.find(ROOT, b"/a/../../etc"), Err(Trouble::Outside));
        assert_eq!(tree.find(ROOT, b"a\0b"), Err(Trouble::BadPath));
    }

    #[test]
    fn a_directory_cannot_go_beneath_itself() {
        let mut tree = tree();
        let a = tree.find(ROOT, b"a").unwrap();
        let b = tree.find(ROOT, b"a/b").unwrap();
        assert_eq!(tree.rename((ROOT, b"a"), (b, b"a")), Err(Trouble::BadPath));
        assert_eq!(tree.rename((a, b"b"), (ROOT, b"c")), Ok(()));
        assert!(tree.find(ROOT, b"c/f").is_ok());
    }

    #[test]
    fn what_is_fixed_keeps_its_place_and_what_is_closed_takes_nothing() {
        let mut tree = tree();
        tree.make_all(b"/x/y").unwrap();
        tree.fix(b"/a", Hold::Fixed).unwrap();
        tree.fix(b"/x/y", Hold::Closed).unwrap();
        let (a, x) = (tree.find(ROOT, b"a").unwrap(), tree.find(ROOT, b"x").unwrap());
        let y = tree.find(ROOT, b"x/y").unwrap();
        let refused = Err(Trouble::ReadOnly);
        assert_eq!(tree.rename((ROOT, b"a"), (ROOT, b"c")), refused);
        assert_eq!(tree.rename((ROOT, b"x"), (ROOT, b"c")), refused);
        assert_eq!(tree.rename((x, b"y"), (ROOT, b"c")), refused);
        assert_eq!(tree.remove(x, b"y"), refused);
        assert_eq!(tree.make_directory(y, b"new", 0o755), refused.map(|()| 0));
        assert_eq!(tree.make_file(x, b"new", 0o644), refused.map(|()| 0));
        assert_eq!(tree.make_directory(x, b"y", 0o755), Err(Trouble::Exists));
        // From elsewhere, as a new name and in the place of what is there.
        assert_eq!(tree.rename((a, b"b"), (x, b"b")), refused);
        assert_eq!(tree.rename((a, b"b"), (x, b"y")), refused);
        // What lies in a fixed directory is a guest's own.
        assert_eq!(tree.rename((a, b"b"), (a, b"c")), Ok(()));
    }

    #[test]
    fn what_is_closed_can_be_read_and_not_changed() {
        let mut tree = tree();
        let (a, b) = (tree.find(ROOT, b"a").unwrap(), tree.find(ROOT, b"a/b").unwrap());
        let file = tree.find(ROOT, b"a/b/f").unwrap();
        tree.write(file, 0, b"kept").unwrap();
        tree.close(a);
        let refused = Err(Trouble::ReadOnly);
        assert_eq!(tree.write(file, 0, b"new"), refused.map(|()| 0));
        assert_eq!(tree.write(file, 4, b"more"), refused.map(|()| 0));
        assert_eq!(
            (tree.resize(file, 0), tree.touch(file, 1), tree.remove(b, b"f")),
            (refused, refused, refused)
        );
        assert_eq!(tree.rename((b, b"f"), (ROOT, b"f")), refused);
        assert_eq!(tree.make_file(b, b"g", 0o644), refused.map(|()| 0));
        let mut into = [0; 4];
        assert_eq!((tree.read(file, 0, &mut into), &into), (Ok(4), b"kept"));
    }

    #[test]
    fn what_is_removed_while_it_is_read_hides_nothing_else() {
        let mut tree = tree();
        let inner = tree.find(ROOT, b"a/b").unwrap();
        tree.make_file(inner, b"g", 0o644).unwrap();
        let (mut seen, mut last) = (Vec::new(), None);
        while let Some((name, _)) = tree.behind(inner, last.as_deref()).unwrap() {
            tree.remove(inner, &name).unwrap();
            seen.push(name.clone());
            last = Some(name);
        }
        assert_eq!(seen, [b"f", b"g"]);
        let file = tree.make_file(ROOT, b"x", 0o644).unwrap();
        assert_eq!(tree.behind(file, None), Err(Trouble::NotDirectory));
    }

    #[test]
    fn entries_are_counted() {
        let mut tree = tree();
        for number in 0..4_u8 {
            tree.make_file(ROOT, &[b'0' + number], 0o644).unwrap();
        }
        assert_eq!(tree.make_file(ROOT, b"one too many", 0o644), Err(Trouble::NoSpace));
        tree.remove(ROOT, b"0").unwrap();
        assert!(tree.make_file(ROOT, b"fits now", 0o644).is_ok());
    }

    #[test]
    fn a_directory_with_something_in_it_stays() {
        let mut tree = tree();
        assert_eq!(tree.remove(ROOT, b"a"), Err(Trouble::NotEmpty));
    }
}
