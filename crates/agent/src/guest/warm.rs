//! What nearly every command begins with is read before a template sleeps: each copy then has it in memory, and none has to ask its
//! disk for it.
//!
//! Nothing of the image is run. What is not there, or is no file, is left out: a template without it is one all the same.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// A shell, the loader and the library of C, as distributions have them.
const FILES: [&str; 10] = [
    "bin/sh",
    "bin/bash",
    "bin/true",
    "usr/bin/env",
    "lib64/ld-linux-x86-64.so.2",
    "lib/x86_64-linux-gnu/libc.so.6",
    "usr/lib64/libc.so.6",
    "usr/lib/libc.so.6",
    "lib/ld-musl-x86_64.so.1",
    "lib/x86_64-linux-gnu/libtinfo.so.6",
];
/// The most that is read, of each and of all of them: a guest may have little memory, and pages are in its template's file.
const MOST_OF_ONE: u64 = 4 << 20;
const MOST: u64 = 12 << 20;

/// Reads them. How many bytes that were.
pub(super) fn up(root: &OwnedFd) -> u64 {
    let mut buffer = vec![0; 1 << 16];
    FILES.iter().fold(0, |sum, at| match MOST.saturating_sub(sum).min(MOST_OF_ONE) {
        0 => sum,
        most => sum.saturating_add(read(root, at, most, &mut buffer)),
    })
}

fn read(root: &OwnedFd, at: &str, most: u64, buffer: &mut [u8]) -> u64 {
    // Links are the image's, and lead nowhere else. Not to be kept waiting by a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let Ok(file) = openat2(root, at, flags, Mode::empty(), inside) else { return 0 };
    match fstat(&file) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {}
        _ => return 0,
    }
    let (mut file, mut sum) = (File::from(file).take(most), 0_u64);
    while let Ok(count @ 1..) = file.read(buffer) {
        sum = sum.saturating_add(count as u64);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_an_image_has_is_read_to_a_bound_and_its_links_lead_nowhere_else() {
        let place = std::env::temp_dir().join(format!("guest-warm-{}", std::process::id()));
        let outside = place.join("outside");
        std::fs::create_dir_all(place.join("root/bin")).unwrap();
        std::fs::create_dir_all(place.join("root/lib/x86_64-linux-gnu")).unwrap();
        std::fs::write(&outside, [0; 100]).unwrap();
        let root = OwnedFd::from(File::open(place.join("root")).unwrap());
        assert_eq!(up(&root), 0);
        std::fs::write(place.join("root/bin/busybox"), [0; 10]).unwrap();
        symlink("/bin/busybox", place.join("root/bin/sh")).unwrap();
        symlink("../../outside", place.join("root/bin/bash")).unwrap();
        std::fs::create_dir(place.join("root/bin/true")).unwrap();
        assert_eq!(up(&root), 10);
        let large = File::create(place.join("root/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
        large.set_len(64 << 20).unwrap();
        assert_eq!(up(&root), 10 + MOST_OF_ONE);
        for name in ["usr/lib", "usr/lib64"] {
            std::fs::create_dir_all(place.join("root").join(name)).unwrap();
            symlink("/lib/x86_64-linux-gnu/libc.so.6", place.join("root").join(name).join("libc.so.6"))
                .unwrap();
        }
        symlink("/lib/x86_64-linux-gnu/libc.so.6", place.join("root/lib/ld-musl-x86_64.so.1")).unwrap();
        let read = up(&root);
        std::fs::remove_dir_all(&place).ok();
        assert_eq!(read, MOST);
    }
}
