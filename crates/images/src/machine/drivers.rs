//! Which drivers a guest needs, and in which order its kernel takes them.
//!
//! A closed list: whatever else a kernel has as modules stays out of the guest.

/// One driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver {
    /// The module's name; `-` and `_` are the same in it.
    pub(super) name: &'static str,
    /// What a guest has it for; `None`: only others need it, where the kernel has it as a module at all.
    pub(super) needed_for: Option<&'static str>,
}

const fn helper(name: &'static str) -> Driver {
    Driver { name, needed_for: None }
}

const fn needed(name: &'static str, purpose: &'static str) -> Driver {
    Driver { name, needed_for: Some(purpose) }
}

/// That of a network card.
pub(super) const CARD: &str = "virtio_net";

/// What lays changes over a workspace.
pub(super) const OVERLAY: &str = "overlay";

/// All of them, each behind those that it needs. A guest tries once more what came too early.
pub(super) const DRIVERS: [Driver; 15] = [
    helper("virtio_ring"),
    // Of many kernels it needs nobody; of those that break devices before they shut down (6.1.192), the ring.
    helper("virtio"),
    helper("virtio_pci_legacy_dev"),
    helper("virtio_pci_modern_dev"),
    needed("virtio_pci", "its devices"),
    needed("virtio_console", "the channel to the host"),
    needed("virtio_blk", "the disk with the image"),
    helper("rng_core"),
    needed("virtio_rng", "randomness from the host"),
    needed("squashfs", "the image"),
    // A guest without network does not load them, and a kernel without them is good for boxes without.
    helper("failover"),
    helper("net_failover"),
    // Of newer kernels.
    helper("dimlib"),
    helper(CARD),
    // The same for a workspace that can be written over.
    helper(OVERLAY),
];

/// The module's name in a file name such as `virtio-rng.ko.xz`.
pub(super) fn module_name(file: &str) -> Option<String> {
    let (name, end) = file.split_once(".ko")?;
    matches!(end, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_name_however_it_is_written() {
        assert_eq!(module_name("virtio-rng.ko.xz").as_deref(), Some("virtio_rng"));
        assert_eq!(module_name("squashfs.ko").as_deref(), Some("squashfs"));
        assert_eq!(module_name("squashfs.ko.txt"), None);
        assert_eq!(module_name("README"), None);
    }
}
