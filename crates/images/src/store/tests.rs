//! A store: what is put in, found, held, checked and taken away, and what a failure leaves.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use blastbox_wire::event::Hash;

use super::*;
use crate::oci::Platform;
use crate::testing::{Archive, Scratch};
use crate::tree::Caps;

mod layouts;
mod steps;

/// A store and a small root file system, gone at the end.
struct Room {
    scratch: Scratch,
    store: Store,
}

impl Room {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let store = Store::open(&scratch.path().join("store")).unwrap();
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("usr/bin/sh"), "#!").unwrap();
        fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        fs::write(root.join("etc/resolv.conf"), "").unwrap();
        fs::set_permissions(root.join("usr/bin/sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        Self { scratch, store }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path().join("root")
    }

    fn import(&self, path: &Path, name: &str) -> Result<Kept, StoreError> {
        self.import_with(path, name, Caps::default())
    }

    fn import_with(&self, path: &Path, name: &str, caps: Caps) -> Result<Kept, StoreError> {
        let name = name.parse().unwrap();
        let platform = Platform::here();
        self.store.import(&Import { path, name: Some(&name), tag: None, platform, caps }, &mut |_| {})
    }

    fn archive(&self, archive: &Archive) -> PathBuf {
        let path = self.scratch.path().join("image.tar");
        fs::write(&path, archive.finish()).unwrap();
        path
    }

    fn count(&self, room: &str) -> usize {
        fs::read_dir(self.store.path().join(room)).unwrap().count()
    }
}

fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

#[test]
fn a_directory_and_an_archive_of_it_are_the_same_image() {
    let room = Room::new("same");
    let one = room.import(&room.root(), "one").unwrap();
    assert!(!one.known);
    let archive = Archive::new()
        .file("usr/bin/sh", 0o755, b"#!")
        .file("etc/hosts", 0o644, b"127.0.0.1 localhost\n")
        .file("etc/resolv.conf", 0o644, b"")
        .link("bin", "usr/bin");
    let two = room.import(&room.archive(&archive), "two").unwrap();
    assert!(two.known);
    assert_eq!(one.facts.digest, two.facts.digest);
    assert_eq!((room.count("trees"), room.count("names"), room.count("drafts")), (1, 2, 0));
    // One bit of one file is another image.
    fs::set_permissions(room.root().join("usr/bin/sh"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_ne!(room.import(&room.root(), "three").unwrap().facts.digest, one.facts.digest);
}

#[test]
fn an_image_is_found_by_name_by_digest_and_by_both() {
    let room = Room::new("found");
    let digest = room.import(&room.root(), "base").unwrap().facts.digest;
    for text in ["base", &digest.to_string(), &format!("base@{digest}")] {
        assert_eq!(room.store.find(&image(text)).unwrap().digest(), digest, "{text}");
    }
    assert_eq!(
        crate::Image::find("base", Some(&room.store)).unwrap().label(),
        format!("base@{digest}"),
        "a name alone may mean something else tomorrow"
    );
    let other = Hash::of([b"other".as_slice()]);
    let refused = room.store.find(&image(&format!("base@{other}"))).unwrap_err();
    assert_eq!(refused.code(), "image_digest_mismatch");
    let unknown = room.store.find(&image("bas")).unwrap_err();
    assert_eq!(unknown.code(), "image_unknown");
    assert!(unknown.to_string().contains("host, base"), "{unknown}");
    assert_eq!(room.store.find(&image(&other.to_string())).unwrap_err().code(), "image_unknown");
}

#[test]
fn a_tree_that_was_changed_is_told_by_its_digest() {
    let room = Room::new("changed");
    let digest = room.import(&room.root(), "base").unwrap().facts.digest;
    assert_eq!(room.store.verify(&image("base"), &mut |_| {}).unwrap().digest, digest);
    let file = room.store.path().join("trees").join(digest.to_string().replace(':', "-")).join("usr/bin/sh");
    fs::write(&file, "#?").unwrap();
    assert_eq!(room.store.verify(&image("base"), &mut |_| {}).unwrap_err().code(), "image_digest_mismatch");
}

#[test]
fn nothing_is_taken_away_that_a_box_needs_which_does_not_run() {
    let room = Room::new("needed");
    let digest = room.import(&room.root(), "base").unwrap().facts.digest;
    let needed = Needs::from([(digest, vec!["bx_one".to_owned()])]);
    let refused = room.store.remove_but(&image("base"), || Ok::<_, StoreError>(needed.clone())).unwrap_err();
    assert!(refused.code() == "image_in_use" && refused.to_string().contains("bx_one"), "{refused}");
    room.store.forget_name(&"base".parse().unwrap()).unwrap();
    let needed = || Ok::<_, StoreError>(needed.into_keys().collect());
    assert!(room.store.prune_but(needed).unwrap().images.is_empty());
    assert_eq!(room.store.prune().unwrap().images, [digest]);
}

#[test]
fn nothing_is_taken_away_while_it_is_held() {
    let room = Room::new("held");
    room.import(&room.root(), "base").unwrap();
    let held = crate::Image::find("base", Some(&room.store)).unwrap();
    let hold = held.hold().unwrap();
    drop(held);
    assert_eq!(room.store.remove(&image("base")).unwrap_err().code(), "image_in_use");
    assert!(room.store.list().unwrap()[0].in_use);
    drop(hold);
    assert!(room.store.remove(&image("base")).unwrap().is_some());
    assert_eq!(
        (room.count("trees"), room.count("facts"), room.count("names"), room.count("drafts")),
        (0, 0, 0, 0)
    );
}

#[test]
fn whoever_only_looks_does_not_make_an_image_unknown() {
    use rustix::fs::{FlockOperation, flock};

    let room = Room::new("looks");
    let digest = room.import(&room.root(), "base").unwrap().facts.digest;
    let tree = room.store.path().join("trees").join(digest.to_string().replace(':', "-"));
    // As `list` has it for a moment.
    let alone = fs::File::open(&tree).unwrap();
    flock(&alone, FlockOperation::NonBlockingLockExclusive).unwrap();
    let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&alone.metadata().unwrap()));
    std::thread::scope(|scope| {
        let finds = scope.spawn(|| room.store.find(&image("base")).map(|found| found.digest()));
        let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&inode);
        while !finds.is_finished() && !fs::read_to_string("/proc/locks").unwrap().lines().any(waits) {
            std::thread::yield_now();
        }
        drop(alone);
        assert_eq!(finds.join().unwrap().unwrap(), digest);
    });
}

#[test]
fn a_name_goes_alone_while_the_image_has_another() {
    let room = Room::new("names");
    room.import(&room.root(), "one").unwrap();
    room.import(&room.root(), "two").unwrap();
    assert_eq!(room.store.remove(&image("one")).unwrap(), None);
    assert!(room.store.find(&image("two")).is_ok());
    assert!(room.store.find(&image("one")).is_err());
}

#[test]
fn prune_takes_what_has_no_name_and_is_not_used() {
    let room = Room::new("prune");
    let old = room.import(&room.root(), "base").unwrap().facts.digest;
    let held = room.store.find(&image("base")).unwrap();
    fs::write(room.root().join("etc/new"), "x").unwrap();
    let new = room.import(&room.root(), "base").unwrap().facts.digest;
    assert_ne!(old, new);
    let pruned = room.store.prune().unwrap();
    assert_eq!((pruned.images.len(), pruned.in_use), (0, vec![old]));
    drop(held);
    let pruned = room.store.prune().unwrap();
    assert_eq!((pruned.images, pruned.in_use.len()), (vec![old], 0));
    assert!(pruned.bytes > 0);
    assert!(room.store.find(&image("base")).is_ok());
}

#[test]
fn an_import_that_fails_leaves_nothing() {
    let room = Room::new("fails");
    let hostile = Archive::new().file("usr/bin/x", 0o755, b"x").file("../x", 0o644, b"x");
    assert_eq!(room.import(&room.archive(&hostile), "x").unwrap_err().code(), "image_path_outside");
    let caps = Caps { entries: 3, ..Caps::default() };
    assert_eq!(room.import_with(&room.root(), "x", caps).unwrap_err().code(), "image_too_many_entries");
    let empty = Archive::new().file("tmp/x", 0o644, b"x");
    assert_eq!(room.import(&room.archive(&empty), "x").unwrap_err().code(), "image_unusable");
    let saved = Archive::new().file("oci-layout", 0o644, b"{}").file("blobs/sha256/x", 0o644, b"x");
    assert_eq!(room.import(&room.archive(&saved), "x").unwrap_err().code(), "image_bad_document");
    let missing = room.import(&room.scratch.path().join("missing.tar"), "x").unwrap_err();
    assert!(
        matches!(&missing, StoreError::Unread { path, .. } if path.ends_with("missing.tar")),
        "{missing}"
    );
    assert!(room.import(Path::new("/dev/null"), "x").is_err());
    assert!(room.import(Path::new("/"), "x").is_err());
    assert!(room.import(&room.root().join("etc"), "x").is_err());
    for place in ["trees", "facts", "names", "drafts"] {
        assert_eq!(room.count(place), 0, "{place}");
    }
}

#[test]
fn what_a_crash_has_left_is_swept_and_what_somebody_is_at_is_not() {
    let room = Room::new("crash");
    let draft = room.store.begin().unwrap();
    let writer = draft.writer(Caps::default()).unwrap();
    drop(writer);
    fs::create_dir_all(room.store.path().join("drafts/left/tree/usr/bin")).unwrap();
    fs::write(room.store.path().join("names/.new-abc"), "").unwrap();
    fs::write(room.store.path().join("facts/sha256-ab.json"), "{}").unwrap();
    let again = Store::open(room.store.path()).unwrap();
    assert_eq!(room.count("drafts"), 1);
    assert_eq!((room.count("names"), room.count("facts")), (0, 0));
    assert!(draft.path().is_dir());
    drop(draft);
    assert_eq!(room.count("drafts"), 0);
    assert!(again.list().unwrap().is_empty());
}

#[test]
fn the_store_is_private() {
    let room = Room::new("private");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(room.store.path()), 0o700);
    for place in ["trees", "facts", "names", "drafts", "blobs"] {
        assert_eq!(mode(&room.store.path().join(place)), 0o700, "{place}");
    }
    for open in [0o770, 0o702] {
        fs::set_permissions(room.store.path(), fs::Permissions::from_mode(open)).unwrap();
        assert!(matches!(Store::open(room.store.path()), Err(StoreError::NotOurs { .. })));
        assert!(matches!(Store::look(room.store.path()), Err(StoreError::NotOurs { .. })));
        assert_eq!(mode(room.store.path()), open, "a mode is never changed");
    }
    // Others see nothing in its rooms.
    fs::set_permissions(room.store.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Store::open(room.store.path()).unwrap();
}

#[test]
fn a_directory_that_holds_something_else_is_never_taken_for_a_store() {
    let scratch = Scratch::new("foreign");
    let place = scratch.path().join("project");
    for kept in ["drafts/novel", "facts/of-life"] {
        fs::create_dir_all(place.join(kept)).unwrap();
    }
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    for refused in [Store::open(&place).unwrap_err(), Store::look(&place).unwrap_err()] {
        assert_eq!(refused.code(), "image_no_store");
    }
    assert!(place.join("drafts/novel").is_dir() && place.join("facts/of-life").is_dir());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 2);
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn an_empty_directory_becomes_a_store_and_looking_changes_nothing() {
    let scratch = Scratch::new("empty");
    let place = scratch.path().join("new");
    assert!(Store::look(&place).unwrap().is_none());
    assert!(!place.exists());
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Store::look(&place).unwrap().is_none());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    Store::open(&place).unwrap();
    assert!(Store::look(&place).unwrap().is_some());
    Store::open(&place).unwrap();
}

#[test]
fn a_resolver_is_always_an_ordinary_file_that_a_box_can_cover() {
    let room = Room::new("resolver");
    let archive = Archive::new()
        .file("usr/bin/sh", 0o755, b"#!")
        .link("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf");
    let digest = room.import(&room.archive(&archive), "x").unwrap().facts.digest;
    let etc = room.store.path().join("trees").join(digest.to_string().replace(':', "-")).join("etc");
    assert!(etc.join("resolv.conf").symlink_metadata().unwrap().is_file());
    assert!(etc.join("hosts").symlink_metadata().unwrap().is_file());
}

#[test]
fn what_an_image_shall_not_have_is_taken_away_before_it_has_a_digest() {
    let room = Room::new("without");
    let archive = Archive::new()
        .file("usr/bin/sh", 0o755, b"#!")
        .file("etc/hostname", 0o644, b"secret-host\n")
        .file("etc/resolv.conf", 0o644, b"nameserver 192.0.2.1\n")
        .file("etc/apt/sources.list.d/a.list", 0o644, b"deb http://me:word@mirror.example/ x main\n")
        .file("srv/kept", 0o644, b"x")
        .link("etc/way", "/srv");
    let name = "x".parse().unwrap();
    let what = Stream {
        source: Source::Debian { suite: "x".into(), packages: Vec::new() },
        name: Some(&name),
        caps: Caps::default(),
        without: &[
            "etc/hostname",
            "etc/resolv.conf",
            "etc/apt/sources.list.d",
            "etc/missing/x",
            "etc/way/kept",
        ],
    };
    let kept = room.store.import_stream(&mut archive.finish().as_slice(), what, &mut |_| {}).unwrap();
    assert_eq!(kept.facts.left_out, 3);
    let tree = room.store.path().join("trees").join(kept.facts.digest.to_string().replace(':', "-"));
    assert!(!tree.join("etc/hostname").exists() && !tree.join("etc/apt/sources.list.d").exists());
    assert_eq!(fs::read(tree.join("etc/resolv.conf")).unwrap(), b"");
    assert!(tree.join("srv/kept").exists());
}

#[test]
fn hard_links_and_special_files_of_a_directory_are_kept_or_left_out() {
    let room = Room::new("special");
    fs::hard_link(room.root().join("usr/bin/sh"), room.root().join("usr/bin/dash")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(room.root().join("etc/socket")).unwrap();
    fs::create_dir_all(room.root().join("run/left")).unwrap();
    let kept = room.import(&room.root(), "x").unwrap();
    assert_eq!(kept.facts.left_out, 2);
    let tree = room.store.path().join("trees").join(kept.facts.digest.to_string().replace(':', "-"));
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(tree.join("usr/bin/dash")).unwrap()), 2);
    // Read once, whatever the number of its names, and the same image as one with two files.
    let hosts = fs::metadata(room.root().join("etc/hosts")).unwrap().len();
    assert_eq!(kept.facts.bytes, 2 + hosts);
    fs::remove_file(room.root().join("usr/bin/dash")).unwrap();
    fs::copy(room.root().join("usr/bin/sh"), room.root().join("usr/bin/dash")).unwrap();
    let apart = room.import(&room.root(), "y").unwrap();
    assert_eq!((apart.facts.digest, apart.facts.bytes), (kept.facts.digest, 4 + hosts));
    assert!(!tree.join("etc/socket").exists() && !tree.join("run/left").exists());
}
