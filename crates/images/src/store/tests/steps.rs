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

#[test]
fn what_is_remembered_is_written_where_nobody_sweeps() {
    let room = Room::new("remembered");
    let facts = room.import(&room.root(), "base").unwrap().facts;
    let key = Hash::of([b"key".as_slice()]);
    let lock = room.store.lock().unwrap();
    let (began, begun) = std::sync::mpsc::channel();
    let (store, digest) = (Store::look(room.store.path()).unwrap().unwrap(), facts.digest);
    let writing = std::thread::spawn(move || {
        began.send(()).unwrap();
        store.remember(&key, &digest)
    });
    begun.recv().unwrap();
    // Whoever sweeps holds the lock, as we do.
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(fs::read_dir(room.store.path().join("layers")).unwrap().count(), 0);
        assert!(!writing.is_finished());
    }
    drop(lock);
    writing.join().unwrap().unwrap();
    assert_eq!(room.store.recall(&key, Caps::default()).unwrap(), Some(facts.digest));
}

#[test]
fn a_tree_that_a_build_holds_stays_and_takes_only_what_it_does_not_share() {
    let room = Room::new("held");
    room.import(&room.root(), "base").unwrap();
    let parent = room.store.find(&image("base")).unwrap();
    let change = |name: Option<&str>, word: &[u8]| {
        let mut derived = room.store.derive(&parent, Caps::default()).unwrap();
        derived.inherit(&["usr"]).unwrap();
        derived.fill("usr", &mut Archive::new().file("new", 0o644, word).finish().as_slice()).unwrap();
        let name = name.map(|name| name.parse().unwrap());
        derived.keep_as(Hash::of([b"x".as_slice()]), name.as_ref(), &mut |_| {}).unwrap()
    };
    let (held, needed) = (change(Some("a-build"), b"held"), change(None, b"needed"));
    let gone = change(None, b"gone");
    assert!(held.own < held.facts.bytes + 4_096 * held.facts.entries, "what is shared is not counted");
    let pruned = room.store.prune_but(|| Ok::<_, StoreError>([needed.facts.digest].into())).unwrap();
    assert_eq!(pruned.images, [gone.facts.digest]);
    room.store.forget_name(&"a-build".parse().unwrap()).unwrap();
    room.store.forget_name(&"a-build".parse().unwrap()).unwrap();
    assert_eq!(
        room.store.prune_but(|| Ok::<_, StoreError>([needed.facts.digest].into())).unwrap().images,
        [held.facts.digest]
    );
    assert!(room.store.find(&image("base")).is_ok() && room.store.open_tree(&needed.facts.digest).is_ok());
}

#[test]
fn a_directory_of_an_image_is_found_through_its_own_links_and_never_outside() {
    let room = Room::new("found");
    let root = room.root();
    fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    symlink("/../../../../etc", root.join("usr/out")).unwrap();
    symlink("/nowhere-in-the-image", root.join("usr/dangling")).unwrap();
    room.import(&root, "base").unwrap();
    let found = room.store.find(&image("base")).unwrap();
    for there in ["/", "/lib/deep", "/usr/lib/../lib/deep/", "/usr/out"] {
        assert!(found.has_directory(there).unwrap(), "{there}");
    }
    for missing in ["/opt", "/usr/dangling", "/usr/bin/sh"] {
        assert!(!found.has_directory(missing).unwrap(), "{missing}");
    }
}
