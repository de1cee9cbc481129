//! The command line: `blastbox-agent --control FD [--denials FD]`.

use std::ffi::OsString;
use std::os::fd::RawFd;

/// Descriptors that the program was started with.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The stream to the host.
    pub control: RawFd,
    /// The listener for denied system calls.
    pub denials: Option<RawFd>,
    /// Whether the box has a root: said by whoever made its users, never by a command line.
    pub root: bool,
}

/// `None`: not our command line. Each option at most once, each descriptor above the standard ones, none twice.
pub fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Arguments> {
    let (mut control, mut denials) = (None, None);
    while let Some(option) = words.next() {
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
    let control = control.filter(|_| control != denials)?;
    Some(Arguments { control, denials, root: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Arguments> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn both_descriptors_are_read_in_any_order() {
        let both = Some(Arguments { control: 7, denials: Some(8), root: false });
        assert_eq!(parsed("--control 7 --denials 8"), both);
        assert_eq!(parsed("--denials 8 --control 7"), both);
        assert_eq!(parsed("--control 3"), Some(Arguments { control: 3, denials: None, root: false }));
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
            "--control 3 more",
            "--help",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
