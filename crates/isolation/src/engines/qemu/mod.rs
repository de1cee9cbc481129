//! QEMU: where it lies, what it needs of the host, and which one will do.

mod orders;
mod words;

use super::Room;
use crate::tiers::microvm::spec::Processor;

pub(super) use orders::{hear, say, wake};
pub(super) use words::arguments;

/// Where distributions install it.
pub(super) const PROGRAM: &str = "/usr/bin/qemu-system-x86_64";
/// What a QEMU of a distribution reads at its start, where it is there.
pub(super) const READS: [&str; 9] = [
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/share/qemu",
    "/usr/share/seabios",
    "/usr/share/qemu-kvm",
    "/usr/share/seavgabios",
    "/etc/ld.so.cache",
];
/// The oldest whose words these are: docs/decisions/0013-qemu-7-2-is-new-enough.md.
pub(super) const OLDEST: (u32, u32) = (7, 2);
pub(super) const INSTALL: &str = "apt-get install qemu-system-x86";
pub(super) const UPGRADE: &str = "apt-get install qemu-system-x86, on Debian 12, Ubuntu 23.04 or newer";
/// Its loop, its workers for disks; what its threads map.
pub(super) const ROOM: Room = Room { threads: 80, open_files: 256, mapped: 1 << 30 };
const MIB: u64 = 1 << 20;

/// Its program, its tables, and what it makes of the guest's instructions.
pub(super) const fn overhead(processor: Processor) -> u64 {
    match processor {
        Processor::Kvm => 64 * MIB,
        Processor::Emulated => 128 * MIB,
    }
}

/// The two first numbers behind the word.
pub(super) fn version(says: &str) -> Option<(u32, u32)> {
    let words = says.lines().next()?.split_once("version ")?.1;
    let mut numbers = words.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_however_they_go_on() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright"), Some((7, 2)));
        assert_eq!(version("QEMU emulator version 10.0.2"), Some((10, 0)));
        for other in ["", "QEMU", "QEMU emulator version x"] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}
