//! The disk is read back by a program that others have written, where it is there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("squashfs-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("tree")).unwrap();
        Self(path)
    }

    fn disk(&self) -> PathBuf {
        let path = self.0.join("disk");
        let file = fs::File::create(&path).unwrap();
        let tree = fs::File::open(self.0.join("tree")).unwrap();
        write(tree.as_fd(), &file).unwrap();
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[expect(clippy::disallowed_methods, reason = "a test reads the disk with a program of others")]
fn unsquashed(disk: &Path, to: &Path) -> bool {
    let mut command = std::process::Command::new("unsquashfs");
    match command.args(["-quiet", "-no-progress", "-d"]).arg(to).arg(disk).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(_) => {
            blastbox_skips::skip_this("unsquashfs is not installed");
            false
        }
    }
}

#[test]
fn everything_comes_back_as_it_was() {
    let place = Place::new("whole");
    let tree = place.0.join("tree");
    fs::create_dir_all(tree.join("usr/bin/deep/er")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    fs::write(tree.join("usr/bin/tool"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("usr/bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(tree.join("nothing"), b"").unwrap();
    let large: Vec<u8> = (0_u8..251).cycle().take(3 * BLOCK + 17).collect();
    fs::write(tree.join("large"), &large).unwrap();
    let mut holes = vec![0; 2 * BLOCK];
    holes.extend(b"end");
    fs::write(tree.join("holes"), &holes).unwrap();
    symlink("usr/bin", tree.join("bin")).unwrap();
    // More names than one head and one block of metadata hold.
    fs::create_dir(tree.join("many")).unwrap();
    for number in 0..1500 {
        fs::write(tree.join(format!("many/file-{number:05}")), number.to_string()).unwrap();
    }
    let disk = place.disk();
    assert_eq!(fs::metadata(&disk).unwrap().len() % PAGE, 0);
    let back = place.0.join("back");
    if !unsquashed(&disk, &back) {
        return;
    }
    assert_eq!(fs::read(back.join("large")).unwrap(), large);
    assert_eq!(fs::read(back.join("holes")).unwrap(), holes);
    assert_eq!(fs::read(back.join("nothing")).unwrap(), b"");
    assert_eq!(fs::read_link(back.join("bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(fs::metadata(back.join("bin/tool")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert!(back.join("usr/bin/deep/er").is_dir() && back.join("empty").is_dir());
    assert_eq!(fs::read_dir(back.join("many")).unwrap().count(), 1500);
    for number in [0, 255, 256, 777, 1499] {
        let text = fs::read_to_string(back.join(format!("many/file-{number:05}"))).unwrap();
        assert_eq!(text, number.to_string());
    }
}

#[test]
fn equal_trees_make_equal_disks() {
    let place = Place::new("equal");
    fs::create_dir_all(place.0.join("tree/bin")).unwrap();
    fs::write(place.0.join("tree/bin/a"), b"a").unwrap();
    let first = fs::read(place.disk()).unwrap();
    assert_eq!(fs::read(place.disk()).unwrap(), first);
    assert_eq!(first.get(..4), Some(b"hsqs".as_slice()));
}

#[test]
fn a_set_id_bit_and_a_pipe_do_not_get_onto_a_disk() {
    assert_eq!(mode(0o104_755), 0o755);
    let place = Place::new("strange");
    fs::write(place.0.join("tree/file"), b"x").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.0.join("tree/pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let back = place.0.join("back");
    if unsquashed(&place.disk(), &back) {
        let names: Vec<_> = fs::read_dir(&back).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
    }
}

#[test]
fn a_file_with_many_names_is_written_once() {
    let place = Place::new("linked");
    let tree = place.0.join("tree");
    fs::create_dir(tree.join("below")).unwrap();
    let large: Vec<u8> = (1_u8..252).cycle().take(8 * BLOCK).collect();
    fs::write(tree.join("below/first"), &large).unwrap();
    for number in 0..200 {
        fs::hard_link(tree.join("below/first"), tree.join(format!("name-{number}"))).unwrap();
    }
    fs::write(tree.join("other"), b"other").unwrap();
    let disk = place.disk();
    let size = fs::metadata(&disk).unwrap().len();
    assert!(size < (large.len() + 64 * 1024) as u64, "{size}");
    let back = place.0.join("back");
    if !unsquashed(&disk, &back) {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let first = fs::metadata(back.join("below/first")).unwrap();
    assert_eq!(first.nlink(), 201);
    for name in ["name-0", "name-199"] {
        assert_eq!(fs::metadata(back.join(name)).unwrap().ino(), first.ino());
        assert!(fs::read(back.join(name)).unwrap() == large);
    }
    assert_eq!(fs::read(back.join("other")).unwrap(), b"other");
}

#[test]
fn a_disk_does_not_become_larger_than_it_may() {
    let place = Place::new("most");
    let tree = place.0.join("tree");
    fs::write(tree.join("file"), vec![1; 1000]).unwrap();
    fs::hard_link(tree.join("file"), tree.join("again")).unwrap();
    symlink("x".repeat(2000), tree.join("link")).unwrap();
    let within = |content, tables| {
        let file = fs::File::create(place.0.join("disk")).unwrap();
        let tree = fs::File::open(&tree).unwrap();
        write_within(
            tree.as_fd(),
            &file,
            Most { content, tables, entries: u32::MAX, names: u64::MAX, file: u64::MAX },
            Owners::Root,
        )
    };
    within(1000, 2500).unwrap();
    assert!(within(999, 2500).unwrap_err().to_string().contains("more than a disk"));
    assert!(within(1000, 2000).unwrap_err().to_string().contains("more than a disk"));
    // A hole is free for whoever makes it, and not for whoever reads it.
    fs::File::create(tree.join("hole")).unwrap().set_len(1 << 40).unwrap();
    within(1 << 30, 1 << 40).unwrap_err();
}
