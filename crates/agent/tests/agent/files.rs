//! Each file operation, as a well-meaning host and an ordinary box have it.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use blastbox_wire::agent::{
    Coverage, Depth, EntryKind, Extent, Fault, FileAct, FileAsk, FileEnd, HostFrame, Links, Parents, Target,
    Writing,
};
use blastbox_wire::limits::{FILE_WINDOW, MAX_FILE_OPS};

use crate::files_rig::{Room, is_root, list, read, remove, rename, stat, write};
use crate::rig::{Agent, Said, Word};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap()).collect()
}

#[test]
fn a_file_is_read_whole_and_in_part() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let content = pattern(3_000_000);
    room.write("file", &content);
    let told = agent.act(read(room.path("file")));
    assert_eq!(told.done(), (3_000_000, 0));
    assert!(told.bytes == content);
    let begun = told.begun.unwrap();
    assert_eq!((begun.kind, begun.size), (EntryKind::File, 3_000_000));
    let part =
        FileAct::Read { path: room.path("file"), offset: 1_000_001, most: 70_000, extent: Extent::Seen };
    assert!(agent.act(part).bytes == content[1_000_001..1_070_001]);
    let beyond =
        FileAct::Read { path: room.path("file"), offset: u64::MAX, most: 5, extent: Extent::Growing };
    assert_eq!(agent.act(beyond).bytes, b"");
}

#[test]
fn a_read_keeps_within_its_credit() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", pattern(300_000));
    agent.ask(1, FileAsk::Begin { window: 100_000, act: read(room.path("file")) });
    assert!(matches!(agent.word(1), Word::Begun(_)));
    let mut got = 0;
    while got < 100_000 {
        let Word::Chunk(bytes) = agent.word(1) else { panic!("no chunk") };
        got += bytes.len();
    }
    assert_eq!(got, 100_000);
    // Nothing more comes; and other work goes on meanwhile.
    assert_eq!(agent.shell("echo alive").output, "alive\n");
    agent.ask(1, FileAsk::Credit { bytes: 1_000_000 });
    assert_eq!(agent.follow(1).bytes.len(), 200_000);
}

#[test]
fn a_file_is_written_in_each_way() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let content = pattern(2_000_000);
    for writing in [Writing::New, Writing::Truncate, Writing::Replace] {
        assert_eq!(agent.upload(write(room.path("a/b/file"), writing), &content).done(), (2_000_000, 0));
        assert!(room.read("a/b/file") == content, "{writing:?}");
    }
    let facts = std::fs::metadata(room.at("a/b/file")).unwrap();
    assert_eq!(facts.mode() & 0o7777, 0o640);
    if is_root() {
        assert_eq!((facts.uid(), facts.gid()), (1000, 1000));
        assert_eq!(std::fs::metadata(room.at("a")).unwrap().uid(), 1000);
    }
    assert_eq!(agent.upload(write(room.path("a/b/file"), Writing::Truncate), b"short").done(), (5, 0));
    assert_eq!(agent.upload(write(room.path("a/b/file"), Writing::Append), b"er").done(), (2, 0));
    assert_eq!(room.read("a/b/file"), b"shorter");
    let again = agent.upload(write(room.path("a/b/file"), Writing::New), b"no");
    assert_eq!(again.fault(), Some((Fault::Exists, 17)));
    let lost = FileAct::Write {
        path: room.path("no/such/place"),
        mode: 0o644,
        writing: Writing::Truncate,
        parents: Parents::Expect,
    };
    assert_eq!(agent.upload(lost, b"").fault(), Some((Fault::NotFound, 2)));
    assert_eq!(
        agent.upload(write(room.path("a"), Writing::Replace), b"x").fault(),
        Some((Fault::IsDirectory, 21))
    );
    assert_eq!(
        agent.upload(write(room.path("a"), Writing::Truncate), b"x").fault(),
        Some((Fault::IsDirectory, 21))
    );
}

#[test]
fn a_replaced_file_is_whole_or_the_old_one() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", "old");
    agent.begin(1, write(room.path("file"), Writing::Replace));
    agent.ask(1, FileAsk::Data { bytes: b"half".to_vec() });
    assert_eq!(agent.word(1), Word::Taken(4));
    assert_eq!(room.read("file"), b"old");
    assert_eq!(std::fs::read_dir(&room.0).unwrap().count(), 2);
    agent.ask(1, FileAsk::Stop);
    assert_eq!(agent.follow(1).fault(), Some((Fault::Stopped, 125)));
    assert_eq!(room.read("file"), b"old");
    assert_eq!(std::fs::read_dir(&room.0).unwrap().count(), 1, "the passing file is gone");
}

#[test]
fn a_directory_is_listed_to_its_depth() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.make("a/b/c");
    room.write("a/file", "four");
    symlink("a/file", room.at("link")).unwrap();
    symlink("nowhere", room.at("lost")).unwrap();
    assert_eq!(agent.act(list(room.path(""), 0)).names(), ["a", "link", "lost"]);
    let told = agent.act(list(room.path(""), 2));
    assert_eq!(told.names(), ["a", "a/b", "a/file", "link", "lost"]);
    assert_eq!(told.done(), (5, 0));
    let find = |name: &str| told.entries.iter().find(|entry| entry.path == name.as_bytes()).unwrap();
    assert_eq!((find("a/file").kind, find("a/file").size), (EntryKind::File, 4));
    let link = find("link").link.as_ref().unwrap();
    assert_eq!(link.text, b"a/file");
    let beyond = link.beyond.as_ref().unwrap();
    assert_eq!((beyond.kind, beyond.path.as_slice()), (EntryKind::File, room.path("a/file").as_slice()));
    assert_eq!(find("lost").link.as_ref().unwrap().beyond, None);
    assert_eq!(agent.act(list(room.path(""), 99)).names().len(), 6);
    let cut = agent.act(FileAct::List { path: room.path(""), depth: 9, most: 2 });
    assert_eq!(cut.end, FileEnd::Finished { amount: 2, skipped: 0, coverage: Coverage::Cut });
    assert_eq!(agent.act(list(room.path("a/file"), 1)).fault(), Some((Fault::NotDirectory, 20)));
    assert_eq!(agent.act(list(room.path("b"), 1)).fault(), Some((Fault::NotFound, 2)));
}

#[test]
fn ten_thousand_entries_come_in_batches_within_the_window() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    for number in 0..10_000 {
        std::fs::File::create(room.at(&format!("{number}"))).unwrap();
    }
    agent.ask(1, FileAsk::Begin { window: 20_000, act: list(room.path(""), 1) });
    let told = agent.follow(1);
    assert_eq!(told.done(), (10_000, 0));
    assert_eq!(told.entries.len(), 10_000);
}

#[test]
fn an_entry_is_told_as_it_is() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", "12345");
    std::fs::set_permissions(room.at("file"), std::fs::Permissions::from_mode(0o4751)).unwrap();
    symlink("file", room.at("link")).unwrap();
    let facts = std::fs::metadata(room.at("file")).unwrap();
    let told = agent.act(stat(room.path("file")));
    let entry = &told.entries[0];
    assert_eq!((entry.kind, entry.size, entry.mode), (EntryKind::File, 5, 0o4751));
    assert_eq!((entry.uid, entry.gid), (facts.uid(), facts.gid()));
    assert_eq!(entry.modified_nanos, facts.mtime() * 1_000_000_000 + facts.mtime_nsec());
    assert_eq!(entry.path, room.path("file"));
    assert_eq!(agent.act(stat(room.path("link"))).entries[0].kind, EntryKind::Link);
    let follow = FileAct::Stat { path: room.path("link"), links: Links::Follow };
    assert_eq!(agent.act(follow).entries[0].kind, EntryKind::File);
    assert_eq!(agent.act(stat(b"/".to_vec())).entries[0].kind, EntryKind::Directory);
    assert_eq!(agent.act(stat(room.path("none"))).fault(), Some((Fault::NotFound, 2)));
}

#[test]
fn directories_are_made_with_those_above() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let make = |path, parents| FileAct::MakeDirectory { path, mode: 0o777, parents };
    assert_eq!(agent.act(make(room.path("a/b/../c/d"), Parents::Make)).done(), (1, 0));
    assert_eq!(std::fs::metadata(room.at("a/c/d")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(agent.act(make(room.path("a/c/d/"), Parents::Make)).fault(), Some((Fault::Exists, 17)));
    assert_eq!(agent.act(make(room.path("x/y"), Parents::Expect)).fault(), Some((Fault::NotFound, 2)));
}

#[test]
fn an_entry_is_moved() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("one", "1");
    room.write("two", "2");
    assert_eq!(agent.act(rename(room.path("one"), room.path("deep/er/one"))).done(), (1, 0));
    assert_eq!(room.read("deep/er/one"), b"1");
    let fresh = FileAct::Move {
        from: room.path("deep/er/one"),
        to: room.path("two"),
        target: Target::Fresh,
        parents: Parents::Expect,
    };
    assert_eq!(agent.act(fresh).fault(), Some((Fault::Exists, 17)));
    assert_eq!(agent.act(rename(room.path("deep/er/one"), room.path("two"))).done(), (1, 0));
    assert_eq!(room.read("two"), b"1");
    assert_eq!(agent.act(rename(room.path("gone"), room.path("x/y"))).fault(), Some((Fault::NotFound, 2)));
    assert!(!room.at("x").exists(), "nothing is made for a move that cannot be");
    assert_eq!(
        agent.act(rename(room.path("deep"), room.path("deep/self"))).fault(),
        Some((Fault::BadPath, 22))
    );
}

#[test]
fn an_entry_is_removed_with_everything_in_it() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    for number in 0..500 {
        room.make(&format!("tree/{}/{}", number % 7, number % 50));
        room.write(&format!("tree/{}/{}/{number}", number % 7, number % 50), "x");
    }
    room.write("kept", "kept");
    symlink(room.at("kept"), room.at("tree/link")).unwrap();
    let alone = FileAct::Remove { path: room.path("tree"), depth: Depth::One };
    assert_eq!(agent.act(alone).fault(), Some((Fault::NotEmpty, 39)));
    let (amount, skipped) = agent.act(remove(room.path("tree"))).done();
    assert!(amount > 500 && skipped == 0, "{amount}");
    assert!(!room.at("tree").exists());
    assert_eq!(room.read("kept"), b"kept");
    assert_eq!(agent.act(remove(room.path("tree"))).fault(), Some((Fault::NotFound, 2)));
    assert_eq!(agent.act(remove(room.path("kept"))).done(), (1, 0));
}

#[test]
fn many_operations_run_at_once_and_one_more_is_refused() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", pattern(200_000));
    let most = u32::try_from(MAX_FILE_OPS).unwrap();
    for op in 0..most {
        agent.ask(op, FileAsk::Begin { window: 1000, act: read(room.path("file")) });
    }
    agent.begin(most, stat(room.path("file")));
    let mut done = 0;
    while done <= most {
        match agent.next() {
            Said::File(op, Word::Done(FileEnd::Failed { fault, errno })) => {
                assert_eq!((op, fault, errno), (most, Fault::TooMany, 11));
                done += 1;
            }
            Said::File(op, Word::Done(FileEnd::Finished { amount, .. })) => {
                assert!(op < most && amount == 200_000);
                done += 1;
            }
            Said::File(op, Word::Chunk(bytes)) => {
                agent.ask(op, FileAsk::Credit { bytes: u32::try_from(bytes.len() * 2).unwrap() });
            }
            Said::File(_, Word::Begun(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_comes_after_the_end_of_an_operation_is_no_mistake() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    assert_eq!(
        agent.upload(write(room.path("no\0"), Writing::New), b"data").fault(),
        Some((Fault::BadPath, 22))
    );
    for ask in
        [FileAsk::Stop, FileAsk::DataEnd, FileAsk::Credit { bytes: 1 }, FileAsk::Data { bytes: vec![1] }]
    {
        agent.ask(9, ask);
    }
    assert_eq!(agent.act(stat(room.path(""))).entries[0].kind, EntryKind::Directory);
}

#[test]
fn a_host_that_breaks_the_protocol_of_files_is_left() {
    let room = Room::new();
    room.write("file", "x");
    let begin = |op, act| (op, FileAsk::Begin { window: 0, act });
    let new = |name| begin(1, write(room.path(name), Writing::New));
    let breaches = [
        vec![new("a"), new("b")],
        vec![new("c"), (1, FileAsk::DataEnd), (1, FileAsk::Data { bytes: vec![0] })],
        vec![begin(1, read(room.path("file"))), (1, FileAsk::Data { bytes: vec![0] })],
        vec![begin(1, read(room.path("file"))), (1, FileAsk::DataEnd)],
    ];
    for breach in breaches {
        let mut agent = Agent::begun();
        // All at once, so that the agent cannot use what was sent before it hears the rest.
        let frames = breach.iter().map(|(op, ask)| HostFrame::File { op: *op, ask: ask.clone() }.encode());
        agent.stream.write_all(&frames.collect::<Vec<_>>().concat()).unwrap();
        let faulted = std::iter::from_fn(|| agent.try_next().ok().flatten())
            .any(|said| matches!(&said, Said::Fault(text) if text.contains("broke the protocol")));
        assert!(faulted, "{breach:?}");
    }
}

#[test]
fn a_host_that_sends_more_than_its_window_is_left() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    // What the host does not read fills the way back, and then nothing is taken any more.
    room.write("sparse", "");
    std::fs::File::options().write(true).open(room.at("sparse")).unwrap().set_len(1 << 40).unwrap();
    agent.ask(1, FileAsk::Begin { window: u32::MAX, act: read(room.path("sparse")) });
    std::thread::sleep(std::time::Duration::from_millis(300));
    agent.begin(2, write(room.path("file"), Writing::New));
    for _ in 0..=FILE_WINDOW / 65_536 {
        agent.ask(2, FileAsk::Data { bytes: vec![0; 65_536] });
    }
    assert_eq!(agent.ended().code(), Some(1));
}
