//! The file: opened, checked, and made where it is not there yet.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Mode, OFlags};

use super::error::StoreError;

/// The file's name in the state directory.
const NAME: &str = "boxes.db";
/// What says that an SQLite file is ours: `bbox`.
const OURS: u32 = 0x6262_6f78;
/// The form of what is in it. The third has boxes that lie on disk, which a daemon of before would take for lost;
/// the fourth has commands whose own time goes on with the next daemon.
const VERSION: u32 = 4;
/// Statements whose meaning is kept: more than there are.
const STATEMENTS: usize = 32;
/// After so many pages the log of changes is written back, and it is never kept larger than this many bytes.
const LOG_PAGES: u32 = 256;
const LOG_BYTES: u32 = 4 * 1024 * 1024;

const SCHEMA: &str = "
    CREATE TABLE boxes (
        id TEXT PRIMARY KEY, state TEXT NOT NULL, policy TEXT NOT NULL, image TEXT NOT NULL, image_digest TEXT,
        tier TEXT NOT NULL, gaps TEXT NOT NULL DEFAULT '', warden TEXT NOT NULL, made_at INTEGER NOT NULL,
        tenant TEXT, policy_text TEXT, survives INTEGER NOT NULL DEFAULT 0, ends_at INTEGER, life INTEGER,
        idle INTEGER, on_timeout TEXT, metadata TEXT, ended_at INTEGER, outcome TEXT,
        ends_up INTEGER, boot TEXT, overtime INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX boxes_ended ON boxes (ended_at) WHERE state = 'gone';
    CREATE TABLE execs (
        box TEXT NOT NULL REFERENCES boxes (id) ON DELETE CASCADE, number INTEGER NOT NULL, program TEXT NOT NULL,
        arguments INTEGER NOT NULL, terminal INTEGER NOT NULL, started_at INTEGER NOT NULL, ended TEXT,
        ends_up INTEGER,
        PRIMARY KEY (box, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE resources (
        kind TEXT NOT NULL, name TEXT NOT NULL, pid INTEGER, ticks INTEGER, boot TEXT NOT NULL, made_at INTEGER NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE opened (at INTEGER NOT NULL) STRICT;
    INSERT INTO opened VALUES (0);
";

/// What a file of the first form does not have.
const SINCE_1: &str = "
    ALTER TABLE boxes ADD COLUMN ends_up INTEGER;
    ALTER TABLE boxes ADD COLUMN boot TEXT;
    ALTER TABLE boxes ADD COLUMN overtime INTEGER NOT NULL DEFAULT 0;
";

/// What those before the fourth do not have.
const SINCE_3: &str = "ALTER TABLE execs ADD COLUMN ends_up INTEGER;";

/// What a daemon knows. One process at a time has it.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// The state directory.
    pub(super) directory: OwnedFd,
    connection: Mutex<Connection>,
}

impl Store {
    /// Opens the store of a state directory, or makes it. It is checked from end to end first, and written to once: a
    /// store that could not take the first box is refused here.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(NAME);
        make_private(&path).map_err(|source| match source.raw_os_error() {
            Some(30) => StoreError::ReadOnly { path: path.clone() },
            Some(28 | 122) => StoreError::Full { path: path.clone() },
            _ => StoreError::Open { path: path.clone(), source },
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let failed = |tried| move |source| StoreError::of(tried, directory, source);
        let connection = Connection::open_with_flags(&path, flags).map_err(failed("open what is"))?;
        let hold = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, hold, Mode::empty());
        let opened = opened.map_err(|errno| StoreError::Open { path: path.clone(), source: errno.into() })?;
        let store = Self { path, directory: opened, connection: Mutex::new(connection) };
        store.prepare()?;
        super::journal::boot();
        Ok(store)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        // Nobody panics while holding it; SQLite undoes what was not finished.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that is asked of the file, with its name for whoever has to read about its failure.
    pub(super) fn ask<T>(
        &self,
        tried: &'static str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&mut self.connection()).map_err(|source| StoreError::of(tried, &self.path, source))
    }

    fn prepare(&self) -> Result<(), StoreError> {
        self.ask("set up what is", |connection| {
            connection.busy_timeout(Duration::from_secs(2))?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            // Alone: no shared memory beside it, which a full disk would turn into a signal.
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            // A file that somebody prepared must not run anything of theirs.
            connection.pragma_update(None, "trusted_schema", false)
        })?;
        let (ours, version, tables) = self.ask("read the version", |connection| {
            let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
            let tables =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, u32>(0))?;
            Ok((number("application_id")?, number("user_version")?, tables))
        })?;
        if ours != OURS && (ours != 0 || tables != 0) {
            return Err(StoreError::Foreign { path: self.path.clone() });
        }
        if version > VERSION {
            return Err(StoreError::Newer { path: self.path.clone(), found: version, known: VERSION });
        }
        self.check()?;
        self.ask("keep a log of changes", |connection| {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // A killed process loses nothing; after a power cut there are no boxes that could be lost.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            connection.pragma_update(None, "journal_size_limit", LOG_BYTES)
        })?;
        self.ask("make the tables", |connection| {
            let transaction = connection.transaction()?;
            if tables == 0 {
                transaction.execute_batch(SCHEMA)?;
                transaction.pragma_update(None, "application_id", OURS)?;
            }
            if tables != 0 && version < 2 {
                transaction.execute_batch(SINCE_1)?;
            }
            if tables != 0 && version < 4 {
                transaction.execute_batch(SINCE_3)?;
            }
            transaction.pragma_update(None, "user_version", VERSION)?;
            transaction.execute("UPDATE opened SET at = ?1", [now()])?;
            transaction.commit()
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        let found = self.ask("check what is", |connection| {
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        })?;
        if found == "ok" {
            return Ok(());
        }
        Err(StoreError::Damaged { path: self.path.clone(), why: found.replace('\n', "; ") })
    }
}

/// The owner's alone, before SQLite writes into it; the files beside it take over its mode.
fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let file = options.custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0)).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a file of this user alone (mode 0600)",
        ));
    }
    Ok(())
}

/// Milliseconds of the wall clock.
pub(super) fn now() -> i64 {
    millis(SystemTime::now())
}

pub(super) fn millis(at: SystemTime) -> i64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
