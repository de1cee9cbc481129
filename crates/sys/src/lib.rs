//! How Linux is asked: the only room with unsafe code.
//!
//! Each file is one subject. What `rustix` offers safely is called where it is needed; what it does not offer is
//! wrapped here, one operation a function, with descriptors instead of paths wherever the kernel lets us.

#![allow(unsafe_code, reason = "the unsafe room")]

pub mod arch;
pub mod cgroup;
pub mod chance;
pub mod channel;
pub mod entry;
pub mod first;
pub mod fork;
pub mod guise;
pub mod identity;
#[cfg(feature = "kvm")]
pub mod kvm;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod namespaces;
mod netlink;
pub mod program;
pub mod seccomp;
pub mod shortcut;
pub mod spawn;
pub mod tun;
