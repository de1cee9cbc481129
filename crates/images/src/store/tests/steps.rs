//! Trees that are made from others.

use super::*;
use crate::store::place::folder;

#[test]
fn what_is_the_boxs_is_taken_away_and_what_is_the_images_is_kept() {
    let room = Room::new("cleaned");
    let root = room.root();
    fs::create_dir_all(root.join("usr/elsewhere/bin")).unwrap();
    symlink("elsewhere", root.join("usr/local")).unwrap();
    room.import(&root, "base").unwrap();
    let parent = room.store.find(&image("base")).unwrap();
    let mut derived = room.store.derive(&parent, Caps::default()).unwrap();
    derived.inherit(&["usr"]).unwrap();
    // As the agent makes it: through the image's own links.
    let made = Archive::new()
        .link("local", "elsewhere")
        .link("elsewhere/bin/sudo", "/.blastbox/sudo")
        .link("elsewhere/bin/doas", "/.blastbox/sudo")
        .file("bin/sh", 0o755, b"#!");
    derived.fill("usr", &mut made.finish().as_slice()).unwrap();
    derived.clean().unwrap();
    let kept = derived.keep(Hash::of([b"recipe".as_slice()]), &mut |_| {}).unwrap();
    let tree = room.store.path().join("trees").join(folder(&kept.facts.digest));
    let is_there = |path: &str| tree.join(path).symlink_metadata().is_ok();
    assert!(!is_there("usr/elsewhere/bin/sudo") && is_there("usr/elsewhere/bin/doas"));
    assert!(is_there("etc/resolv.conf"));
}

#[test]
fn what_is_taken_over_is_counted_once_and_within_the_limits() {
    let room = Room::new("counted");
    room.import(&room.root(), "base").unwrap();
    let parent = room.store.find(&image("base")).unwrap();
    let bytes = parent.facts().bytes;
    let exactly = Caps { bytes, ..Caps::default() };
    let mut derived = room.store.derive(&parent, exactly).unwrap();
    derived.inherit(&[]).unwrap();
    let less = Caps { bytes: bytes - 1, ..Caps::default() };
    let mut derived = room.store.derive(&parent, less).unwrap();
    assert!(derived.inherit(&[]).is_err(), "a limit is not an accident that a copy would mend");
}

#[test]
fn a_tree_that_is_larger_than_is_wanted_now_is_not_recalled() {
    let room = Room::new("recalled");
    let facts = room.import(&room.root(), "base").unwrap().facts;
    let key = Hash::of([b"key".as_slice()]);
    room.store.remember(&key, &facts.digest).unwrap();
    assert_eq!(room.store.recall(&key, Caps::default()).unwrap(), Some(facts.digest));
    for less in [
        Caps { bytes: facts.bytes - 1, ..Caps::default() },
        Caps { entries: facts.entries - 1, ..Caps::default() },
    ] {
        assert_eq!(room.store.recall(&key, less).unwrap(), None);
    }
}
