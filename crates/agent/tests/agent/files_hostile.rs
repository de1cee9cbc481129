//! What a payload does so that the agent waits for ever, opens what it may not, or never ends; and what a host may not
//! reach even if it asks.

use std::fs::{File, Permissions};
use std::io::{Seek, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blastbox_wire::agent::{EntryKind, Extent, Fault, FileAct, FileAsk, FileEnd, Writing};
use rustix::fs::{CWD, Mode};

use crate::files_rig::{Room, bytes, is_root, list, read, remove, stat, write};
use crate::rig::{Agent, Word};

fn fifo(room: &Room, name: &str) {
    rustix::fs::mknodat(CWD, room.at(name), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .unwrap();
    room.give(name);
}

#[test]
fn a_pipe_or_a_device_is_neither_read_nor_written() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    fifo(&room, "pipe");
    symlink("pipe", room.at("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(room.at("socket")).unwrap();
    for path in [
        room.path("pipe"),
        room.path("link"),
        room.path("socket"),
        b"/dev/zero".to_vec(),
        b"/dev/tty".to_vec(),
    ] {
        assert_eq!(agent.act(read(path.clone())).fault(), Some((Fault::NotRegular, 6)), "{path:?}");
        for writing in [Writing::Truncate, Writing::Append] {
            let told = agent.upload(write(path.clone(), writing), b"x");
            assert_eq!(told.fault(), Some((Fault::NotRegular, 6)), "{path:?}");
        }
    }
    let told = agent.act(list(room.path(""), 1));
    let kinds = told.entries.iter().filter(|entry| entry.kind == EntryKind::Other).count();
    assert_eq!(kinds, 2);
    // Removing is not opening.
    assert_eq!(agent.act(remove(room.path("pipe"))).done(), (1, 0));
}

#[test]
fn the_agent_itself_is_not_a_file() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    symlink("/proc/self/mem", room.at("memory")).unwrap();
    symlink("/proc/self/root/etc/passwd", room.at("root")).unwrap();
    let agent_mem = format!("/proc/{}/mem", agent.child.id()).into_bytes();
    for path in [room.path("memory"), b"/proc/self/mem".to_vec(), b"/proc/self/environ".to_vec(), agent_mem] {
        let told = agent.act(read(path.clone()));
        assert!(
            matches!(told.fault(), Some((Fault::NotRegular | Fault::NotPermitted, _))),
            "{path:?} {told:?}"
        );
        let told = agent.upload(write(path.clone(), Writing::Append), b"x");
        assert!(
            matches!(told.fault(), Some((Fault::NotRegular | Fault::NotPermitted, _))),
            "{path:?} {told:?}"
        );
    }
    assert_eq!(agent.act(read(room.path("root"))).fault(), Some((Fault::Loop, 40)));
    assert_eq!(agent.act(read(b"/proc/self/fd/0".to_vec())).fault(), Some((Fault::Loop, 40)));
}

#[test]
fn what_the_payload_may_not_the_agent_does_not() {
    if !is_root() {
        return blastbox_skips::skip_this("not root, so agent and payload are the same user");
    }
    let (mut agent, room) = (Agent::begun(), Room::new());
    // Of root alone, as the agent's own user is; the neighbour is the payload's.
    std::fs::write(room.at("secret"), "root's").unwrap();
    std::fs::set_permissions(room.at("secret"), Permissions::from_mode(0o600)).unwrap();
    std::fs::create_dir(room.at("vault")).unwrap();
    std::fs::write(room.at("vault/file"), "x").unwrap();
    std::fs::set_permissions(room.at("vault"), Permissions::from_mode(0o700)).unwrap();
    room.write("own", "payload's");
    assert_eq!(agent.act(read(room.path("own"))).bytes, b"payload's");
    assert_eq!(agent.act(read(room.path("secret"))).fault(), Some((Fault::NotPermitted, 13)));
    for writing in [Writing::Truncate, Writing::Append] {
        let told = agent.upload(write(room.path("secret"), writing), b"x");
        assert_eq!(told.fault(), Some((Fault::NotPermitted, 13)));
    }
    for act in [list(room.path("vault"), 1), stat(room.path("vault/file")), remove(room.path("vault"))] {
        assert_eq!(agent.act(act).fault(), Some((Fault::NotPermitted, 13)));
    }
    let told = agent.act(list(room.path(""), 5));
    assert_eq!(told.done(), (3, 1), "the vault is told, and what is in it is not");
    assert_eq!(
        agent.upload(write(b"/etc/blastbox-test".to_vec(), Writing::New), b"x").fault(),
        Some((Fault::NotPermitted, 13))
    );
    // And its own powers are back after each of them.
    let told =
        agent.run(crate::rig::command(1, blastbox_wire::agent::Io::Pipes, &["/usr/bin/id", "-u"])).unwrap();
    assert_eq!(told.output, "1000\n");
    assert_eq!(std::fs::read(room.at("secret")).unwrap(), b"root's");
}

#[test]
fn a_file_that_grows_for_ever_is_read_to_the_size_it_had() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("log", vec![b'x'; 100_000]);
    agent.ask(1, FileAsk::Begin { window: 1000, act: read(room.path("log")) });
    assert!(matches!(agent.word(1), Word::Begun(entry) if entry.size == 100_000));
    let mut log = File::options().append(true).open(room.at("log")).unwrap();
    log.write_all(&[b'y'; 50_000]).unwrap();
    let told = agent.follow_after_credit(1);
    assert_eq!(told.done().0, 100_000);
    let growing =
        FileAct::Read { path: room.path("log"), offset: 0, most: u64::MAX, extent: Extent::Growing };
    assert_eq!(agent.act(growing).done().0, 150_000);
}

#[test]
fn a_file_that_is_replaced_or_cut_while_it_is_read_stays_what_was_opened() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", vec![b'x'; 100_000]);
    agent.ask(1, FileAsk::Begin { window: 1000, act: read(room.path("file")) });
    assert!(matches!(agent.word(1), Word::Begun(_)));
    std::fs::remove_file(room.at("file")).unwrap();
    symlink("/etc/shadow", room.at("file")).unwrap();
    let told = agent.follow_after_credit(1);
    assert_eq!(told.done().0, 100_000);
    assert!(told.bytes.iter().all(|&byte| byte == b'x'));

    room.write("other", vec![b'x'; 100_000]);
    agent.ask(2, FileAsk::Begin { window: 1000, act: read(room.path("other")) });
    assert!(matches!(agent.word(2), Word::Begun(_)));
    File::options().write(true).open(room.at("other")).unwrap().set_len(10).unwrap();
    assert!(agent.follow_after_credit(2).done().0 <= 1000, "it ends where the file does");
}

#[test]
fn a_terabyte_of_nothing_costs_credit_and_no_memory() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("sparse", "");
    let mut file = File::options().write(true).open(room.at("sparse")).unwrap();
    file.seek(SeekFrom::Start((1 << 40) - 1)).unwrap();
    file.write_all(b"!").unwrap();
    agent.begin(1, read(room.path("sparse")));
    assert!(matches!(agent.word(1), Word::Begun(entry) if entry.size == 1 << 40));
    for _ in 0..100 {
        let Word::Chunk(bytes) = agent.word(1) else { panic!("no chunk") };
        assert!(bytes.iter().all(|&byte| byte == 0));
        agent.ask(1, FileAsk::Credit { bytes: u32::try_from(bytes.len()).unwrap() });
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 16 * 1024, "{kib} KiB");
    agent.ask(1, FileAsk::Stop);
    loop {
        match agent.word(1) {
            Word::Chunk(_) => {}
            Word::Done(end) => break assert!(matches!(end, FileEnd::Failed { fault: Fault::Stopped, .. })),
            other => panic!("{other:?}"),
        }
    }
    let tail =
        FileAct::Read { path: room.path("sparse"), offset: (1 << 40) - 1, most: 9, extent: Extent::Seen };
    assert_eq!(agent.act(tail).bytes, b"!");
}

#[test]
fn names_may_be_anything_that_a_kernel_takes() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let names: [&[u8]; 5] = [b"line\nbreak", b"\xff\xfe\x80", b"\x1b[31m", b" ", b"-rf"];
    for name in names {
        let path = bytes(&room.0.join(std::ffi::OsStr::from_bytes(name)));
        assert_eq!(agent.upload(write(path.clone(), Writing::Replace), name).done().0, name.len() as u64);
        assert_eq!(agent.act(read(path)).bytes, name);
    }
    let told = agent.act(list(room.path(""), 1));
    let mut listed: Vec<_> = told.entries.iter().map(|entry| entry.path.as_slice()).collect();
    listed.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for (path, fault) in [
        (b"".to_vec(), Fault::BadPath),
        (b"/tmp/a\0b".to_vec(), Fault::BadPath),
        (vec![b'/'; 4096], Fault::NameTooLong),
        ([b"/tmp/".as_slice(), &[b'x'; 300]].concat(), Fault::NameTooLong),
    ] {
        assert_eq!(agent.act(stat(path)).fault().unwrap().0, fault);
    }
    assert_eq!(agent.act(remove(b"/".to_vec())).fault().unwrap().0, Fault::BadPath);
    assert_eq!(agent.act(remove(room.path(".."))).fault().unwrap().0, Fault::BadPath);
}

#[test]
fn a_directory_1500_deep_is_listed_and_removed() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let mut at = rustix::fs::open(&room.0, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    let long = "d".repeat(200);
    for level in 0..1500 {
        // Short names so far that they can be listed; long ones so that no path reaches the bottom.
        let name = if level < 1000 { "d" } else { &long };
        rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        if is_root() {
            let (user, group) = (rustix::fs::Uid::from_raw(1000), rustix::fs::Gid::from_raw(1000));
            rustix::fs::chownat(&at, name, Some(user), Some(group), rustix::fs::AtFlags::empty()).unwrap();
        }
        for file in 0..2 {
            rustix::fs::mknodat(
                &at,
                format!("{file}"),
                rustix::fs::FileType::RegularFile,
                Mode::from_raw_mode(0o644),
                0,
            )
            .unwrap();
        }
        at = rustix::fs::openat(&at, name, rustix::fs::OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(at);
    let told = agent.act(list(room.path(""), u32::MAX));
    let FileEnd::Finished { amount, skipped, .. } = told.end else { panic!("{:?}", told.end) };
    assert!(amount > 3000 && skipped > 0, "{amount} {skipped}");
    assert_eq!(agent.act(remove(room.path("d"))).done(), (1499 * 3 + 1, 0));
    assert_eq!(agent.act(list(room.path(""), 1)).names(), ["0", "1"]);
}

#[test]
fn a_directory_that_becomes_a_link_under_way_leads_nowhere() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let outside = Room::new();
    outside.make("precious");
    outside.write("precious/file", "kept");
    room.make("tree/swap");
    room.make("aside");
    // The agent may not move the precious directory; whoever swaps may, as fast as it can.
    let (swapping, done) = (room.at("tree/swap"), Arc::new(AtomicBool::new(false)));
    let (precious, aside, finished) = (outside.at("precious"), room.at("aside/real"), Arc::clone(&done));
    let swapper = std::thread::spawn(move || {
        while !finished.load(Ordering::Relaxed) {
            drop(std::fs::rename(&swapping, &aside));
            drop(symlink(&precious, &swapping));
            drop(std::fs::remove_file(&swapping));
            drop(std::fs::rename(&aside, &swapping));
        }
    });
    for _ in 0..300 {
        let told = agent.act(list(room.path("tree"), 9));
        assert!(told.names().iter().all(|name| !name.ends_with("file")), "{:?}", told.names());
    }
    for _ in 0..100 {
        // Whoever swaps may be in the way.
        drop(std::fs::create_dir_all(room.at("tree/swap")));
        drop(std::fs::write(room.at("tree/swap/inner"), "x"));
        agent.act(remove(room.path("tree")));
        assert_eq!(outside.read("precious/file"), b"kept");
    }
    done.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
}

#[test]
fn a_file_larger_than_the_box_allows_is_refused_and_the_agent_lives() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let pid = rustix::process::Pid::from_raw(i32::try_from(agent.child.id()).unwrap());
    let limit = rustix::process::Rlimit { current: Some(100_000), maximum: Some(100_000) };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    let told = agent.upload(write(room.path("file"), Writing::Replace), &vec![0; 300_000]);
    assert_eq!(told.fault(), Some((Fault::TooLarge, 27)));
    assert_eq!(std::fs::read_dir(&room.0).unwrap().count(), 0, "nothing half written stays");
    assert_eq!(agent.upload(write(room.path("file"), Writing::Replace), &vec![0; 100_000]).done().0, 100_000);
}

#[test]
fn a_busy_operation_starves_nobody() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    for number in 0..20_000 {
        File::create(room.at(&format!("{number}"))).unwrap();
    }
    room.make("tree");
    agent.begin(1, remove(room.path("")));
    // The command runs and ends although the removal has much to do; both answer in whatever order.
    agent.exec(2, blastbox_wire::agent::Io::Pipes, &["/bin/true"]);
    let (mut exited, mut removed) = (false, false);
    while !(exited && removed) {
        match agent.next() {
            crate::rig::Said::Exited(2, ..) => exited = true,
            crate::rig::Said::File(1, Word::Done(FileEnd::Finished { .. } | FileEnd::Failed { .. })) => {
                removed = true;
            }
            crate::rig::Said::Started(2, _) => {}
            other => panic!("{other:?}"),
        }
    }
}
