//! The store by itself: what is written is read back, what cannot be trusted is refused, nothing grows without end.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blastbox_policy::{Profile, Tier, to_toml};
use blastbox_wire::BoxId;

use super::*;
use crate::keeper::{OnTimeout, Tenant};

/// A directory of one test's own, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("blastbox-store-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("boxes.db")
    }
    fn open(&self) -> Store {
        Store::open(&self.0).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn id(number: u8) -> BoxId {
    BoxId::from_random([number; 20])
}

fn row(number: u8) -> BoxRow {
    let policy = Profile::Default.draft().unwrap().seal().unwrap();
    let hour = Duration::from_secs(3_600);
    BoxRow {
        id: id(number),
        tenant: Tenant::local(),
        state: BoxState::Live,
        policy: policy.digest(),
        policy_text: to_toml(&policy),
        image: "host".to_owned(),
        tier: Tier::Jail,
        gaps: policy.accepted().iter().copied().collect(),
        warden: "w".to_owned(),
        survives: true,
        made_at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        deadlines: Deadlines {
            life: hour,
            idle: hour / 4,
            on_timeout: OnTimeout::Pause,
            ends_at: UNIX_EPOCH + Duration::from_millis(1_700_003_600_123),
            ends_up: Some(hour * 2),
            overtime: true,
        },
        metadata: BTreeMap::from([("job".to_owned(), "\"7\"\n".to_owned())]),
    }
}

fn begin(store: &Store, number: u8) {
    store.begin_box(&id(number), &row(number).policy.to_string(), "host", Tier::Jail, "w").unwrap();
}

fn exec(number: u32) -> ExecRow {
    let at = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
    let ends_up = (number % 2 == 1).then_some(Duration::from_millis(7_500));
    ExecRow {
        number,
        program: "sh".to_owned(),
        arguments: 2,
        terminal: false,
        started_at: at,
        ends_up,
        ended: None,
    }
}

#[test]
fn what_was_written_is_there_for_the_next_daemon() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    begin(&store, 2);
    store.give_box(&row(1)).unwrap();
    store.begin_exec(&id(1), &exec(1)).unwrap();
    store.begin_exec(&id(1), &exec(2)).unwrap();
    store.note(ResourceKind::Warden, "aa").unwrap();
    store.note_process(ResourceKind::Warden, "aa", 7, 9).unwrap();
    // As a kill leaves it: nothing is closed.
    std::mem::forget(store.connection());
    drop(place.open_after_kill());
    let store = place.open_after_kill();
    assert_eq!(store.unfinished().unwrap(), (vec![row(1)], vec![id(2)]));
    assert_eq!(store.execs(&id(1)).unwrap(), vec![exec(1), exec(2)]);
    let noted = store.resources().unwrap();
    assert_eq!((noted.len(), noted[0].process), (1, Some((7, 9))));
}

impl Place {
    /// A copy of the files, as they are when the process that had them is killed: its locks are gone, its log is not.
    fn open_after_kill(&self) -> Store {
        let copy = self.0.join("copy");
        fs::create_dir_all(&copy).unwrap();
        for name in ["boxes.db", "boxes.db-wal"] {
            if self.0.join(name).exists() {
                fs::copy(self.0.join(name), copy.join(name)).unwrap();
            }
        }
        Store::open(&copy).unwrap()
    }
}

#[test]
fn a_box_that_was_nobodys_is_forgotten_and_one_that_was_somebodys_is_remembered() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    begin(&store, 2);
    store.give_box(&row(2)).unwrap();
    store.move_box(&id(2), BoxState::Paused).unwrap();
    assert_eq!(store.unfinished().unwrap().0[0].state, BoxState::Paused);
    let Leftovers { boxes, nobodys, .. } =
        Leftovers::release(&store, std::path::Path::new("/nonexistent")).unwrap();
    assert_eq!((boxes.len(), nobodys), (1, vec![id(1)]));
    // Until their end is told, the next daemon finds them again.
    assert_eq!(Leftovers::release(&store, std::path::Path::new("/nonexistent")).unwrap().boxes.len(), 1);
    [1, 2].iter().for_each(|number| store.strike_lost(&id(*number)));
    assert_eq!(store.unfinished().unwrap(), (vec![], vec![]));
    assert!(store.remembers(&Tenant::local(), &id(2)) && !store.remembers(&Tenant::local(), &id(1)));
    assert!(!store.remembers(&"other".parse().unwrap(), &id(2)));
}

#[test]
fn a_row_has_the_rules_that_hold_and_not_those_that_held() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    store.give_box(&row(1)).unwrap();
    let draft = Profile::Default.draft().unwrap();
    let other = draft.allow(blastbox_policy::AllowRule::short("a.example.com").unwrap()).seal().unwrap();
    store.rule_box(&id(1), other.digest(), &to_toml(&other)).unwrap();
    let found = store.unfinished().unwrap().0.remove(0);
    assert_eq!((found.policy, found.policy_text.as_str()), (other.digest(), to_toml(&other).as_str()));
    store.end_box(&id(1), "ended").unwrap();
    // What is gone keeps no text.
    store.rule_box(&id(1), other.digest(), "x").unwrap();
    assert!(store.unfinished().unwrap().0.is_empty());
}

#[test]
fn neither_gone_boxes_nor_finished_commands_grow_without_end() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    store.give_box(&row(1)).unwrap();
    for number in 0..200 {
        store.begin_exec(&id(1), &exec(number)).unwrap();
        store.end_exec(&id(1), number, "exited").unwrap();
    }
    let kept = store.execs(&id(1)).unwrap();
    assert_eq!((kept.len(), kept[0].number), (64, 136));
    for number in 0..1_100_u32 {
        let mut random = [9_u8; 20];
        for (place, byte) in random.iter_mut().zip([number % 32, number / 32 % 32, number / 1_024]) {
            *place = u8::try_from(byte).unwrap();
        }
        let mut row = row(1);
        row.id = BoxId::from_random(random);
        store.begin_box(&row.id, &row.policy.to_string(), "host", Tier::Jail, "w").unwrap();
        store.give_box(&row).unwrap();
        store.end_box(&row.id, "exited").unwrap();
        // The wall clock decides who is older; a thousand ends in one of its ticks would be a thousand of one age.
        store
            .connection()
            .execute("UPDATE boxes SET ended_at = ?1 WHERE id = ?2", (number, row.id.as_str()))
            .unwrap();
    }
    let gone: u32 = store.connection().query_row("SELECT count(*) FROM boxes", [], |row| row.get(0)).unwrap();
    assert!((1_000..=1_002).contains(&gone), "{gone}");
}

#[test]
fn the_file_is_its_owners_alone_and_one_daemons_at_a_time() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Store::open(&place.0), Err(StoreError::InUse { .. })));
    drop(store);
    drop(place.open());
    fs::set_permissions(place.file(), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Store::open(&place.0), Err(StoreError::Open { .. })));
    fs::remove_file(place.file()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.file()).unwrap();
    assert!(matches!(Store::open(&place.0), Err(StoreError::Open { .. })));
}

#[test]
fn a_file_that_is_damaged_foreign_or_newer_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    for number in 0..200 {
        store.begin_exec(&id(1), &exec(number)).unwrap();
    }
    drop(store);
    let whole = fs::read(place.file()).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(place.file(), bytes).unwrap();
        let error = Store::open(&place.0).unwrap_err();
        assert_eq!(fs::read(place.file()).unwrap(), bytes, "{error}");
        error
    };
    let mut damaged = whole.clone();
    for page in damaged.chunks_mut(4096).skip(1) {
        page[..64].fill(0xA5);
    }
    assert!(matches!(refused(&damaged), StoreError::Damaged { .. }));
    assert!(matches!(refused(&whole[..whole.len() / 2]), StoreError::Damaged { .. }));
    assert!(matches!(refused(&[b'x'; 5_000]), StoreError::Foreign { .. }));
    fs::write(place.file(), &whole).unwrap();
    let set = |pragma: &str, value: u32| {
        let connection = rusqlite::Connection::open(place.file()).unwrap();
        connection.pragma_update(None, pragma, value).unwrap();
    };
    set("user_version", 99);
    let error = Store::open(&place.0).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    set("user_version", 1);
    set("application_id", 5);
    assert!(matches!(Store::open(&place.0), Err(StoreError::Foreign { .. })));
}

#[test]
fn a_file_of_the_first_form_is_taken_over_and_a_deadline_of_another_start_is_the_walls() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    store.give_box(&row(1)).unwrap();
    let longer = Deadlines { life: Duration::from_secs(7_200), overtime: false, ..row(1).deadlines };
    store.extend_box(&id(1), &longer).unwrap();
    assert_eq!(store.unfinished().unwrap().0[0].deadlines, longer);
    drop(store);
    let edit = |statement: &str| {
        rusqlite::Connection::open(place.file()).unwrap().execute_batch(statement).unwrap();
    };
    edit("UPDATE boxes SET boot = 'another'");
    assert_eq!(place.open().unfinished().unwrap().0[0].deadlines, Deadlines { ends_up: None, ..longer });
    for column in ["ends_up", "boot", "overtime"] {
        edit(&format!("ALTER TABLE boxes DROP COLUMN {column}"));
    }
    edit("ALTER TABLE execs DROP COLUMN ends_up; PRAGMA user_version = 1");
    for _ in 0..2 {
        assert_eq!(place.open().unfinished().unwrap().0[0].deadlines, Deadlines { ends_up: None, ..longer });
    }
}

#[test]
fn a_full_disk_refuses_a_new_box_and_takes_the_next_one_when_there_is_room() {
    let place = Place::new();
    let store = place.open();
    begin(&store, 1);
    let pages = |most: u32| {
        store.connection().pragma_update_and_check(None, "max_page_count", most, |_| Ok(())).unwrap();
    };
    pages(1);
    let refused = (2..200_u8)
        .find_map(|number| store.begin_box(&id(number), &"p".repeat(1_000), "host", Tier::Jail, "w").err());
    let error = refused.unwrap();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    let before = store.unfinished().map(|(_, nobodys)| nobodys.len()).unwrap();
    pages(100_000);
    begin(&store, 250);
    assert_eq!(store.unfinished().unwrap().1.len(), before + 1);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_by_name() {
    let error = Store::open(Path::new("/proc/self")).unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }) && error.to_string().contains("/proc/self"), "{error}");
}

#[test]
fn a_row_of_another_start_of_the_machine_names_no_process_of_this_one() {
    let place = Place::new();
    let store = place.open();
    store.note(ResourceKind::Warden, "bb").unwrap();
    store.note_process(ResourceKind::Warden, "bb", std::process::id(), 1).unwrap();
    store.connection().execute("UPDATE resources SET boot = 'another'", []).unwrap();
    let Leftovers { killed, stuck, .. } =
        Leftovers::release(&store, std::path::Path::new("/nonexistent")).unwrap();
    assert_eq!((killed, stuck.len(), store.resources().unwrap().len()), (0, 0, 0));
    assert!(SystemTime::now() > UNIX_EPOCH);
}

#[test]
fn a_box_that_is_being_ended_or_gone_does_not_come_to_lie_on_disk() {
    let place = Place::new();
    let store = place.open();
    for number in 1..=3 {
        begin(&store, number);
        store.give_box(&row(number)).unwrap();
    }
    store.move_box(&id(2), BoxState::Ending).unwrap();
    store.end_box(&id(3), "killed").unwrap();
    for number in 1..=3 {
        store.lay_box(&id(number), &row(number).deadlines).unwrap();
    }
    let (owned, _) = store.unfinished().unwrap();
    let states: Vec<(BoxId, BoxState)> = owned.into_iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states.len(), 2, "{states:?}");
    assert!(states.contains(&(id(1), BoxState::OnDisk)) && states.contains(&(id(2), BoxState::Ending)));
    assert!(store.remembers(&Tenant::local(), &id(3)));
}
