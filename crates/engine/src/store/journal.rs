//! The journal of host resources: each is here before it is made, and leaves when nothing of it is left.
//!
//! What a box has on the host hangs on its warden. Processes, mounts and namespaces end with it, because the kernel ties
//! them to its life; groups lie in one directory that bears its name. So the names of wardens are what has to be known
//! (`docs/decisions/0016-a-warden-is-the-name-of-all-that-it-made.md`).

use std::os::fd::AsFd;
use std::sync::OnceLock;

use blastbox_isolation::Door;
use rusqlite::params;

use super::error::StoreError;
use super::file::{Store, now};

/// What kind of thing has a name on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// A warden: its processes, its boxes, and the directory of groups that bears its name.
    Warden,
}

impl ResourceKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Warden => "warden",
        }
    }
}

/// Something on the host that has to be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Which kind.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
    /// Its process and when that began, in the kernel's ticks; absent where the daemon died before it could be noted.
    pub process: Option<(u32, u64)>,
    /// The start of the machine in which it was made. In another one it cannot be there.
    pub boot: String,
}

impl Store {
    /// A resource is about to be made.
    pub fn note(&self, kind: ResourceKind, name: &str) -> Result<(), StoreError> {
        self.ask("note a host resource", |connection| {
            connection.execute(
                "INSERT INTO resources (kind, name, boot, made_at) VALUES (?1, ?2, ?3, ?4)",
                params![kind.as_str(), name, boot().unwrap_or_default(), now()],
            )
        })
        .map(drop)
    }

    /// It is made, and this is its process.
    pub fn note_process(
        &self,
        kind: ResourceKind,
        name: &str,
        pid: u32,
        ticks: u64,
    ) -> Result<(), StoreError> {
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        self.ask("note the process of a host resource", |connection| {
            connection.execute(
                "UPDATE resources SET pid = ?3, ticks = ?4 WHERE kind = ?1 AND name = ?2",
                params![kind.as_str(), name, pid, ticks],
            )
        })
        .map(drop)
    }

    /// Nothing of it is left.
    pub fn strike(&self, kind: ResourceKind, name: &str) -> Result<(), StoreError> {
        if let Ok(warden) = name.parse() {
            Door::remove(self.directory.as_fd(), warden);
        }
        self.ask("strike a host resource", |connection| {
            connection.execute("DELETE FROM resources WHERE kind = ?1 AND name = ?2", [kind.as_str(), name])
        })
        .map(drop)
    }

    /// Everything that was noted and not struck.
    pub fn resources(&self) -> Result<Vec<Resource>, StoreError> {
        self.ask("list host resources", |connection| {
            let mut statement = connection
                .prepare("SELECT name, pid, ticks, boot FROM resources WHERE kind = ?1 ORDER BY made_at")?;
            let rows = statement.query_map([ResourceKind::Warden.as_str()], |row| {
                let pid: Option<u32> = row.get(1)?;
                let ticks: Option<i64> = row.get(2)?;
                let process = pid.zip(ticks.and_then(|ticks| u64::try_from(ticks).ok()));
                Ok(Resource { kind: ResourceKind::Warden, name: row.get(0)?, process, boot: row.get(3)? })
            })?;
            rows.collect()
        })
    }
}

/// The name that the kernel gave to this start of the machine; `None` where it does not say. That is the same as no other
/// start, nor as one of which it did not say it either.
pub(super) fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    // Read once, when the store is opened: whoever confines itself afterwards cannot ask any more.
    BOOT.get_or_init(|| named(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok())).as_deref()
}

fn named(read: Option<String>) -> Option<String> {
    read.map(|text| text.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Whether what was noted under this name was noted in this start of the machine.
pub(super) fn is_this_start(then: &str) -> bool {
    boot() == Some(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_a_name_is_the_same_as_none() {
        assert_eq!(named(None), None);
        assert_eq!(named(Some(" \n".to_owned())), None);
        assert_eq!(named(Some("a-b\n".to_owned())).as_deref(), Some("a-b"));
        assert!(!is_this_start("") && !is_this_start("another"));
        assert!(boot().is_some_and(is_this_start));
    }
}
