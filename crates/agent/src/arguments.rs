//! The command line: `blastbox-agent --control FD [--lend] [--denials FD [--writes closed|own|callers]]`.

use std::ffi::OsString;
use std::os::fd::RawFd;

use crate::writes::Workplace;

/// Descriptors that the program was started with.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The stream to the host.
    pub control: RawFd,
    /// The listener for denied system calls.
    pub denials: Option<RawFd>,
    /// Whether calls that change files come in by it too, and where commands work.
    pub writes: Option<Workplace>,
    /// Whether commands get ready on this process's own memory: where a copy of it is dear.
    pub lends: bool,
    /// Whether the box has a root: said by whoever made its users, never by a command line.
    pub root: bool,
    /// The line to the process that keeps the powers of a guest, where there is one: never said by a command line either.
    pub nurse: Option<NurseLine>,
}

/// The line to the process that keeps the powers of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NurseLine {
    /// Its descriptor.
    pub line: RawFd,
    /// Whether a copy of this guest is told whom its programs believe.
    pub authority: bool,
    /// Whether others begin as copies of this guest: then it sleeps before it takes a frame.
    pub asleep: bool,
}

/// `None`: not our command line. Each option at most once, each descriptor above the standard ones, none twice.
pub fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Arguments> {
    let (mut control, mut denials, mut writes, mut lends) = (None, None, None, false);
    while let Some(option) = words.next() {
        if option == "--writes" {
            let workplace = match words.next()?.to_str()? {
                "closed" => Workplace::Closed,
                "own" => Workplace::Own,
                "callers" => Workplace::Callers,
                _ => return None,
            };
            if writes.replace(workplace).is_some() {
                return None;
            }
            continue;
        }
        if option == "--lend" && !std::mem::replace(&mut lends, true) {
            continue;
        }
        let place = match option.to_str()? {
            "--control" => &mut control,
            "--denials" => &mut denials,
            _ => return None,
        };
        let fd = words.next()?.to_str()?.parse::<RawFd>().ok().filter(|&fd| fd > 2)?;
        if place.replace(fd).is_some() {
            return None;
        }
    }
    let control = control.filter(|_| control != denials && (writes.is_none() || denials.is_some()))?;
    Some(Arguments { control, denials, writes, lends, root: false, nurse: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Arguments> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn both_descriptors_are_read_in_any_order() {
        let with = |writes| {
            Some(Arguments { control: 7, denials: Some(8), writes, lends: false, root: false, nurse: None })
        };
        let (both, three) = (with(None), with(Some(Workplace::Own)));
        assert_eq!(parsed("--control 7 --writes own --denials 8"), three);
        assert_eq!(parsed("--control 7 --denials 8"), both);
        assert_eq!(parsed("--denials 8 --control 7"), both);
        let alone = |lends| {
            Some(Arguments { control: 3, denials: None, writes: None, lends, root: false, nurse: None })
        };
        assert_eq!(parsed("--control 3"), alone(false));
        assert_eq!(parsed("--lend --control 3"), alone(true));
    }

    #[test]
    fn anything_else_is_not_our_command_line() {
        for line in [
            "",
            "--control",
            "--control x",
            "--control -1",
            "--control 2",
            "--denials 4",
            "--control 3 --control 4",
            "--control 3 --denials 3",
            "--control 3 --writes own",
            "--control 3 --denials 4 --writes all",
            "--control 3 --denials 4 --writes own --writes own",
            "--lend",
            "--control 3 --lend --lend",
            "--control 3 more",
            "--help",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
