//! Entering and leaving namespaces, and the tables of a user namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: FILES is never among the flags, so that no thread can see descriptors of another table.
    unsafe { unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// A new, still private copy of the current mounts.
pub fn own_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)
}

/// A new and empty network.
pub fn own_network() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// A cgroup namespace whose root is the current cgroup.
pub fn own_cgroup_view() -> io::Result<()> {
    unshare(UnshareFlags::NEWCGROUP)
}

/// New users: until the tables are written, this process is nobody.
pub fn own_users() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)
}

/// Users and mounts at once: the way in for somebody without privilege.
pub fn own_users_and_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
}

/// Goes back to, or over to, another set of mounts.
pub fn enter_mounts(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Mount))?)
}

/// Goes over to another network.
pub fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// A host name of its own, for now the same.
pub fn own_host_name() -> io::Result<()> {
    unshare(UnshareFlags::NEWUTS)
}

/// Goes over to another host name.
pub fn enter_host_name(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::HostNameAndNISDomainName))?)
}

/// A descriptor of one namespace (`mnt`, `user`, …) of a process, through an open `/proc`.
pub fn open(proc: BorrowedFd<'_>, process: &str, kind: &str) -> io::Result<OwnedFd> {
    let path = format!("{process}/ns/{kind}");
    Ok(openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// One row of a table of ids: `inside` is `outside` of the parent namespace, for `count` ids.
#[derive(Debug, Clone, Copy)]
pub struct IdRow {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Writes the tables of a process's user namespace. `deny_groups` first gives up `setgroups`, which is what the
/// kernel asks of a writer without privilege.
pub fn write_maps(
    proc: BorrowedFd<'_>,
    process: &str,
    users: &[IdRow],
    groups: &[IdRow],
    deny_groups: DenyGroups,
) -> io::Result<()> {
    if matches!(deny_groups, DenyGroups::Yes) {
        write_at(proc, &format!("{process}/setgroups"), b"deny")?;
    }
    write_at(proc, &format!("{process}/uid_map"), table(users).as_bytes())?;
    write_at(proc, &format!("{process}/gid_map"), table(groups).as_bytes())
}

/// Whether `setgroups` is given up.
#[derive(Debug, Clone, Copy)]
pub enum DenyGroups {
    /// It is.
    Yes,
    /// It is not.
    No,
}

fn table(rows: &[IdRow]) -> String {
    rows.iter().map(|row| format!("{} {} {}\n", row.inside, row.outside, row.count)).collect()
}

/// Writes a small file of a kernel file system in one go.
pub fn write_at(dir: impl AsFd, path: &str, bytes: &[u8]) -> io::Result<()> {
    let file = openat(dir, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, bytes)?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Brings the loopback of the current network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: `ifreq` is plain data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives until after the call.
    let result = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
