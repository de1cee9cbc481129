//! Archives: what goes out comes back in, in the form that everybody's tar reads; and no archive reaches outside.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use blastbox_wire::agent::{Fault, FileAct, FileAsk, Parents};
use blastbox_wire::limits::MAX_LEFT_OUT;

use crate::files_rig::{Room, is_root};
use crate::rig::{Agent, Word};

fn pack(path: Vec<u8>) -> FileAct {
    FileAct::Pack { path }
}

fn unpack(path: Vec<u8>) -> FileAct {
    FileAct::Unpack { path, parents: Parents::Make, most_bytes: 1 << 30, most_entries: 100_000 }
}

/// Runs a tool of the host, or says that it is not there.
#[expect(clippy::disallowed_methods, reason = "the neighbour that the archives must suit")]
fn tool(program: &str, arguments: &[&str], input: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        blastbox_skips::skip_this(&format!("no {program} on this host"));
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.unwrap_or_default().to_vec();
    let writer = std::thread::spawn(move || drop(std::io::Write::write_all(&mut stdin, &input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    Some(output.stdout)
}

/// One header of ustar, made by hand, with a right sum.
fn header(name: &[u8], kind: u8, size: usize, link: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..107].copy_from_slice(b"0004755");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[136..147].copy_from_slice(b"14524300000");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.to_vec()
}

/// Name, kind, where it leads, content.
type Item<'a> = (&'a [u8], u8, &'a [u8], &'a [u8]);

fn archive(entries: &[Item<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, link, content) in entries {
        bytes.extend(header(name, *kind, content.len(), link));
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.extend([0; 1024]);
    bytes
}

fn furnish(room: &Room) {
    room.make("src/sub/empty");
    room.write("src/small", "small");
    room.write("src/sub/large", vec![b'L'; 1_000_001]);
    room.write("src/nothing", "");
    fs::set_permissions(room.at("src/small"), Permissions::from_mode(0o755)).unwrap();
    symlink("../small", room.at("src/sub/link")).unwrap();
    let deep = format!("src/{}", "long-name/".repeat(30));
    room.make(deep.trim_end_matches('/'));
    room.write(&format!("{deep}file"), "deep");
    room.write("src/line\nbreak", "odd");
}

#[test]
fn what_is_packed_comes_out_the_same() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    furnish(&room);
    let told = agent.act(pack(room.path("src")));
    let (amount, skipped) = told.done();
    assert_eq!((amount, skipped), (told.bytes.len() as u64, 0));
    assert_eq!(agent.upload(unpack(room.path("new/dst")), &told.bytes).done().0, 1_000_001 + 5 + 4 + 3);
    let same = |name: &str| {
        assert!(room.read(&format!("src/{name}")) == room.read(&format!("new/dst/{name}")), "{name}");
    };
    for name in ["small", "sub/large", "nothing", "line\nbreak", &format!("{}file", "long-name/".repeat(30))]
    {
        same(name);
    }
    assert_eq!(fs::read_link(room.at("new/dst/sub/link")).unwrap().to_str(), Some("../small"));
    assert!(room.at("new/dst/sub/empty").is_dir());
    let (old, new) =
        (fs::metadata(room.at("src/small")).unwrap(), fs::metadata(room.at("new/dst/small")).unwrap());
    assert_eq!((old.mode(), old.mtime()), (new.mode(), new.mtime()));
}

#[test]
fn the_hosts_tar_reads_ours_and_ours_reads_the_hosts() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    furnish(&room);
    let told = agent.act(pack(room.path("src")));
    room.make("theirs");
    let to = room.at("theirs").display().to_string();
    if tool("tar", &["-x", "-C", &to], Some(&told.bytes)).is_none() {
        return;
    }
    assert!(room.read("theirs/sub/large") == room.read("src/sub/large"));
    let from = room.at("src").display().to_string();
    for format in ["ustar", "pax", "gnu"] {
        let exclude = if format == "ustar" { "--exclude=long-name" } else { "--exclude=none" };
        let made = tool("tar", &["-c", "-C", &from, "--format", format, exclude, "."], None).unwrap();
        let to = room.path(&format!("back-{format}"));
        agent.upload(unpack(to), &made).done();
        assert!(room.read(&format!("back-{format}/sub/large")) == room.read("src/sub/large"), "{format}");
        if format != "ustar" {
            assert_eq!(room.read(&format!("back-{format}/{}file", "long-name/".repeat(30))), b"deep");
        }
    }
}

#[test]
fn one_file_is_packed_by_its_name() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.write("file", vec![b'x'; 100_000]);
    let told = agent.act(pack(room.path("file")));
    assert_eq!(told.bytes.len(), 512 + 100_352 + 1024);
    assert_eq!(&told.bytes[..5], b"file\0");
    assert_eq!(agent.act(pack(room.path("none"))).fault(), Some((Fault::NotFound, 2)));
    assert_eq!(agent.act(pack(b"/dev/zero".to_vec())).fault(), Some((Fault::NotRegular, 6)));
}

#[test]
fn what_cannot_be_read_is_left_out_and_counted() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.make("src");
    room.write("src/file", "x");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        room.at("src/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let mut left_out = 1;
    if is_root() {
        fs::write(room.at("src/secret"), "root's").unwrap();
        fs::set_permissions(room.at("src/secret"), Permissions::from_mode(0o600)).unwrap();
        left_out += 1;
    }
    let told = agent.act(pack(room.path("src")));
    assert_eq!(told.done(), (512 + 512 + 1024, left_out));
    let expected = if is_root() { &["pipe", "secret"][..] } else { &["pipe"] };
    assert_eq!(told.names(), expected);
}

#[test]
fn of_much_that_is_left_out_the_files_are_named_before_the_pipes() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    if !is_root() {
        return blastbox_skips::skip_this("only root can make files that the agent may not read");
    }
    room.make("src");
    for number in 0..40 {
        let pipe = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, room.at(&format!("src/pipe-{number}")), pipe, mode, 0).unwrap();
    }
    for number in 0..3 {
        let secret = room.at(&format!("src/secret-{number}"));
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    }
    let told = agent.act(pack(room.path("src")));
    assert_eq!(told.done(), (1024, 43));
    assert_eq!(told.entries.len(), MAX_LEFT_OUT);
    assert_eq!(told.names().iter().filter(|name| name.starts_with("secret")).count(), 3);
}

#[test]
fn a_file_that_shrinks_while_it_is_packed_keeps_its_announced_length() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.make("src");
    room.write("src/file", vec![b'x'; 300_000]);
    agent.ask(1, FileAsk::Begin { window: 10_000, act: pack(room.path("src")) });
    let Word::Chunk(first) = agent.word(1) else { panic!("no chunk") };
    fs::File::options().write(true).open(room.at("src/file")).unwrap().set_len(5).unwrap();
    let told = agent.follow_after_credit(1);
    assert_eq!(first.len() + told.bytes.len(), 512 + 300_032 + 1024);
}

#[test]
fn no_archive_reaches_outside_its_directory() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.make("dst");
    room.make("outside");
    room.write("outside/file", "kept");
    symlink("../outside", room.at("dst/there")).unwrap();
    let absolute = room.path("outside/new");
    let cases: [(&str, Vec<u8>, Fault); 12] = [
        ("a step up", archive(&[(b"../outside/new", b'0', b"", b"x")]), Fault::BadArchive),
        ("a step up inside", archive(&[(b"a/../../outside/new", b'0', b"", b"x")]), Fault::BadArchive),
        ("an absolute path", archive(&[(&absolute, b'0', b"", b"x")]), Fault::BadArchive),
        ("over a link that was there", archive(&[(b"there/new", b'0', b"", b"x")]), Fault::Loop),
        (
            "over a link of its own",
            archive(&[(b"own", b'2', b"../outside", b""), (b"own/new", b'0', b"", b"x")]),
            Fault::Loop,
        ),
        ("a hard link up", archive(&[(b"hard", b'1', b"../outside/file", b"")]), Fault::BadArchive),
        ("a hard link over a link", archive(&[(b"hard", b'1', b"there/file", b"")]), Fault::Loop),
        ("a device", archive(&[(b"null", b'3', b"", b"")]), Fault::BadArchive),
        ("a pipe", archive(&[(b"pipe", b'6', b"", b"")]), Fault::BadArchive),
        ("no name", archive(&[(b"", b'0', b"", b"x")]), Fault::BadArchive),
        ("a directory over a link", archive(&[(b"there", b'5', b"", b"")]), Fault::Exists),
        ("a link without a target", archive(&[(b"l", b'2', b"", b"")]), Fault::BadArchive),
    ];
    for (what, bytes, fault) in cases {
        let told = agent.upload(unpack(room.path("dst")), &bytes);
        assert_eq!(told.fault().map(|(fault, _)| fault), Some(fault), "{what}");
        assert_eq!(fs::read_dir(room.at("outside")).unwrap().count(), 1, "{what}");
        assert_eq!(room.read("outside/file"), b"kept", "{what}");
    }
}

#[test]
fn a_file_is_unpacked_in_place_of_a_link_and_not_through_it() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    room.make("dst");
    room.write("victim", "kept");
    let bytes =
        archive(&[(b"./a", b'2', b"../victim", b""), (b"./a", b'0', b"", b"new"), (b"b", b'1', b"a", b"")]);
    agent.upload(unpack(room.path("dst")), &bytes).done();
    assert_eq!(
        (room.read("victim"), room.read("dst/a"), room.read("dst/b")),
        (b"kept".to_vec(), b"new".to_vec(), b"new".to_vec())
    );
    let mode = fs::symlink_metadata(room.at("dst/a")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-id bits from archives");
}

#[test]
fn the_hosts_bounds_hold() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let bounded = |most_bytes, most_entries| FileAct::Unpack {
        path: room.path("dst"),
        parents: Parents::Make,
        most_bytes,
        most_entries,
    };
    let bytes = archive(&[(b"a", b'0', b"", b"12345"), (b"b", b'0', b"", b"12345")]);
    assert_eq!(agent.upload(bounded(10, 2), &bytes).done().0, 10);
    assert_eq!(agent.upload(bounded(9, 2), &bytes).fault(), Some((Fault::TooMany, 27)));
    assert_eq!(agent.upload(bounded(10, 1), &bytes).fault().map(|(fault, _)| fault), Some(Fault::TooMany));
    // A header may announce anything: it is refused before a byte of it is written.
    let huge = header(b"huge", b'0', 0o77777777777, b"");
    assert_eq!(agent.upload(bounded(1 << 30, 2), &huge).fault(), Some((Fault::TooMany, 27)));
}

#[test]
fn an_archive_that_is_none_or_not_whole_is_refused_and_leaves_no_half_file() {
    let (mut agent, room) = (Agent::begun(), Room::new());
    let whole = archive(&[(b"file", b'0', b"", &[b'x'; 5000])]);
    for bytes in [&whole[..1000], &whole[..100], b"not an archive at all", &[0xff; 2048][..]] {
        let told = agent.upload(unpack(room.path("dst")), bytes);
        assert_eq!(told.fault(), Some((Fault::BadArchive, 22)));
        assert!(!room.at("dst/file").exists());
    }
    // Without the zeros at its end, as a careless writer leaves it, it is whole all the same.
    agent.upload(unpack(room.path("dst")), &whole[..512 + 5120]).done();
    assert_eq!(room.read("dst/file").len(), 5000);
    agent.upload(unpack(room.path("empty")), b"").done();
}
