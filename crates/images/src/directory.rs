//! A directory that holds a whole root file system.
//!
//! Trust: whoever made the image. Its content is shown read-only and never followed on our side: names at its top are
//! taken as they are, and links are resolved inside it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use blastbox_wire::plan::{Slot, Step};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, stat, statat};
use rustix::io::Errno;

use crate::skeleton::{OURS, Steps};
use crate::{ImageError, Tree};

/// More at the top of a root file system than anybody has; also what fits among the grants of a plan.
const MOST_TREES: usize = 40;

/// A directory image, opened.
#[derive(Debug)]
pub struct DirectoryImage {
    path: PathBuf,
    dir: OwnedFd,
    trees: Vec<Tree>,
    /// Everything at the top.
    names: Vec<String>,
}

impl DirectoryImage {
    /// Opens the directory and looks at what is at its top.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let opened = Self::open_any(path)?;
        // A directory that somebody names may be the wrong one.
        let system = opened.names.iter().any(|name| matches!(name.as_str(), "bin" | "usr"));
        if system { Ok(opened) } else { Err(ImageError::NoSystem { path: opened.path }) }
    }

    /// Opens a tree of the store, which may be a single program.
    pub(crate) fn open_stored(path: &Path) -> Result<Self, ImageError> {
        let opened = Self::open_any(path)?;
        if opened.trees.is_empty() { Err(ImageError::NoSystem { path: opened.path }) } else { Ok(opened) }
    }

    fn open_any(path: &Path) -> Result<Self, ImageError> {
        let path =
            std::path::absolute(path).map_err(|source| ImageError::Open { path: path.to_owned(), source })?;
        let dir = openat(CWD, &path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| match errno {
                Errno::NOTDIR => ImageError::NotADirectory { path: path.clone() },
                other => ImageError::Open { path: path.clone(), source: other.into() },
            })?;
        // By what it is and not by what it is called: `/.`, a link or a bind mount of the root are the root too.
        if is_host_root(&dir).map_err(|source| ImageError::Open { path: path.clone(), source })? {
            return Err(ImageError::HostRoot { path });
        }
        let names = names_at_top(&dir).map_err(|source| ImageError::List { path: path.clone(), source })?;
        // A link is shown as a link: what it leads to has a tree of its own.
        let trees: Vec<Tree> = names
            .iter()
            .filter(|(name, kind)| !OURS.contains(&name.as_str()) && *kind != FileType::Symlink)
            .filter_map(|(name, kind)| Tree::named(name, *kind == FileType::Directory))
            .collect();
        if trees.len() > MOST_TREES {
            return Err(ImageError::TooManyTrees { path, count: trees.len(), most: MOST_TREES });
        }
        let names = names.into_iter().map(|(name, _)| name).collect();
        Ok(Self { path, dir, trees, names })
    }

    /// Where it lies on the host.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn trees(&self) -> &[Tree] {
        &self.trees
    }

    pub(crate) fn steps(&self, slot: Slot) -> Vec<Step> {
        let mut steps = Steps::skeleton();
        steps.step(Step::Image { slot });
        steps.finish()
    }
}

impl AsFd for DirectoryImage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

fn is_host_root(dir: &OwnedFd) -> io::Result<bool> {
    let (image, root) = (fstat(dir)?, stat("/")?);
    Ok((image.st_dev, image.st_ino) == (root.st_dev, root.st_ino))
}

/// The names at the top, sorted, so that the same directory always gives the same plan.
fn names_at_top(dir: &OwnedFd) -> io::Result<Vec<(String, FileType)>> {
    let list = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(list)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a name at its top is not UTF-8"));
        };
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            known => known,
        };
        if matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink) {
            names.push((name.to_owned(), kind));
        }
    }
    names.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(names)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{Image, TreeUse};

    /// A small root file system of this test's own, gone at the end.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("image-{name}-{}", std::process::id()));
            for sub in ["usr/bin", "etc", "opt", "tmp", "home/user"] {
                fs::create_dir_all(path.join(sub)).unwrap();
            }
            symlink("usr/bin", path.join("bin")).unwrap();
            Self(path)
        }

        pub(crate) fn image(&self) -> Image {
            Image::parse(self.0.to_str().unwrap()).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_root_of_the_host_is_refused_however_it_is_called() {
        let scratch = Scratch::new("root");
        let link = scratch.0.join("opt/root");
        symlink("/", &link).unwrap();
        for name in ["/", "/usr/..", link.to_str().unwrap()] {
            assert!(matches!(Image::parse(name), Err(ImageError::HostRoot { .. })), "{name}");
        }
        assert_eq!(scratch.image().label(), format!("dir:{}", scratch.0.display()));
    }

    #[test]
    fn a_file_an_empty_directory_and_nothing_are_refused_by_name() {
        let scratch = Scratch::new("file");
        let file = scratch.0.join("etc/file");
        fs::write(&file, "").unwrap();
        let open = |path: &Path| Image::parse(path.to_str().unwrap());
        assert!(matches!(open(&file), Err(ImageError::NotADirectory { .. })));
        assert!(matches!(open(&scratch.0.join("opt")), Err(ImageError::NoSystem { .. })));
        assert!(matches!(open(&scratch.0.join("gone")), Err(ImageError::Open { .. })));
        assert!(open(&scratch.0).is_ok());
    }

    #[test]
    fn a_name_that_no_plan_can_say_is_refused() {
        use std::os::unix::ffi::OsStrExt;
        let scratch = Scratch::new("name");
        fs::create_dir(scratch.0.join(std::ffi::OsStr::from_bytes(b"opt/\xff"))).unwrap();
        assert!(DirectoryImage::open(&scratch.0).is_ok());
        fs::create_dir(scratch.0.join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
        assert!(matches!(DirectoryImage::open(&scratch.0), Err(ImageError::List { .. })));
    }

    #[test]
    fn the_trees_are_what_the_image_brings_and_not_what_we_make() {
        let scratch = Scratch::new("trees");
        let trees = scratch.image().trees();
        let found: Vec<_> = trees.iter().map(|tree| (tree.at.as_str(), tree.used_for)).collect();
        assert_eq!(
            found,
            [("/etc", TreeUse::Settings), ("/opt", TreeUse::Programs), ("/usr", TreeUse::Programs)]
        );
    }

    #[test]
    fn more_at_the_top_than_a_plan_can_grant_is_refused() {
        let scratch = Scratch::new("many");
        for number in 0..MOST_TREES - 3 {
            fs::create_dir(scratch.0.join(format!("d{number}"))).unwrap();
        }
        assert_eq!(scratch.image().trees().len(), MOST_TREES);
        fs::create_dir(scratch.0.join("one-more")).unwrap();
        let refused = DirectoryImage::open(&scratch.0);
        assert!(matches!(refused, Err(ImageError::TooManyTrees { count: 41, .. })), "{refused:?}");
    }

    #[test]
    fn the_steps_end_with_the_image_in_its_slot() {
        let scratch = Scratch::new("steps");
        assert_eq!(scratch.image().template_steps(Slot(1)).last(), Some(&Step::Image { slot: Slot(1) }));
    }
}
