//! Mounts, by descriptor: a path is used once, to open.
//!
//! Nothing here follows a symbolic link on the target side, so that no content of an image or a workspace can lead
//! a mount astray (the class of CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, open_tree, unmount,
};

/// What may be done with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(MountAttrFlags);

impl Attributes {
    /// No setuid, no devices: the least that every mount of a box has.
    pub const PLAIN: Self = Self(MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV));
    /// One device file: no setuid, no programs.
    pub const DEVICE: Self = Self(MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC));

    /// Also read-only.
    #[must_use]
    pub const fn read_only(self) -> Self {
        Self(self.0.union(MountAttrFlags::MOUNT_ATTR_RDONLY))
    }
    /// Also without programs.
    #[must_use]
    pub const fn no_programs(self) -> Self {
        Self(self.0.union(MountAttrFlags::MOUNT_ATTR_NOEXEC))
    }
}

/// Whether what is mounted beneath comes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beneath {
    /// Everything that is mounted beneath.
    Included,
    /// The one mount alone.
    LeftOut,
}

/// A new file system of this kind with these options (`key`, `value`; no value = a flag), not attached anywhere yet.
pub fn create(kind: &str, options: &[(&str, Option<&str>)], attributes: Attributes) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => fsconfig_set_string(&context, *key, *value)?,
            None => fsconfig_set_flag(&context, *key)?,
        }
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes.0)?)
}

/// A copy of the mount at a path of the current root, not attached anywhere yet. A last symbolic link is not followed.
pub fn copy_path(path: &str, beneath: Beneath) -> io::Result<OwnedFd> {
    copy(rustix::fs::CWD, path, beneath)
}

/// A copy of the mount at a path beneath a directory, or of the directory itself where the path is empty.
pub fn copy(dir: impl AsFd, path: &str, beneath: Beneath) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    if path.is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    if beneath == Beneath::Included {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(dir, path, flags)?)
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn set_attr(mount: BorrowedFd<'_>, beneath: Beneath, attr: &MountAttr) -> io::Result<()> {
    let mut flags = libc::AT_EMPTY_PATH;
    if beneath == Beneath::Included {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is a NUL-terminated literal, `attr` is a live `mount_attr` of the length that is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts a mount (and what is beneath it). Restrictions are only ever added.
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, beneath: Beneath) -> io::Result<()> {
    let attr =
        MountAttr { attr_set: u64::from(attributes.0.bits()), attr_clr: 0, propagation: 0, userns_fd: 0 };
    set_attr(mount, beneath, &attr)
}

/// Shows the owners of a mount through the tables of a user namespace.
pub fn map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: u64::from(MountAttrFlags::MOUNT_ATTR_IDMAP.bits()),
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(users.as_raw_fd().unsigned_abs()),
    };
    set_attr(mount, Beneath::LeftOut, &attr)
}

/// Attaches a mount at a path beneath a root. No link on the way is followed.
pub fn attach(mount: BorrowedFd<'_>, root: BorrowedFd<'_>, at: &str) -> io::Result<()> {
    let target = open_point(root, at)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", &target, "", flags)?)
}

/// Opens a place beneath a root without following any link.
pub fn open_point(root: BorrowedFd<'_>, at: &str) -> io::Result<OwnedFd> {
    let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), stay)?)
}

/// Puts a mount over the current root and goes there.
pub fn cover_root(mount: BorrowedFd<'_>) -> io::Result<()> {
    move_mount(mount, "", rustix::fs::CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(rustix::process::fchdir(mount)?)
}

/// Makes the current directory, a mount, the root, and lets go of everything that was there before.
pub fn become_root() -> io::Result<()> {
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(rustix::process::chdir("/")?)
}

/// Nothing that is mounted from now on is seen elsewhere, and the other way round.
pub fn keep_to_ourselves() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Takes a mount away.
pub fn detach(path: &str) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}
