//! What the host wants of a guest: `guest key=value …`, from the end of the kernel's command line.
//!
//! Trust: the host wrote it. It is read strictly all the same, because a word that is not understood is a promise that
//! is not kept: every key once, none unknown, none missing.

use std::ffi::OsString;

use blastbox_agent::Workplace;
use blastbox_wire::plan::{Denials, Exec};

/// What the host wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Bytes of the scratch space.
    pub(crate) bytes: u64,
    /// Files and directories of the scratch space.
    pub(crate) inodes: u64,
    /// Processes and threads of the payload.
    pub(crate) pids: u64,
    /// Open files of one process.
    pub(crate) files: u64,
    /// Largest file.
    pub(crate) size: u64,
    /// Whether programs may be started from the scratch space.
    pub(crate) exec: Exec,
    /// Where commands work.
    pub(crate) workspace: Workspace,
    /// Whether there is a loopback.
    pub(crate) loopback: bool,
    /// Whether there is a network card.
    pub(crate) network: bool,
    /// Whether the host says next whom programs believe besides.
    pub(crate) authority: bool,
    /// Whether denied system calls are reported, and those that change files.
    pub(crate) denials: Denials,
    /// Whether others begin as copies of this guest: it falls asleep when it is whole, and goes on when it is woken.
    pub(crate) asleep: bool,
    /// The host name.
    pub(crate) name: String,
}

/// Where commands work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// Nowhere.
    Absent,
    /// In an empty directory.
    Empty,
    /// On the second disk.
    ReadOnly,
    /// On the second disk, with changes in scratch space.
    CopyOnWrite,
}

impl Workspace {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "no" => Some(Self::Absent),
            "yes" => Some(Self::Empty),
            "ro" => Some(Self::ReadOnly),
            "cow" => Some(Self::CopyOnWrite),
            _ => None,
        }
    }

    /// The same, as whoever looks at writes needs it.
    pub(crate) fn workplace(self) -> Workplace {
        match self {
            Self::Absent | Self::ReadOnly => Workplace::Closed,
            Self::Empty => Workplace::Own,
            Self::CopyOnWrite => Workplace::Callers,
        }
    }

    /// Whether there is a second disk.
    pub(crate) fn has_disk(self) -> bool {
        matches!(self, Self::ReadOnly | Self::CopyOnWrite)
    }
}

/// The word that says that this process is the first one of a guest.
pub(crate) const GUEST: &str = "guest";
/// More than any host name of a box has.
const MOST_NAME: usize = 64;

impl Orders {
    /// `None`: not our command line.
    pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut given: Vec<(String, String)> = Vec::new();
        for word in words {
            let (key, value) = word.to_str()?.split_once('=')?;
            if given.iter().any(|(known, _)| known == key) {
                return None;
            }
            given.push((key.to_owned(), value.to_owned()));
        }
        let mut take = |key: &str| {
            let at = given.iter().position(|(known, _)| known == key)?;
            Some(given.swap_remove(at).1)
        };
        let orders = Self {
            bytes: take("bytes")?.parse().ok()?,
            inodes: take("inodes")?.parse().ok()?,
            pids: take("pids")?.parse().ok()?,
            files: take("files")?.parse().ok()?,
            size: take("size")?.parse().ok()?,
            exec: if yes(&take("exec")?)? { Exec::Allowed } else { Exec::Denied },
            workspace: Workspace::parse(&take("workspace")?)?,
            loopback: yes(&take("loopback")?)?,
            network: yes(&take("network")?)?,
            authority: yes(&take("authority")?)?,
            denials: match take("denials")?.as_str() {
                "yes" => Denials::Reported,
                "writes" => Denials::WithWrites,
                "no" => Denials::Silent,
                _ => return None,
            },
            asleep: yes(&take("asleep")?)?,
            name: take("name").filter(|name| !name.is_empty() && name.len() <= MOST_NAME)?,
        };
        given.is_empty().then_some(orders)
    }
}

fn yes(word: &str) -> Option<bool> {
    match word {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "bytes=1048576 inodes=100 pids=64 files=256 size=4096 exec=yes workspace=no loopback=no network=yes authority=no denials=yes asleep=no name=bx-1";

    fn parsed(line: &str) -> Option<Orders> {
        Orders::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn every_key_is_read() {
        let orders = parsed(GOOD).unwrap();
        assert_eq!((orders.bytes, orders.pids, orders.exec), (1 << 20, 64, Exec::Allowed));
        assert!(orders.network && !orders.authority);
        assert!(
            orders.workspace == Workspace::Absent
                && orders.name == "bx-1"
                && orders.denials == Denials::Reported
        );
    }

    #[test]
    fn writes_are_watched_where_the_host_says_so() {
        let orders = parsed(&GOOD.replace("denials=yes", "denials=writes")).unwrap();
        assert_eq!(orders.denials, Denials::WithWrites);
    }

    #[test]
    fn what_is_missing_unknown_doubled_or_no_value_is_not_our_command_line() {
        for bad in [
            GOOD.replace("pids=64 ", ""),
            format!("{GOOD} more=1"),
            format!("{GOOD} bytes=1"),
            GOOD.replace("exec=yes", "exec=maybe"),
            GOOD.replace("denials=yes", "denials=maybe"),
            GOOD.replace("workspace=no", "workspace=rw"),
            GOOD.replace("name=bx-1", "name="),
            GOOD.replace("inodes=100", "inodes=-1"),
            format!("{GOOD} word"),
            String::new(),
        ] {
            assert_eq!(parsed(&bad), None, "{bad}");
        }
    }
}
