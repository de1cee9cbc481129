//! What happens beneath a directory is told, and a flood of it is told as such.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;

use blastbox_wire::agent::{Change, ChangeKind, Depth, EntryKind, Fault, FileAct, FileAsk};

use crate::files_rig::Room;
use crate::rig::{Agent, Word};

fn watch(path: Vec<u8>, depth: Depth) -> FileAct {
    FileAct::Watch { path, depth }
}

fn watching(room: &Room, depth: Depth) -> Agent {
    let mut agent = Agent::begun();
    agent.begin(1, watch(room.path(""), depth));
    assert!(matches!(agent.word(1), Word::Begun(entry) if entry.kind == EntryKind::Directory));
    agent
}

fn has(changes: &[Change], kind: ChangeKind, path: &str) -> bool {
    changes.iter().any(|change| change.kind == kind && change.path == path.as_bytes())
}

#[test]
fn every_kind_of_change_is_told_in_order() {
    let room = Room::new();
    let mut agent = watching(&room, Depth::One);
    let mut file = File::create(room.at("a")).unwrap();
    file.write_all(b"x").unwrap();
    fs::set_permissions(room.at("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(room.at("a"), room.at("b")).unwrap();
    fs::remove_file(room.at("b")).unwrap();
    drop(file);
    let changes = agent.changes_until(1, |seen| has(seen, ChangeKind::Removed, "b"));
    let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
    let expected = [
        ChangeKind::Created,
        ChangeKind::Written,
        ChangeKind::Attributes,
        ChangeKind::MovedFrom,
        ChangeKind::MovedTo,
        ChangeKind::Removed,
    ];
    let mut at = kinds.iter();
    assert!(expected.iter().all(|kind| at.any(|other| other == kind)), "{kinds:?}");
    let halves: Vec<_> =
        changes.iter().filter(|change| change.cookie != 0).map(|change| change.cookie).collect();
    assert!(halves.len() == 2 && halves[0] == halves[1]);
    agent.ask(1, FileAsk::Stop);
    assert_eq!(agent.follow(1).fault(), Some((Fault::Stopped, 125)));
}

#[test]
fn directories_that_appear_are_watched_with_what_is_in_them() {
    let room = Room::new();
    room.make("old/deep");
    let mut agent = watching(&room, Depth::All);
    File::create(room.at("old/deep/file")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "old/deep/file"));
    fs::create_dir_all(room.at("new/a/b")).unwrap();
    File::create(room.at("new/a/b/early")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "new/a/b/early"));
    File::create(room.at("new/a/b/late")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "new/a/b/late"));
    // A moved directory is known by its new name.
    fs::rename(room.at("new"), room.at("old/moved")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "old/moved/a/b/late"));
    File::create(room.at("old/moved/a/b/last")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "old/moved/a/b/last"));
}

#[test]
fn only_the_directory_itself_is_watched_when_that_was_asked() {
    let room = Room::new();
    room.make("sub");
    let mut agent = watching(&room, Depth::One);
    File::create(room.at("sub/unseen")).unwrap();
    File::create(room.at("seen")).unwrap();
    let changes = agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "seen"));
    assert!(changes.iter().all(|change| change.path != b"sub/unseen"));
}

#[test]
fn the_end_of_the_directory_is_the_end_of_the_watch() {
    let room = Room::new();
    room.make("gone");
    let mut agent = Agent::begun();
    agent.begin(1, watch(room.path("gone"), Depth::All));
    assert!(matches!(agent.word(1), Word::Begun(_)));
    fs::remove_dir(room.at("gone")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Ended, ""));
    agent.follow(1).done();
    assert_eq!(agent.act(watch(room.path("gone"), Depth::All)).fault(), Some((Fault::NotFound, 2)));
    room.write("file", "");
    assert_eq!(agent.act(watch(room.path("file"), Depth::One)).fault(), Some((Fault::NotDirectory, 20)));
}

#[test]
fn a_flood_is_told_as_lost_and_costs_only_the_credit() {
    let room = Room::new();
    let mut agent = Agent::begun();
    agent.ask(1, FileAsk::Begin { window: 2000, act: watch(room.path(""), Depth::All) });
    assert!(matches!(agent.word(1), Word::Begun(_)));
    for round in 0..30_000 {
        File::create(room.at(&format!("{}", round % 100))).unwrap();
        fs::remove_file(room.at(&format!("{}", round % 100))).unwrap();
    }
    agent.ask(1, FileAsk::Credit { bytes: 8_000_000 });
    let changes = agent.changes_until(1, |seen| seen.iter().any(|change| change.kind == ChangeKind::Lost));
    assert!(changes.len() < 60_000);
    // And it goes on afterwards, also in directories whose making was lost.
    fs::create_dir(room.at("after")).unwrap();
    File::create(room.at("after/file")).unwrap();
    agent.changes_until(1, |seen| has(seen, ChangeKind::Created, "after/file"));
}
