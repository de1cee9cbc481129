//! Archives as a hostile box would write them: nothing is made outside.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

static NEXT: AtomicU32 = AtomicU32::new(0);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("blastbox-cp-{}-{number}", std::process::id()));
        fs::create_dir_all(path.join("to")).unwrap();
        fs::write(path.join("outside"), "untouched").unwrap();
        Self(path)
    }

    /// Bytes, and how much was left out.
    fn unpack(&self, archive: &[u8], limit: u64) -> Result<(u64, u64), DaemonProblem> {
        let target = Target::open(&self.0.join("to"), None, true, 0, limit)?;
        let (to, pieces) = mpsc::channel(archive.len() + 1);
        for piece in archive.chunks(700) {
            to.try_send(Some(piece.to_vec())).unwrap();
        }
        to.try_send(None).unwrap();
        target.fill(pieces, &Counter::default()).map(|(bytes, left_out)| (bytes, left_out.count()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// One entry, with a header that says anything.
fn entry(kind: u8, path: &str, link: &str, content: &[u8]) -> Vec<u8> {
    entry_with(0o4755, kind, path, link, content)
}

fn entry_with(mode: u32, kind: u8, path: &str, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut all = block.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().div_ceil(512) * 512, 0);
    all
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

#[test]
fn what_is_honest_is_made_and_loses_its_set_id_bits() {
    let scratch = Scratch::new();
    let honest = archive(&[
        entry(b'5', "d/", "", b""),
        entry(b'0', "d/f", "", b"content"),
        entry(b'0', "made/on/the/way", "", b"x"),
        entry(b'2', "d/up", "../made/on", b""),
    ]);
    assert_eq!(scratch.unpack(&honest, 1 << 20).unwrap(), (8, 0));
    let to = scratch.0.join("to");
    assert_eq!(fs::read_to_string(to.join("d/f")).unwrap(), "content");
    assert_eq!(fs::metadata(to.join("d/f")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(to.join("d/up/the/way")).unwrap(), "x");
    // A second time over the first: replaced, not refused.
    assert_eq!(scratch.unpack(&honest, 1 << 20).unwrap(), (8, 0));
}

#[test]
fn nothing_is_made_outside() {
    for hostile in [
        vec![entry(b'0', "/tmp/x", "", b"x")],
        vec![entry(b'0', "../outside", "", b"x")],
        vec![entry(b'0', "a/../../outside", "", b"x")],
        vec![entry(b'1', "hard", "../outside", b"")],
        vec![entry(b'1', "hard", "d", b"")],
        vec![entry(b'3', "device", "", b"")],
        vec![entry(b'6', "pipe", "", b"")],
        vec![entry(b'0', "", "", b"x")],
    ] {
        let scratch = Scratch::new();
        assert!(scratch.unpack(&archive(&hostile), 1 << 20).is_err(), "{hostile:?}");
        assert_eq!(fs::read_to_string(scratch.0.join("outside")).unwrap(), "untouched");
        assert_eq!(fs::read_dir(scratch.0.join("to")).unwrap().count(), 0);
    }
}

#[test]
fn a_link_that_leads_out_is_left_out_and_one_that_was_there_is_not_followed() {
    let scratch = Scratch::new();
    let links = archive(&[
        entry(b'2', "absolute", "/etc/passwd", b""),
        entry(b'2', "up", "..", b""),
        entry(b'2', "d/up", "../../outside", b""),
        entry(b'5', "a/b/", "", b""),
        entry(b'2', "a/b/root", "../..", b""),
        entry(b'2', "trick", "a/b/root/../outside", b""),
    ]);
    assert_eq!(scratch.unpack(&links, 1 << 20).unwrap(), (0, 4));
    // Through a link of the archive, and through one that the caller had there.
    let through = archive(&[entry(b'2', "l", "a", b""), entry(b'0', "l/x", "", b"x")]);
    assert!(scratch.unpack(&through, 1 << 20).is_err());
    symlink("..", scratch.0.join("to/mine")).unwrap();
    assert!(scratch.unpack(&archive(&[entry(b'0', "mine/outside", "", b"x")]), 1 << 20).is_err());
    symlink("../outside", scratch.0.join("to/file")).unwrap();
    assert_eq!(scratch.unpack(&archive(&[entry(b'0', "file", "", b"new")]), 1 << 20).unwrap(), (3, 0));
    assert_eq!(fs::read_to_string(scratch.0.join("outside")).unwrap(), "untouched");
    assert_eq!(fs::read_to_string(scratch.0.join("to/file")).unwrap(), "new");
}

#[test]
fn how_much_comes_is_bounded_and_a_torn_archive_is_none() {
    let scratch = Scratch::new();
    let big = archive(&[entry(b'0', "big", "", &[7; 5000])]);
    assert!(scratch.unpack(&big, 4000).is_err());
    assert!(scratch.unpack(&big[..2000], 1 << 20).is_err());
    assert!(
        scratch
            .unpack(
                b"no archive at all, but long enough to be taken for a header".repeat(20).as_slice(),
                1 << 20
            )
            .is_err()
    );
    let target = Target::open(&scratch.0.join("to/f"), Some(b"x"), false, 0o4711, 100).unwrap();
    let (to, pieces) = mpsc::channel(4);
    to.try_send(Some(b"half".to_vec())).unwrap();
    drop(to);
    assert!(matches!(target.fill(pieces, &Counter::default()), Err(DaemonProblem::CopyBroke)));
    assert!(!scratch.0.join("to/f").exists(), "half a file is worse than none");
    assert!(!scratch.0.join("to/big").exists(), "in a directory as well");
}

#[test]
fn whoever_is_killed_under_way_leaves_no_half_file() {
    let scratch = Scratch::new();
    let held = fs::File::open(scratch.0.join("to")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    if crate::fresh_file::without_name(held.as_fd(), Path::new("."), mode).unwrap().is_none() {
        return blastbox_skips::skip_this(
            "the file system of the temporary directory has no files without a name",
        );
    }
    let directory = archive(&[entry(b'0', "d", "", &[7; 5000])])[..2000].to_vec();
    for (name, directory, half) in [("f", false, b"half".to_vec()), ("t", true, directory)] {
        let place = scratch.0.join("to").join(name);
        let target = Target::open(&place, None, directory, 0o600, 1 << 20).unwrap();
        let (to, pieces) = mpsc::channel(4);
        let counter = Counter::default();
        let seen = counter.clone();
        let length = half.len();
        let filling = std::thread::spawn(move || target.fill(pieces, &counter));
        to.try_send(Some(half)).unwrap();
        while seen.bytes() < u64::try_from(length).unwrap() {
            std::thread::yield_now();
        }
        // What a kill would leave now is what is there now.
        let there = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
        assert_eq!((there(&place), there(&scratch.0.join("to"))), (0, usize::from(directory)), "{name}");
        drop(to);
        filling.join().unwrap().unwrap_err();
    }
}

#[test]
fn nothing_that_others_may_write_is_made_whatever_the_box_says() {
    let scratch = Scratch::new();
    let open = archive(&[
        entry_with(0o7777, b'5', "d/", "", b""),
        entry_with(0o7777, b'0', "d/f", "", b"content"),
        entry_with(0o444, b'0', "d/read-only", "", b"content"),
    ]);
    scratch.unpack(&open, 1 << 20).unwrap();
    let mode = |path: &str| fs::metadata(scratch.0.join("to").join(path)).unwrap().mode() & 0o7777;
    for path in ["d", "d/f"] {
        assert_eq!((mode(path) & 0o7022, mode(path) & 0o700), (0, 0o700), "{path}: {:o}", mode(path));
    }
    assert_eq!(mode("d/read-only") & 0o7333, 0);
    // The same for a file that comes alone.
    let target = Target::open(&scratch.0.join("to/one"), None, false, 0o4777, 1 << 20).unwrap();
    let (to, pieces) = mpsc::channel(2);
    to.try_send(Some(b"content".to_vec())).unwrap();
    to.try_send(None).unwrap();
    target.fill(pieces, &Counter::default()).unwrap();
    assert_eq!(mode("one") & 0o7022, 0, "{:o}", mode("one"));
}
