//! No link, mode or depth that a box has made leads out of a volume, or keeps anybody from emptying it.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::testing::Scratch;

fn at(text: &str) -> Place {
    Place::read(text).unwrap()
}

fn tree(scratch: &Scratch) -> Tree {
    std::fs::create_dir(scratch.path().join("v")).unwrap();
    std::fs::write(scratch.path().join("outside"), "secret").unwrap();
    Tree::open(&scratch.path().join("v")).unwrap()
}

#[test]
fn paths_stay_in_the_volume() {
    for bad in ["..", "/a/../b", "a/..", "a\0b", &"x".repeat(256), &"a/".repeat(200), &"a".repeat(5_000)] {
        assert!(Place::read(bad).is_none(), "{bad}");
    }
    assert_eq!(at("/a//./b/").text(), "/a/b");
    assert_eq!((at("/").text().as_str(), at("").name()), ("/", "/"));
}

#[test]
fn no_link_leads_out_and_one_is_shown_as_a_link() {
    let scratch = Scratch::new("volume-links");
    let tree = tree(&scratch);
    let volume = scratch.path().join("v");
    symlink("../outside", volume.join("file")).unwrap();
    symlink("..", volume.join("up")).unwrap();
    for bad in ["file", "up/outside", "up/v/file"] {
        assert!(tree.read(&at(bad)).is_err(), "{bad}");
    }
    assert!(tree.make(&at("up/new"), 0o755, true).is_err() && tree.set_mode(&at("file"), 0o777).is_err());
    assert!(tree.list(&at("up"), 1).is_err() && tree.remove(&at("up/outside")).is_err());
    assert_eq!(tree.look(&at("file")).unwrap().target.as_deref(), Some("../outside"));
    tree.remove(&at("up")).unwrap();
    tree.empty().unwrap();
    assert!(scratch.path().join("outside").exists() && names(tree.0.as_fd()).unwrap().is_empty());
}

#[test]
fn directories_are_made_listed_and_removed() {
    let scratch = Scratch::new("volume-directories");
    let tree = tree(&scratch);
    assert!(tree.make(&at("a/b"), 0o755, false).is_err());
    tree.make(&at("a/b"), 0o700, true).unwrap();
    assert!(tree.make(&at("a"), 0o755, false).is_err() && tree.make(&at("a"), 0o755, true).is_ok());
    let listed = |depth| tree.list(&at("/"), depth).unwrap().iter().map(|one| one.place.text()).collect();
    let (one, two): (Vec<String>, Vec<String>) = (listed(1), listed(2));
    assert_eq!((one, two), (vec!["/a".to_owned()], vec!["/a".to_owned(), "/a/b".to_owned()]));
    tree.remove(&at("a")).unwrap();
    assert!(tree.look(&at("a")).is_err());
}

#[test]
fn what_is_deep_or_closed_goes_too() {
    let scratch = Scratch::new("volume-deep");
    let tree = tree(&scratch);
    let mut directory = tree.0.try_clone().unwrap();
    for _ in 0..DEEPEST * 3 {
        mkdirat(&directory, "d", Mode::RWXU).unwrap();
        directory = enter(directory.as_fd(), Path::new("d")).unwrap();
    }
    let closed = scratch.path().join("v/closed");
    std::fs::create_dir_all(closed.join("in")).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o0)).unwrap();
    assert_eq!(tree.measure(Amount { bytes: u64::MAX, entries: 1_000 }).unwrap().entries, u64::MAX);
    tree.empty().unwrap();
    assert!(names(tree.0.as_fd()).unwrap().is_empty());
}

#[test]
fn it_is_measured_no_further_than_needed_and_set_id_bits_go() {
    let scratch = Scratch::new("volume-measure");
    let tree = tree(&scratch);
    let file = scratch.path().join("v/program");
    std::fs::write(&file, [7; 100_000]).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o6755)).unwrap();
    let amount = tree.measure(Amount { bytes: 1 << 30, entries: 10 }).unwrap();
    assert!(amount.bytes >= 100_000 && amount.entries == 1, "{amount:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
    (0..50).for_each(|n| std::fs::write(scratch.path().join(format!("v/{n}")), "").unwrap());
    assert_eq!(tree.measure(Amount { bytes: 1 << 30, entries: 10 }).unwrap().entries, 11);
}

#[test]
fn whatever_its_box_has_closed_is_measured_and_goes() {
    let scratch = Scratch::new("volume-closed");
    let volume = scratch.path().join("v");
    drop(tree(&scratch));
    let most = Amount { bytes: 1 << 30, entries: 100 };
    for mode in [0o000, 0o400, 0o100, 0o200, 0o500] {
        std::fs::create_dir(volume.join("d")).unwrap();
        std::fs::write(volume.join("d/file"), [7; 100_000]).unwrap();
        for closed in [volume.join("d"), volume.clone()] {
            std::fs::set_permissions(&closed, PermissionsExt::from_mode(mode)).unwrap();
        }
        let tree = Tree::open(&volume).unwrap();
        let amount = tree.measure(most).unwrap();
        assert!(amount.bytes >= 100_000 && amount.entries == 2, "{mode:o}: {amount:?}");
        std::fs::set_permissions(&volume, PermissionsExt::from_mode(mode)).unwrap();
        Tree::open(&volume).unwrap().empty().unwrap();
        assert_eq!(std::fs::read_dir(&volume).unwrap().count(), 0, "{mode:o}");
    }
}
