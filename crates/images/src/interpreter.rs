//! Which program of an image runs a language.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};

use crate::skeleton::OURS;
use crate::{Image, ImageError};

/// Where programs are looked for, in the order of the PATH that every box has.
const PLACES: [&str; 3] = ["usr/local/bin", "usr/bin", "bin"];

/// A language whose programs can be given as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Python 3.
    Python,
    /// Python 3 with numpy, pandas and scipy imported already: a guest of the tier `wasm`, and in no image.
    PythonData,
    /// The POSIX shell.
    Shell,
    /// JavaScript, run by Node.js.
    Node,
}

/// The text names no language that can be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language {0:?}; expected one of \"python\", \"python-data\", \"sh\", \"node\" (or \"js\")")]
pub struct UnknownLanguage(String);

impl Language {
    /// Every language.
    pub const ALL: [Self; 4] = [Self::Python, Self::PythonData, Self::Shell, Self::Node];

    /// The word for it on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::PythonData => "python-data",
            Self::Shell => "sh",
            Self::Node => "node",
        }
    }

    /// Programs that run it, best first, and the argument that makes them read standard input.
    fn programs(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Python => (&["python3", "python"], "-"),
            Self::PythonData => (&["python-data"], "-"),
            Self::Shell => (&["sh"], "-s"),
            Self::Node => (&["node", "nodejs"], "-"),
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::PythonData => "a program of this name (in the tier wasm it is a guest)",
            Self::Shell => "a shell (dash, bash or busybox)",
            Self::Node => "nodejs",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;
    fn from_str(text: &str) -> Result<Self, UnknownLanguage> {
        let text = if text == "js" { "node" } else { text };
        let found = Self::ALL.into_iter().find(|language| language.as_str() == text);
        found.ok_or_else(|| UnknownLanguage(text.chars().take(40).collect()))
    }
}

pub(crate) fn find(image: &Image, language: Language) -> Result<Vec<String>, ImageError> {
    let (programs, argument) = language.programs();
    let found = programs.iter().find(|program| {
        PLACES.iter().any(|place| visible(image, Path::new(place).join(program).as_path()).unwrap_or(false))
    });
    match found {
        Some(program) => Ok(vec![(*program).to_owned(), argument.to_owned()]),
        None => Err(ImageError::NoInterpreter {
            image: image.label(),
            language,
            looked_for: format!("{} in /{}", programs.join(" or "), PLACES.join(", /")),
            install: language.package(),
        }),
    }
}

/// Whether a program exists where the box will see it. A link may lead to it, but not out of what is shown.
fn visible(image: &Image, program: &Path) -> rustix::io::Result<bool> {
    match image {
        Image::Host(host) => {
            let root = openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let Some(real) = real_path(root.as_fd(), program)? else { return Ok(false) };
            Ok(host.shows(&real))
        }
        Image::Directory(directory) => visible_in(directory.as_fd(), program),
        Image::Stored(stored) => visible_in(stored.directory().as_fd(), program),
        Image::Module(_) => Ok(false),
    }
}

fn visible_in(directory: BorrowedFd<'_>, program: &Path) -> rustix::io::Result<bool> {
    let Some(real) = real_path(directory, program)? else { return Ok(false) };
    let top = path_of(directory)?;
    let first = real.strip_prefix(top).ok().and_then(|inner| inner.iter().next());
    Ok(first.and_then(|first| first.to_str()).is_some_and(|first| !OURS.contains(&first)))
}

/// Where a program really lies, if it is a file that somebody may execute. Links are resolved inside the root.
fn real_path(root: BorrowedFd<'_>, program: &Path) -> rustix::io::Result<Option<PathBuf>> {
    let stay = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = openat2(root, program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), stay)?;
    let mode = fstat(&file)?.st_mode;
    let runs = FileType::from_raw_mode(mode).is_file() && mode & 0o111 != 0;
    if runs { path_of(file.as_fd()).map(Some) } else { Ok(None) }
}

fn path_of(fd: BorrowedFd<'_>) -> rustix::io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStringExt;
    let link = readlinkat(CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::directory::tests::Scratch;

    fn program(scratch: &Scratch, at: &str, mode: u32) {
        let path = scratch.0.join(at);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_shell_of_this_host_reads_from_standard_input() {
        assert_eq!(Image::host().find_interpreter(Language::Shell).unwrap(), ["sh", "-s"]);
    }

    #[test]
    fn a_program_is_found_through_a_link_that_stays_inside() {
        let scratch = Scratch::new("inside");
        program(&scratch, "usr/bin/python3.9", 0o755);
        symlink("/usr/bin/python3.9", scratch.0.join("usr/bin/python3")).unwrap();
        assert_eq!(scratch.image().find_interpreter(Language::Python).unwrap(), ["python3", "-"]);
    }

    #[test]
    fn a_link_to_a_program_of_the_host_does_not_count() {
        let scratch = Scratch::new("outside");
        symlink("../../../../../../bin/sh", scratch.0.join("usr/bin/sh")).unwrap();
        assert!(scratch.image().find_interpreter(Language::Shell).is_err());
    }

    #[test]
    fn a_program_in_a_place_that_the_box_covers_does_not_count() {
        let scratch = Scratch::new("covered");
        program(&scratch, "home/user/node", 0o755);
        symlink("/home/user/node", scratch.0.join("usr/bin/node")).unwrap();
        assert!(scratch.image().find_interpreter(Language::Node).is_err());
        program(&scratch, "opt/nodejs", 0o755);
        symlink("/opt/nodejs", scratch.0.join("usr/bin/nodejs")).unwrap();
        assert_eq!(scratch.image().find_interpreter(Language::Node).unwrap(), ["nodejs", "-"]);
    }

    #[test]
    fn a_file_that_nobody_may_execute_does_not_count() {
        let scratch = Scratch::new("mode");
        program(&scratch, "usr/bin/python3", 0o644);
        assert!(scratch.image().find_interpreter(Language::Python).is_err());
        program(&scratch, "usr/bin/python", 0o755);
        assert_eq!(scratch.image().find_interpreter(Language::Python).unwrap(), ["python", "-"]);
    }

    #[test]
    fn what_is_missing_is_named_with_the_image_and_the_package() {
        let scratch = Scratch::new("missing");
        let text = scratch.image().find_interpreter(Language::Node).unwrap_err().to_string();
        for part in [&scratch.image().label(), "no node", "node or nodejs", "/usr/bin", "install nodejs"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn an_unknown_language_lists_the_known_ones() {
        for language in Language::ALL {
            assert_eq!(language.as_str().parse(), Ok(language));
        }
        let text = "perl".parse::<Language>().unwrap_err().to_string();
        for language in Language::ALL {
            assert!(text.contains(&format!("\"{}\"", language.as_str())), "{text}");
        }
    }
}
