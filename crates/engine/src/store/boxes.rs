//! Boxes and their commands, as rows.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blastbox_policy::{Gap, PolicyDigest, Tier};
use blastbox_wire::BoxId;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::error::StoreError;
use super::file::{Store, millis, now};
use super::journal::{boot, is_this_start};
use crate::keeper::{OnTimeout, Tenant};

/// Boxes that are gone and remembered. More are forgotten, oldest first.
const GONE: u32 = 1_000;
/// Commands of one box that have ended and are remembered.
const FINISHED: u32 = 64;

/// How far a box has come, as far as a new daemon has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoxState {
    /// It is about to be made, or is being made.
    Provisioning,
    /// It waits in a pool and is nobody's.
    Pooled,
    /// It is somebody's.
    Live,
    /// It is somebody's, and everything in it was stopped.
    Paused,
    /// It is somebody's, and lies on disk: there is no process of it.
    OnDisk,
    /// It is being ended.
    Ending,
    /// Nothing is left of it and its end is in the ledger, but not yet with every sink that must have it.
    Ended,
    /// Nothing is left of it.
    Gone,
}

impl BoxRow {
    /// Whether a new daemon takes it over, if its warden has kept it.
    pub(super) fn is_heritable(&self) -> bool {
        self.survives && matches!(self.state, BoxState::Live | BoxState::Paused)
    }
}

impl BoxState {
    const ALL: [Self; 8] = [
        Self::Provisioning,
        Self::Pooled,
        Self::Live,
        Self::Paused,
        Self::OnDisk,
        Self::Ending,
        Self::Ended,
        Self::Gone,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Pooled => "pooled",
            Self::Live => "live",
            Self::Paused => "paused",
            Self::OnDisk => "on-disk",
            Self::Ending => "ending",
            Self::Ended => "ended",
            Self::Gone => "gone",
        }
    }
}

/// When a box ends, and by which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// How long it lives.
    pub life: Duration,
    /// How long it lives without a command.
    pub idle: Duration,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// When its life is over, on the wall clock.
    pub ends_at: SystemTime,
    /// The same on the kernel's monotonic clock, which nobody sets; absent where it was written before the machine started
    /// the last time.
    pub ends_up: Option<Duration>,
    /// Whether its life was over once, and it is paused until it has passed once more.
    pub overtime: bool,
}

/// A box that is somebody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxRow {
    /// Its name.
    pub id: BoxId,
    /// Whose it is.
    pub tenant: Tenant,
    /// How far it has come.
    pub state: BoxState,
    /// Its policy, by digest.
    pub policy: PolicyDigest,
    /// The whole policy, as text.
    pub policy_text: String,
    /// Its image, by label.
    pub image: String,
    /// The tier that it really has.
    pub tier: Tier,
    /// The gaps that hold and were accepted.
    pub gaps: Vec<Gap>,
    /// The warden that holds it, by name.
    pub warden: String,
    /// Whether it may outlive its daemon.
    pub survives: bool,
    /// When it was asked for.
    pub made_at: SystemTime,
    /// When it ends.
    pub deadlines: Deadlines,
    /// What its owner wrote on it.
    pub metadata: BTreeMap<String, String>,
}

/// A command, without what its arguments say: people put tokens there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRow {
    /// Its number in the box.
    pub number: u32,
    /// Its program.
    pub program: String,
    /// How many arguments follow.
    pub arguments: u32,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// When it was asked for.
    pub started_at: SystemTime,
    /// When its own time is over, on the kernel's monotonic clock: whoever finds it running has outlived no start of the machine.
    pub ends_up: Option<Duration>,
    /// How it ended, in a word; absent while it runs.
    pub ended: Option<String>,
}

impl Store {
    /// A box is about to be made, and is nobody's yet.
    pub(crate) fn begin_box(
        &self,
        id: &BoxId,
        policy: &str,
        image: &str,
        tier: Tier,
        warden: &str,
    ) -> Result<(), StoreError> {
        self.ask("note a new box", |connection| {
            run(
                connection,
                "INSERT INTO boxes (id, state, policy, image, tier, warden, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    id.as_str(),
                    BoxState::Provisioning.as_str(),
                    policy,
                    image,
                    tier.as_str(),
                    warden,
                    now()
                ],
            )
        })
        .map(drop)
    }

    /// It is about to be somebody's.
    pub(crate) fn give_box(&self, row: &BoxRow) -> Result<(), StoreError> {
        let metadata = serde_json::to_string(&row.metadata).unwrap_or_default();
        let gaps: Vec<&str> = row.gaps.iter().map(|gap| gap.as_str()).collect();
        let gaps = gaps.join(",");
        let Deadlines { life, idle, on_timeout, ends_at, ends_up, overtime } = row.deadlines;
        self.ask("note whose a box is", |connection| {
            run(
                connection,
                "UPDATE boxes SET state = ?2, tenant = ?3, policy_text = ?4, survives = ?5, ends_at = ?6, life = ?7, \
                 idle = ?8, on_timeout = ?9, metadata = ?10, made_at = ?11, gaps = ?12, ends_up = ?13, boot = ?14, \
                 overtime = ?15 WHERE id = ?1",
                params![
                    row.id.as_str(),
                    row.state.as_str(),
                    row.tenant.as_str(),
                    row.policy_text,
                    row.survives,
                    millis(ends_at),
                    span(life),
                    span(idle),
                    timeout_word(on_timeout),
                    metadata,
                    millis(row.made_at),
                    gaps,
                    ends_up.map(span),
                    boot(),
                    overtime
                ],
            )
        })
        .map(drop)
    }

    /// It is about to be in another state.
    pub(crate) fn move_box(&self, id: &BoxId, state: BoxState) -> Result<(), StoreError> {
        self.ask("note the state of a box", |connection| {
            run(connection, "UPDATE boxes SET state = ?2 WHERE id = ?1", params![id.as_str(), state.as_str()])
        })
        .map(drop)
    }

    /// It is about to lie on disk, with so much of its life left. One that is being ended, or is gone, stays so: its end is told.
    pub(crate) fn lay_box(&self, id: &BoxId, deadlines: &Deadlines) -> Result<(), StoreError> {
        let Deadlines { life, ends_at, .. } = *deadlines;
        self.ask("note that a box lies on disk", |connection| {
            run(
                connection,
                "UPDATE boxes SET state = ?2, ends_at = ?3, life = ?4, ends_up = NULL, boot = ?5, overtime = 0 \
                 WHERE id = ?1 AND state NOT IN ('ending', 'ended', 'gone')",
                params![id.as_str(), BoxState::OnDisk.as_str(), millis(ends_at), span(life), boot()],
            )
        })
        .map(drop)
    }

    /// A box that lies on disk is about to be made again, by this warden. It lies there until it is somebody's once more.
    pub(crate) fn revive_box(&self, id: &BoxId, warden: &str) -> Result<(), StoreError> {
        self.ask("note who makes a box again", |connection| {
            run(connection, "UPDATE boxes SET warden = ?2 WHERE id = ?1", params![id.as_str(), warden])
        })
        .map(drop)
    }

    /// Its life is over at another time.
    pub(crate) fn extend_box(&self, id: &BoxId, deadlines: &Deadlines) -> Result<(), StoreError> {
        let Deadlines { life, ends_at, ends_up, overtime, .. } = *deadlines;
        self.ask("note when a box ends", |connection| {
            run(
                connection,
                "UPDATE boxes SET ends_at = ?2, life = ?3, ends_up = ?4, boot = ?5, overtime = ?6 WHERE id = ?1",
                params![id.as_str(), millis(ends_at), span(life), ends_up.map(span), boot(), overtime],
            )
        })
        .map(drop)
    }

    /// Nothing is left of it. One that was nobody's is forgotten; of the others the last are remembered.
    pub(crate) fn end_box(&self, id: &BoxId, outcome: &str) -> Result<(), StoreError> {
        self.ask("note the end of a box", |connection| {
            let transaction = connection.transaction()?;
            run(&transaction, "DELETE FROM boxes WHERE id = ?1 AND tenant IS NULL", [id.as_str()])?;
            run(&transaction, "DELETE FROM execs WHERE box = ?1", [id.as_str()])?;
            run(
                &transaction,
                "UPDATE boxes SET state = 'gone', ended_at = ?2, outcome = ?3, policy_text = NULL WHERE id = ?1",
                params![id.as_str(), now(), outcome],
            )?;
            run(
                &transaction,
                "DELETE FROM boxes WHERE state = 'gone' AND ended_at < coalesce((SELECT ended_at FROM boxes \
                 WHERE state = 'gone' ORDER BY ended_at DESC LIMIT 1 OFFSET ?1), 0)",
                [GONE - 1],
            )?;
            transaction.commit()
        })
    }

    /// Another policy holds for a box: a new daemon must not say of it what was true when it was made.
    pub(crate) fn rule_box(&self, id: &BoxId, policy: PolicyDigest, text: &str) -> Result<(), StoreError> {
        self.ask("note the rules of a box", |connection| {
            run(
                connection,
                "UPDATE boxes SET policy = ?2, policy_text = ?3 WHERE id = ?1 AND state <> 'gone'",
                params![id.as_str(), policy.to_string(), text],
            )?;
            Ok(())
        })
    }

    /// Whether this tenant had a box of this name, which is gone.
    pub(crate) fn remembers(&self, tenant: &Tenant, id: &BoxId) -> bool {
        let found = self.ask("look for a box", |connection| {
            connection
                .query_row(
                    "SELECT 1 FROM boxes WHERE id = ?1 AND tenant = ?2 AND state = 'gone'",
                    [id.as_str(), tenant.as_str()],
                    |_| Ok(()),
                )
                .optional()
        });
        matches!(found, Ok(Some(())))
    }

    /// Every box that is not gone: those that are somebody's in full, the others by name.
    pub(crate) fn unfinished(&self) -> Result<(Vec<BoxRow>, Vec<BoxId>), StoreError> {
        self.ask("list boxes", |connection| {
            let mut owned = Vec::new();
            let mut nobodys = Vec::new();
            let mut statement = connection.prepare(
                "SELECT id, tenant, state, policy_text, image, tier, warden, survives, made_at, life, idle, on_timeout, \
                 ends_at, metadata, policy, gaps, ends_up, boot, overtime FROM boxes WHERE state <> 'gone' ORDER BY made_at, id",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let id = parsed(row, 0, |text| text.parse::<BoxId>().ok())?;
                match row.get::<_, Option<String>>(1)? {
                    Some(_) => owned.push(read_box(row, id)?),
                    None => nobodys.push(id),
                }
            }
            Ok((owned, nobodys))
        })
    }

    /// Whether this warden holds boxes that may outlive their daemon.
    pub(super) fn has_survivors(&self, warden: &str) -> Result<bool, StoreError> {
        self.ask("look for boxes that survive", |connection| {
            connection.query_row(
                "SELECT count(*) FROM boxes WHERE warden = ?1 AND survives <> 0 AND state IN ('live', 'paused')",
                [warden],
                |row| Ok(row.get::<_, u32>(0)? > 0),
            )
        })
    }

    /// A command is about to be given to a box.
    pub(crate) fn begin_exec(&self, id: &BoxId, exec: &ExecRow) -> Result<(), StoreError> {
        self.ask("note a command", |connection| {
            run(
                connection,
                "INSERT OR REPLACE INTO execs (box, number, program, arguments, terminal, started_at, ends_up) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    id.as_str(),
                    exec.number,
                    exec.program,
                    exec.arguments,
                    exec.terminal,
                    millis(exec.started_at),
                    exec.ends_up.map(span)
                ],
            )
        })
        .map(drop)
    }

    /// It is over. Of those only the last are remembered.
    pub(crate) fn end_exec(&self, id: &BoxId, number: u32, how: &str) -> Result<(), StoreError> {
        self.ask("note the end of a command", |connection| {
            let transaction = connection.transaction()?;
            run(
                &transaction,
                "UPDATE execs SET ended = ?3 WHERE box = ?1 AND number = ?2",
                params![id.as_str(), number, how],
            )?;
            run(
                &transaction,
                "DELETE FROM execs WHERE box = ?1 AND ended IS NOT NULL AND number <= coalesce((SELECT number \
                 FROM execs WHERE box = ?1 AND ended IS NOT NULL ORDER BY number DESC LIMIT 1 OFFSET ?2), -1)",
                params![id.as_str(), FINISHED],
            )?;
            transaction.commit()
        })
    }

    /// The commands of a box.
    pub fn execs(&self, id: &BoxId) -> Result<Vec<ExecRow>, StoreError> {
        self.ask("list commands", |connection| {
            let mut statement = connection.prepare(
                "SELECT number, program, arguments, terminal, started_at, ended, ends_up FROM execs WHERE box = ?1 ORDER BY number",
            )?;
            let rows = statement.query_map([id.as_str()], |row| {
                Ok(ExecRow {
                    number: row.get(0)?,
                    program: row.get(1)?,
                    arguments: row.get(2)?,
                    terminal: row.get(3)?,
                    started_at: at(row.get(4)?),
                    ended: row.get(5)?,
                    ends_up: row.get::<_, Option<i64>>(6)?.map(long),
                })
            })?;
            rows.collect()
        })
    }
}

/// Writes something. What a statement means is worked out once: that takes longer than most of them do.
fn run(connection: &Connection, statement: &str, values: impl Params) -> rusqlite::Result<usize> {
    connection.prepare_cached(statement)?.execute(values)
}

fn read_box(row: &Row<'_>, id: BoxId) -> rusqlite::Result<BoxRow> {
    let metadata: String = row.get::<_, Option<String>>(13)?.unwrap_or_default();
    let state = parsed(row, 2, |text| BoxState::ALL.into_iter().find(|state| state.as_str() == text))?;
    let same_start = row.get::<_, Option<String>>(17)?.is_some_and(|then| is_this_start(&then));
    Ok(BoxRow {
        id,
        tenant: parsed(row, 1, |text| text.parse().ok())?,
        state,
        policy: parsed(row, 14, |text| text.parse().ok())?,
        policy_text: row.get::<_, Option<String>>(3)?.unwrap_or_default(),
        image: row.get(4)?,
        tier: parsed(row, 5, |text| text.parse().ok())?,
        gaps: parsed(row, 15, |text| {
            text.split(',').filter(|word| !word.is_empty()).map(|word| word.parse().ok()).collect()
        })?,
        warden: row.get(6)?,
        survives: row.get(7)?,
        made_at: at(row.get(8)?),
        deadlines: Deadlines {
            life: long(row.get(9)?),
            idle: long(row.get(10)?),
            on_timeout: parsed(row, 11, |text| match text {
                "destroy" => Some(OnTimeout::Destroy),
                "pause" => Some(OnTimeout::Pause),
                _ => None,
            })?,
            ends_at: at(row.get(12)?),
            ends_up: row.get::<_, Option<i64>>(16)?.map(long).filter(|_| same_start),
            overtime: row.get(18)?,
        },
        metadata: serde_json::from_str(&metadata).unwrap_or_default(),
    })
}

/// A text that is one of ours, or the row is not.
fn parsed<T>(row: &Row<'_>, column: usize, read: impl FnOnce(&str) -> Option<T>) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    read(&text)
        .ok_or_else(|| rusqlite::Error::InvalidColumnType(column, text.clone(), rusqlite::types::Type::Text))
}

const fn timeout_word(on_timeout: OnTimeout) -> &'static str {
    match on_timeout {
        OnTimeout::Destroy => "destroy",
        OnTimeout::Pause => "pause",
    }
}

fn span(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn long(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn at(millis: i64) -> SystemTime {
    UNIX_EPOCH + long(millis)
}
