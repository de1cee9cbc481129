//! Landlock: the second lock on files, TCP ports, abstract sockets and signals, set by the process on itself.
//!
//! It holds when a mount is wrong or a namespace is shared. What it does not see: UDP, and Unix sockets that have a path
//! (until ABI 9) – so no such socket may be mounted into a box. File rights are checked when a file is opened:
//! descriptors that are already open keep what they had.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::io;
use std::os::fd::BorrowedFd;

/// The newest ABI whose rights this file knows and tests. A newer kernel is asked for this much.
pub const NEWEST: u32 = 7;
/// The first ABI that can refuse TCP.
const WITH_TCP: u32 = 4;
/// The first ABI that can shut abstract sockets and signals inside the box.
const WITH_SCOPES: u32 = 6;

/// What may be done beneath a directory (or with a single file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// List directories, read nothing.
    List,
    /// Read files, list directories.
    ReadOnly,
    /// Also run programs.
    ReadExecute,
    /// Everything but running programs, making device nodes, and device ioctls.
    ReadWrite,
    /// Everything but making device nodes, and device ioctls.
    ReadWriteExecute,
    /// Read and write the device files that are there; no device ioctls. For `/dev`.
    Devices,
    /// The same with ioctls, without which a terminal opened later has no size and no job control. For `/dev/pts`
    /// and `/dev/ptmx`; beneath a [`Access::Devices`] directory the two add up. Landlock cannot tell one ioctl from
    /// another: the filter refuses the dangerous ones.
    Terminals,
    /// As [`Access::ReadWriteExecute`], without making sockets and pipes. For what several boxes see: no descriptor goes from one
    /// to the other through it.
    Shared,
}

/// One hole in the wall.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The directory, or a single file; `O_PATH` is enough.
    pub dir: BorrowedFd<'a>,
    /// What may be done there.
    pub access: Access,
}

/// TCP: bind and connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// No port, not even on loopback.
    DenyAll,
    /// Not Landlock's business: the box has a network namespace and a gateway of its own.
    AllowAll,
}

/// Whether abstract Unix sockets and signals end at the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// They do.
    Closed,
    /// The kernel is older than ABI 6.
    Open,
}

/// What truly holds now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    /// The ABI whose rights are handled; 0: nothing is.
    pub abi: u32,
    /// [`Tcp::AllowAll`] although denial was asked for: the kernel is older than ABI 4.
    pub tcp: Tcp,
    /// Abstract sockets and signals.
    pub scopes: Scopes,
}

/// The Landlock ABI of this kernel; 0 when it has none or it is switched off.
#[must_use]
pub fn abi() -> u32 {
    const VERSION: u32 = 1;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: with no attribute, size 0 and the version flag the call only returns a number.
    let found = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0usize, VERSION) };
    u32::try_from(found).unwrap_or(0)
}

/// Restricts the calling thread, and whatever it starts, to the grants, for good. no_new_privs is set if it was not.
///
/// Everything that the kernel knows up to [`NEWEST`] is enforced completely or not at all: there is no partial success
/// above `wanted_abi`, and [`Enforced`] names what an older kernel cannot do.
///
/// # Errors
/// `Unsupported` when the kernel has less than `wanted_abi`; else what the kernel said.
pub fn restrict(grants: &[Grant<'_>], tcp: Tcp, wanted_abi: u32) -> io::Result<Enforced> {
    let kernel = abi();
    if kernel < wanted_abi {
        let short = format!("this kernel has Landlock ABI {kernel}, ABI {wanted_abi} is required");
        return Err(io::Error::new(io::ErrorKind::Unsupported, short));
    }
    let number = kernel.min(NEWEST);
    let enforced = Enforced {
        abi: number,
        tcp: if number >= WITH_TCP { tcp } else { Tcp::AllowAll },
        scopes: if number >= WITH_SCOPES { Scopes::Closed } else { Scopes::Open },
    };
    if number == 0 {
        return Ok(enforced);
    }

    let abi = rights_of(number);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    rules = rules.handle_access(AccessFs::from_all(abi)).map_err(io::Error::other)?;
    if enforced.tcp == Tcp::DenyAll {
        rules = rules.handle_access(AccessNet::from_all(abi)).map_err(io::Error::other)?;
    }
    if enforced.scopes == Scopes::Closed {
        rules = rules.scope(Scope::from_all(abi)).map_err(io::Error::other)?;
    }
    let mut wall = rules.create().map_err(io::Error::other)?;
    for grant in grants {
        let rights = allowed(grant.access, abi) & fitting(grant.dir, abi)?;
        wall = wall.add_rule(PathBeneath::new(grant.dir, rights)).map_err(io::Error::other)?;
    }
    let status = wall.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced if status.no_new_privs => Ok(enforced),
        _ => Err(io::Error::other("Landlock did not enforce the whole ruleset")),
    }
}

/// Restricts the calling thread, and whatever it starts, to these files, for good, as far as this kernel can. For a
/// process of ours that must still reach networks and signal others. The version that holds; 0: this kernel has none.
///
/// # Errors
/// What the kernel said: a Landlock that is there is put on completely.
pub fn restrict_files(grants: &[Grant<'_>]) -> io::Result<u32> {
    let number = abi().min(NEWEST);
    if number == 0 {
        return Ok(0);
    }
    let abi = rights_of(number);
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let rules = rules.handle_access(AccessFs::from_all(abi)).map_err(io::Error::other)?;
    let mut wall = rules.create().map_err(io::Error::other)?;
    for grant in grants {
        let rights = allowed(grant.access, abi) & fitting(grant.dir, abi)?;
        wall = wall.add_rule(PathBeneath::new(grant.dir, rights)).map_err(io::Error::other)?;
    }
    let status = wall.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced if status.no_new_privs => Ok(number),
        _ => Err(io::Error::other("Landlock did not enforce the whole ruleset")),
    }
}

fn rights_of(number: u32) -> ABI {
    match number {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    }
}

fn allowed(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let never = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let wanted = match access {
        Access::List => AccessFs::ReadDir.into(),
        Access::ReadOnly => read,
        Access::ReadExecute => read | AccessFs::Execute,
        Access::ReadWrite => AccessFs::from_all(abi) & !(never | AccessFs::Execute),
        Access::ReadWriteExecute => AccessFs::from_all(abi) & !never,
        Access::Devices => read | AccessFs::WriteFile,
        Access::Terminals => read | AccessFs::WriteFile | AccessFs::IoctlDev,
        Access::Shared => AccessFs::from_all(abi) & !(never | AccessFs::MakeSock | AccessFs::MakeFifo),
    };
    wanted & AccessFs::from_all(abi)
}

/// The rights that make sense for this descriptor: the kernel refuses directory rights on a file.
fn fitting(dir: BorrowedFd<'_>, abi: ABI) -> io::Result<BitFlags<AccessFs>> {
    let mode = rustix::fs::fstat(dir)?.st_mode;
    let is_directory = rustix::fs::FileType::from_raw_mode(mode).is_dir();
    Ok(if is_directory { AccessFs::from_all(abi) } else { AccessFs::from_file(abi) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::live::{End, call, in_child, wait};
    use rustix::fs::{Mode, OFlags, open};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};
    use std::fs;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::{Path, PathBuf};

    /// A directory of this test's own, gone at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("landlock-{name}-{}", std::process::id()));
            for sub in ["in", "out"] {
                fs::create_dir_all(path.join(sub)).unwrap();
                fs::write(path.join(sub).join("file"), "text").unwrap();
            }
            Self(path)
        }

        fn handle(&self, sub: &str) -> OwnedFd {
            directory(&self.0.join(sub))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn directory(path: &Path) -> OwnedFd {
        open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// The errno of an attempt, 0 for success.
    fn errno<T>(attempt: rustix::io::Result<T>) -> i32 {
        attempt.err().map_or(0, rustix::io::Errno::raw_os_error)
    }

    fn open_for(path: &Path, flags: OFlags) -> i32 {
        errno(open(path, flags, Mode::RUSR | Mode::WUSR))
    }

    /// Runs the attempts in a restricted child. Fails with the position of the first one that went wrong.
    fn expect(grants: &[Grant<'_>], tcp: Tcp, attempts: &[(&str, i32, &dyn Fn() -> i32)]) {
        for (what, _, attempt) in attempts {
            assert_eq!(attempt(), 0, "positive control: {what} works outside");
        }
        let wanted = abi().min(NEWEST);
        let pid = in_child(|| {
            if restrict(grants, tcp, wanted).ok().is_none_or(|enforced| enforced.abi != wanted) {
                return 255;
            }
            let wrong = attempts.iter().position(|(_, wanted, attempt)| attempt() != *wanted);
            wrong.map_or(0, |at| i32::try_from(at).unwrap_or(253) + 1)
        });
        let end = wait(pid);
        let which = match end {
            End::Exit(at @ 1..=253) => usize::try_from(at).ok().and_then(|at| attempts.get(at - 1)),
            _ => None,
        };
        assert_eq!(end, End::Exit(0), "{:?}", which.map(|attempt| attempt.0));
    }

    fn can(what: &str, needed: u32) -> bool {
        let has = abi();
        if has < needed {
            let why = format!("{what} needs Landlock ABI {needed}, this kernel has {has}");
            blastbox_skips::skip_this(&why);
        }
        has >= needed
    }

    #[test]
    fn files_outside_the_grants_cannot_be_opened() {
        if !can("files", 3) {
            return;
        }
        let scratch = Scratch::new("files");
        let (read, write) = (OFlags::RDONLY, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC);
        let at = |path: &str| scratch.0.join(path);
        let (inside, outside, new) = (at("in/file"), at("out/file"), at("in/new"));
        let handle = scratch.handle("in");
        let grant = |access| [Grant { dir: handle.as_fd(), access }];
        let eacces = libc::EACCES;

        let read_in = || open_for(&inside, read);
        let read_out = || open_for(&outside, read);
        let write_in = || open_for(&inside, write);
        let write_out = || open_for(&outside, write);
        let make = || open_for(&new, write);
        expect(
            &grant(Access::ReadWrite),
            Tcp::AllowAll,
            &[
                ("read inside", 0, &read_in),
                ("write inside", 0, &write_in),
                ("create inside", 0, &make),
                ("read outside", eacces, &read_out),
                ("write outside", eacces, &write_out),
            ],
        );
        expect(
            &grant(Access::ReadOnly),
            Tcp::AllowAll,
            &[
                ("read inside", 0, &read_in),
                ("write inside", eacces, &write_in),
                ("read outside", eacces, &read_out),
            ],
        );
        let file = open(&inside, OFlags::PATH, Mode::empty()).unwrap();
        expect(
            &[Grant { dir: file.as_fd(), access: Access::ReadExecute }],
            Tcp::AllowAll,
            &[("read a granted file", 0, &read_in), ("read outside", eacces, &read_out)],
        );
    }

    #[test]
    fn programs_run_only_where_execution_is_granted() {
        if !can("execution", 1) {
            return;
        }
        // A static program needs no loader: execute permission is judged before the kernel looks at the contents, so
        // any file will do. ENOEXEC says that it was allowed.
        let scratch = Scratch::new("run");
        for sub in ["in", "out"] {
            let path = scratch.0.join(sub).join("file");
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let (yes, no) = (scratch.handle("in"), scratch.handle("out"));
        let grants = [
            Grant { dir: yes.as_fd(), access: Access::ReadWriteExecute },
            Grant { dir: no.as_fd(), access: Access::ReadWrite },
        ];
        let run = |sub: &str| {
            let path = std::ffi::CString::new(
                scratch.0.join(sub).join("file").into_os_string().into_encoded_bytes(),
            );
            let path = path.unwrap();
            let argv = [path.as_ptr(), std::ptr::null()];
            let addresses =
                [path.as_ptr().addr(), argv.as_ptr().addr(), argv.as_ptr().addr() + 8].map(|a| a as u64);
            let execve = crate::arch::syscall_number("execve").unwrap();
            match call(execve, [addresses[0], addresses[1], addresses[2], 0, 0, 0]) {
                libc::ENOEXEC => 0,
                other => other,
            }
        };
        let (granted, refused) = (|| run("in"), || run("out"));
        expect(
            &grants,
            Tcp::AllowAll,
            &[("run where granted", 0, &granted), ("run elsewhere", libc::EACCES, &refused)],
        );
    }

    #[test]
    fn tcp_is_refused_even_on_loopback() {
        if !can("TCP", WITH_TCP) {
            return;
        }
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port());
        let dial = || match socket(AddressFamily::INET, SocketType::STREAM, None) {
            Ok(client) => errno(connect(&client, &there)),
            Err(_) => -1,
        };
        let serve = || match socket(AddressFamily::INET, SocketType::STREAM, None) {
            Ok(client) => errno(bind(&client, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))),
            Err(_) => -1,
        };
        let eacces = libc::EACCES;
        expect(&[], Tcp::DenyAll, &[("connect", eacces, &dial), ("bind", eacces, &serve)]);
        expect(&[], Tcp::AllowAll, &[("connect", 0, &dial), ("bind", 0, &serve)]);
    }

    #[test]
    fn abstract_sockets_and_signals_end_at_the_box() {
        if !can("scopes", WITH_SCOPES) {
            return;
        }
        let name = format!("blastbox-landlock-{}", std::process::id());
        let there = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let server = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&server, &there).unwrap();
        listen(&server, 8).unwrap();
        let dial = || match socket(AddressFamily::UNIX, SocketType::STREAM, None) {
            Ok(client) => errno(connect(&client, &there)),
            Err(_) => -1,
        };
        let us = rustix::process::getpid();
        let signal = || errno(rustix::process::test_kill_process(us));
        let own = || errno(rustix::process::test_kill_process(rustix::process::getpid()));
        let eperm = libc::EPERM;
        expect(
            &[],
            Tcp::DenyAll,
            &[
                ("abstract socket", eperm, &dial),
                ("signal to the parent", eperm, &signal),
                ("to itself", 0, &own),
            ],
        );
    }

    #[test]
    fn terminals_keep_their_ioctls_and_other_devices_do_not() {
        if !can("device ioctls", 5) {
            return;
        }
        let (dev, ptmx) = (directory(Path::new("/dev")), directory(Path::new("/dev/ptmx")));
        let grants = [
            Grant { dir: dev.as_fd(), access: Access::Devices },
            Grant { dir: ptmx.as_fd(), access: Access::Terminals },
        ];
        let size = |path: &str| match open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()) {
            Ok(device) => errno(rustix::termios::tcgetwinsize(&device)),
            Err(error) => error.raw_os_error(),
        };
        let null = || match size("/dev/null") {
            libc::ENOTTY => 0, // the device itself answered
            other => other,
        };
        let write = || open_for(Path::new("/dev/null"), OFlags::WRONLY | OFlags::TRUNC);
        let terminal = || size("/dev/ptmx");
        if terminal() != 0 {
            blastbox_skips::skip_this("/dev/ptmx cannot be opened here");
            return;
        }
        expect(
            &grants,
            Tcp::DenyAll,
            &[
                ("terminal ioctl", 0, &terminal),
                ("null ioctl", libc::EACCES, &null),
                ("write null", 0, &write),
            ],
        );
    }

    #[test]
    fn a_kernel_with_less_than_wanted_is_refused_before_anything_happens() {
        let error = restrict(&[], Tcp::DenyAll, u32::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(Path::new("/").read_dir().is_ok());
    }
}
