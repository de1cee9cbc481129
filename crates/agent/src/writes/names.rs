//! Which arguments of a watched call name what it changes.

use blastbox_sys::arch;
use blastbox_sys::seccomp::{Verdict, verdict};

/// Where a relative name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    /// At the caller's working directory.
    Working,
    /// At the descriptor in this argument, or at the working directory where it is `AT_FDCWD`.
    Argument(usize),
}

/// Whether the call follows a link that the last part of the name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It changes what the link leads to.
    Followed,
    /// It changes the name itself.
    Itself,
}

/// One name among the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Where it begins.
    pub(super) directory: Directory,
    /// The argument that points to it.
    pub(super) text: usize,
    /// What becomes of a link.
    pub(super) last: Last,
}

const fn name(directory: Directory, text: usize, last: Last) -> Name {
    Name { directory, text, last }
}

use Directory::{Argument, Working};
use Last::{Followed, Itself};

/// Call, and what it changes. A call that moves or links a name changes two.
const NAMES: &[(&str, &[Name])] = &[
    ("open", &[name(Working, 0, Followed)]),
    ("creat", &[name(Working, 0, Followed)]),
    ("truncate", &[name(Working, 0, Followed)]),
    ("openat", &[name(Argument(0), 1, Followed)]),
    ("openat2", &[name(Argument(0), 1, Followed)]),
    ("mkdir", &[name(Working, 0, Itself)]),
    ("mkdirat", &[name(Argument(0), 1, Itself)]),
    ("mknod", &[name(Working, 0, Itself)]),
    ("mknodat", &[name(Argument(0), 1, Itself)]),
    ("rmdir", &[name(Working, 0, Itself)]),
    ("unlink", &[name(Working, 0, Itself)]),
    ("unlinkat", &[name(Argument(0), 1, Itself)]),
    ("symlink", &[name(Working, 1, Itself)]),
    ("symlinkat", &[name(Argument(1), 2, Itself)]),
    // The old name as well: what is written under the new one changes it.
    ("link", &[name(Working, 1, Itself), name(Working, 0, Itself)]),
    ("linkat", &[name(Argument(2), 3, Itself), name(Argument(0), 1, Itself)]),
    ("rename", &[name(Working, 1, Itself), name(Working, 0, Itself)]),
    ("renameat", &[name(Argument(2), 3, Itself), name(Argument(0), 1, Itself)]),
    ("renameat2", &[name(Argument(2), 3, Itself), name(Argument(0), 1, Itself)]),
];

/// What a watched call changes; empty for one that is not.
#[must_use]
pub(super) fn names_of(nr: u32) -> &'static [Name] {
    let called = arch::syscall_name(nr);
    NAMES.iter().find(|(name, _)| Some(*name) == called).map_or(&[], |(_, names)| names)
}

/// Whether these flags of `openat2`, which lie where a filter cannot look, open a file so that it can be changed: what the filter
/// says of the same flags where it sees them.
pub(super) fn opens_to_change(flags: u64) -> bool {
    arch::syscall_number("openat")
        .is_none_or(|openat| verdict(openat, &[0, 0, flags, 0, 0, 0]) == Verdict::Watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_can_be_watched_is_known_by_its_names_and_no_other() {
        for &(number, name) in arch::CALLS {
            // Every flag is set, or none: one of both is watched where any argument decides.
            let watched = [[u64::MAX; 6], [0; 6]].iter().any(|args| verdict(number, args) == Verdict::Watch);
            assert_eq!(!names_of(number).is_empty(), watched, "{name}");
        }
    }

    #[test]
    fn flags_mean_the_same_wherever_they_lie() {
        for (flags, changes) in [
            (0, false),
            (1, true),
            (2, true),
            (0x40, true),
            (0x200, true),
            (0x8_0000, false),
            (0x20_0000, false),
        ] {
            assert_eq!(opens_to_change(flags), changes, "{flags:x}");
        }
    }

    #[test]
    fn every_name_is_an_argument() {
        for (call, names) in NAMES {
            for name in *names {
                let directory = if let Argument(at) = name.directory { at } else { 0 };
                assert!(name.text < 6 && directory < 6, "{call}");
            }
        }
    }
}
