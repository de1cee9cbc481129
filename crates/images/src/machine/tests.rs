//! Kernels are added, found again and refused by what they lack.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kernels-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("modules/kernel/drivers")).unwrap();
        let place = Self(path);
        place.module("virtio_pci.ko");
        place.module("virtio_console.ko");
        place.module("virtio-rng.ko.xz");
        place.module("squashfs.ko");
        place.module("evil.ko");
        fs::write(place.0.join("modules/modules.builtin"), "kernel/drivers/block/virtio_blk.ko\n").unwrap();
        let mut image = vec![0_u8; 0x300];
        image[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
        image[0x280..0x290].copy_from_slice(b"6.1.0-1-test (x)");
        fs::write(place.0.join("vmlinuz"), image).unwrap();
        fs::write(place.0.join("agent"), b"the agent").unwrap();
        place
    }

    fn module(&self, name: &str) {
        fs::write(self.0.join("modules/kernel/drivers").join(name), name).unwrap();
    }

    fn tree(&self, at: &str) -> crate::store::Hold {
        crate::store::Hold::of(fs::File::open(self.0.join(at)).unwrap().into())
    }

    fn add(&self) -> Result<Kernel, MachineError> {
        let (image, modules) = (self.0.join("vmlinuz"), self.0.join("modules"));
        let new = NewKernel { image: &image, modules: Some(&modules), source: "a test".into() };
        Kernels::of_store(&self.0.join("store")).add(&new)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn a_kernel_is_kept_with_just_the_modules_that_guests_need() {
    let place = Place::new("kept");
    let kernels = Kernels::of_store(&place.0.join("store"));
    assert!(kernels.current().unwrap().is_none() && kernels.list().unwrap().is_empty());
    let kernel = place.add().unwrap();
    assert_eq!(kernel.facts().release, "6.1.0-1-test");
    assert_eq!(
        kernel.facts().modules,
        ["04-virtio_pci.ko", "05-virtio_console.ko", "08-virtio_rng.ko.xz", "09-squashfs.ko"]
    );
    assert_eq!(kernels.current().unwrap(), Some(kernel.clone()));
    // Adding it again changes nothing.
    assert_eq!(place.add().unwrap(), kernel);
    assert_eq!(kernels.list().unwrap().len(), 1);
}

#[test]
fn what_is_known_of_a_kernel_is_known_anew_when_the_same_files_are_added_again() {
    let place = Place::new("anew");
    let builtin = "kernel/drivers/block/virtio_blk.ko\nkernel/drivers/net/virtio_net.ko\n";
    fs::write(place.0.join("modules/modules.builtin"), builtin).unwrap();
    let kernel = place.add().unwrap();
    assert!(kernel.facts().network);
    // As one was written before anybody asked for network cards.
    let folder = kernel.image().parent().unwrap().to_owned();
    let text = fs::read_to_string(folder.join("kernel.json")).unwrap();
    for old in [text.replace("\"network\": true,", ""), "cut sho".to_owned()] {
        assert_ne!(old, text);
        fs::write(folder.join("kernel.json"), old).unwrap();
        let again = place.add().unwrap();
        assert!(again.facts().network && again.facts().digest == kernel.facts().digest);
    }
}

#[test]
fn helpers_of_a_card_come_before_it() {
    let place = Place::new("helpers");
    for name in ["virtio_net.ko", "dimlib.ko.xz", "failover.ko", "net_failover.ko"] {
        place.module(name);
    }
    let kernel = place.add().unwrap();
    let card = &kernel.facts().modules[4..];
    assert_eq!(card, ["10-failover.ko", "11-net_failover.ko", "12-dimlib.ko.xz", "13-virtio_net.ko"]);
    assert!(kernel.facts().network);
}

#[test]
fn the_first_files_have_the_agent_and_are_made_anew_for_another_one() {
    let place = Place::new("first");
    let kernel = place.add().unwrap();
    let agent = place.0.join("agent");
    let first = kernel.first_files(&agent).unwrap();
    let bytes = fs::read(&first).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("the agent") && text.contains("modules/09-squashfs.ko") && !text.contains("evil"));
    assert_eq!(kernel.first_files(&agent).unwrap(), first);
    fs::remove_file(&agent).unwrap();
    assert!(matches!(kernel.first_files(&agent), Err(MachineError::NoAgent { .. })));
    fs::write(place.0.join("other"), b"another").unwrap();
    let other = kernel.first_files(&place.0.join("other")).unwrap();
    assert_ne!(other, first);
    // By content: the same agent in another file needs no others, one of the same age in the same file does.
    let aged = fs::File::options().write(true).open(place.0.join("other")).unwrap();
    let age = aged.metadata().unwrap().modified().unwrap();
    fs::write(place.0.join("other"), b"another, of the same age").unwrap();
    aged.set_modified(age).unwrap();
    assert_ne!(kernel.first_files(&place.0.join("other")).unwrap(), other);
    fs::write(&agent, b"the agent").unwrap();
    assert_eq!(kernel.first_files(&agent).unwrap(), first);
}

#[test]
fn a_package_cannot_have_other_files_read_nor_wait_for_ever() {
    let place = Place::new("links");
    let module = place.0.join("modules/kernel/drivers/squashfs.ko");
    let builtin = place.0.join("modules/modules.builtin");
    fs::remove_file(&module).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &module).unwrap();
    assert!(place.add().unwrap_err().to_string().contains("squashfs"));
    fs::remove_file(&module).unwrap();
    fs::write(&module, "squashfs").unwrap();
    fs::remove_file(&builtin).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &builtin).unwrap();
    assert!(matches!(place.add(), Err(MachineError::Place { .. })));
    fs::remove_file(&builtin).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &builtin, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(place.add(), Err(MachineError::Place { .. })));
    fs::remove_file(&builtin).unwrap();
    fs::File::create(&builtin).unwrap().set_len(1 << 30).unwrap();
    assert!(matches!(place.add(), Err(MachineError::Place { .. })));
}

#[test]
fn what_killed_makers_left_is_swept_and_what_is_in_the_making_is_not() {
    let place = Place::new("swept");
    place.add().unwrap();
    let disks = place.0.join("store/disks");
    fs::create_dir(&disks).unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let [left, held, young] =
        ["left", "held", "young"].map(|name| disks.join(format!(".new-{name}-x.squashfs")));
    for path in [&left, &held, &young] {
        fs::write(path, "half").unwrap();
    }
    let file = fs::File::options().write(true).open(&left).unwrap();
    file.set_modified(long_ago).unwrap();
    drop(file);
    let file = fs::File::options().write(true).open(&held).unwrap();
    file.set_modified(long_ago).unwrap();
    file.lock().unwrap();
    let digest = blastbox_wire::event::Hash::from_bytes([11; 32]);
    Workshop::new(&place.0.join("store"), digest, place.tree("modules")).prepare(&place.0.join("agent"));
    assert!(!left.exists() && held.exists() && young.exists());
}

#[test]
fn what_is_no_kernel_or_lacks_a_driver_is_refused_by_name() {
    let place = Place::new("refused");
    fs::remove_file(place.0.join("modules/kernel/drivers/squashfs.ko")).unwrap();
    let lacks = place.add().unwrap_err().to_string();
    assert!(lacks.contains("squashfs") && lacks.contains("the image"), "{lacks}");
    fs::write(place.0.join("vmlinuz"), b"#!/bin/sh").unwrap();
    assert!(matches!(place.add(), Err(MachineError::NotAKernel { .. })));
    let mut elf = b"\x7fELF".to_vec();
    elf.resize(64, 0);
    elf[18] = 183; // another processor
    fs::write(place.0.join("vmlinuz"), elf).unwrap();
    assert!(matches!(place.add(), Err(MachineError::NotAKernel { .. })));
    let gone = Path::new("/nowhere/vmlinuz");
    let new = NewKernel { image: gone, modules: None, source: String::new() };
    let kernels = Kernels::of_store(&place.0.join("store"));
    assert!(matches!(kernels.add(&new), Err(MachineError::Place { .. })));
    assert!(kernels.list().unwrap().is_empty());
}

#[test]
fn a_guest_without_a_kernel_is_told_how_to_get_one() {
    let place = Place::new("none");
    let digest = blastbox_wire::event::Hash::from_bytes([7; 32]);
    let workshop = Workshop::new(&place.0.join("empty"), digest, place.tree("."));
    assert!(!workshop.has_kernel());
    assert!(workshop.parts().is_none());
    workshop.prepare(&place.0.join("agent"));
    let error = workshop.parts().unwrap().unwrap_err();
    assert!(error.contains("blastbox kernel get"), "{error}");
}

#[test]
fn the_parts_of_a_guest_are_made_once() {
    let place = Place::new("parts");
    place.add().unwrap();
    let digest = blastbox_wire::event::Hash::from_bytes([8; 32]);
    let workshop = Workshop::new(&place.0.join("store"), digest, place.tree("modules"));
    workshop.prepare(&place.0.join("agent"));
    let parts = workshop.parts().unwrap().unwrap().clone();
    let made = fs::metadata(&parts.disk).unwrap().modified().unwrap();
    let again = Workshop::new(&place.0.join("store"), digest, place.tree("modules"));
    again.prepare(&place.0.join("agent"));
    assert_eq!(again.parts(), Some(Ok(&parts)));
    assert_eq!(fs::metadata(&parts.disk).unwrap().modified().unwrap(), made);
    let names = fs::read_dir(place.0.join("store/disks")).unwrap().count();
    assert_eq!(names, 1);
}

#[test]
fn makers_of_the_same_disk_do_not_get_into_each_others_way() {
    let place = Place::new("together");
    place.add().unwrap();
    // Large enough that no maker is done before the next one has begun.
    let large: Vec<u8> = (1_u8..252).cycle().take(16 << 20).collect();
    fs::write(place.0.join("modules/large"), large).unwrap();
    let store = place.0.join("store");
    let made = |number: u8| {
        let digest = blastbox_wire::event::Hash::from_bytes([number; 32]);
        let workshop = Workshop::new(&store, digest, place.tree("modules"));
        workshop.prepare(&place.0.join("agent"));
        workshop.parts().unwrap().map(|parts| parts.disk.clone()).map_err(str::to_owned)
    };
    let alone = fs::read(made(9).unwrap()).unwrap();
    let together = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    let disk = made(10).unwrap();
                    fs::read(disk).unwrap()
                })
            })
            .collect();
        for maker in makers {
            // Not compared by `assert_eq`, which would print all of it.
            assert!(maker.join().unwrap() == alone, "a maker found a disk that is not whole");
        }
    });
    assert_eq!(fs::read_dir(store.join("disks")).unwrap().count(), 2);
}
