//! The filter against the running kernel: a forked child lives under it, the parent is the supervisor.

use super::super::{Filter, Visibility, errno_for, receive, refuse};
use crate::arch;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
}

/// Forks; the child runs `body`, which may only do what is safe after a fork, and exits with its result.
pub(crate) fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `body` and `_exit` only; glibc's fork leaves its allocator usable.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        let code = body();
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(code) };
    }
    pid
}

pub(crate) fn wait(pid: i32) -> End {
    let mut status = 0;
    // SAFETY: `status` outlives the call and `pid` is our own child, waited for once.
    let done = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(done, pid);
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    }
}

/// A raw call; the errno, or 0 for success.
pub(crate) fn call(nr: u32, args: [u64; 6]) -> i32 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: tests pass calls that are refused, or whose pointers are null or point to constants.
    let done = unsafe { libc::syscall(libc::c_long::from(nr), a, b, c, d, e, f) };
    if done == -1 { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn number(name: &str) -> u32 {
    arch::syscall_number(name).unwrap()
}

pub(super) fn no_new_privs() {
    rustix::thread::set_no_new_privs(true).unwrap();
}

pub(super) fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

pub(super) fn send_fd(through: &OwnedFd, fd: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(through, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).unwrap();
}

pub(super) fn receive_fd(through: &OwnedFd) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(through, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let fds = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.expect("the listener")
}

/// Number, arguments, the errno it must end in (`None`: the kernel's own business), whether it must be seen.
type Attempt = (&'static str, [u64; 6], Option<i32>, bool);

const PATH: &std::ffi::CStr = c"/nowhere/at-all";

fn attempts() -> Vec<Attempt> {
    let eperm = Some(libc::EPERM);
    let afno = Some(libc::EAFNOSUPPORT);
    let high = 0xFFFF_FFFF_0000_0000;
    let path = PATH.as_ptr().addr() as u64;
    let nobody = u64::MAX;
    let mut list: Vec<Attempt> = [
        "keyctl",
        "add_key",
        "io_uring_setup",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "mount",
        "setns",
        "ptrace",
        "process_vm_readv",
        "open_by_handle_at",
        "kexec_load",
        "pidfd_getfd",
        "chroot",
        "msgget",
        "fsopen",
        "move_mount",
        "vmsplice",
        "modify_ldt",
        "clock_settime",
        "process_madvise",
        "swapon",
        "syslog",
    ]
    .map(|name| (name, [0; 6], eperm, true))
    .into();
    list.extend([
        ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], eperm, true),
        ("clone", [0x1000_0011, 0, 0, 0, 0, 0], eperm, true),
        ("clone", [high | 0x1000_0011, 0, 0, 0, 0, 0], eperm, true),
        ("clone3", [0; 6], Some(libc::ENOSYS), false),
        ("get_mempolicy", [0; 6], Some(libc::ENOSYS), false),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0], eperm, true),
        ("ioctl", [0, high | 0x5412, 0, 0, 0, 0], eperm, true),
        ("ioctl", [nobody, 0x5413, 0, 0, 0, 0], Some(libc::EBADF), false),
        ("socket", [40, 1, 0, 0, 0, 0], afno, true),
        ("socket", [17, 3, 0, 0, 0, 0], afno, true),
        ("socket", [38, 5, 0, 0, 0, 0], afno, true),
        ("socket", [high | 38, 5, 0, 0, 0, 0], afno, true),
        ("socket", [16, 3, 0, 0, 0, 0], afno, false),
        ("socket", [2, 3, 1, 0, 0, 0], eperm, true),
        ("socket", [1, 1, 0, 0, 0, 0], Some(0), false),
        ("mknod", [path, 0o020_644, 0, 0, 0, 0], eperm, true),
        ("mknod", [path, 0o010_644, 0, 0, 0, 0], Some(libc::ENOENT), false),
        ("personality", [0x4_0000, 0, 0, 0, 0, 0], eperm, true),
        ("personality", [0xFFFF_FFFF, 0, 0, 0, 0, 0], Some(0), false),
        ("prctl", [35, 0, 0, 0, 0, 0], Some(libc::EINVAL), true),
        ("prctl", [3, 0, 0, 0, 0, 0], Some(0), false),
        ("seccomp", [1, 8, 0, 0, 0, 0], Some(libc::EINVAL), false),
        ("seccomp", [1, 0, 0, 0, 0, 0], Some(libc::EFAULT), false),
        ("setresuid", [nobody, nobody, nobody, 0, 0, 0], Some(0), false),
        ("getpid", [0; 6], Some(0), false),
    ]);
    list
}

#[test]
fn denied_calls_are_seen_by_name_and_their_neighbours_work() {
    let filter = Filter::compile(Visibility::Reported);
    let (ours, theirs) = pair();
    let attempts = attempts();
    let numbers: Vec<u32> = attempts.iter().map(|attempt| number(attempt.0)).collect();

    let pid = in_child(|| {
        no_new_privs();
        let Ok(Some(listener)) = filter.install() else { return 1 };
        send_fd(&theirs, listener.as_fd());
        drop(listener);
        for (nr, attempt) in numbers.iter().zip(&attempts) {
            let errno = call(*nr, attempt.1);
            if rustix::io::write(&theirs, &errno.to_ne_bytes()).is_err() {
                return 2;
            }
        }
        0
    });
    drop(theirs);
    let listener = receive_fd(&ours);

    let (mut seen, mut results) = (Vec::new(), Vec::new());
    while results.len() < attempts.len() {
        let mut both = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&ours, PollFlags::IN)];
        poll(&mut both, None).unwrap();
        let (asked, told) = (both[0].revents(), both[1].revents());
        if asked.contains(PollFlags::IN)
            && let Some(denied) = receive(listener.as_fd()).unwrap()
        {
            assert_eq!(denied.arch, arch::AUDIT_ARCH);
            assert_eq!(denied.pid, u32::try_from(pid).unwrap());
            seen.push(denied.name().unwrap());
            refuse(listener.as_fd(), denied.id, errno_for(denied.nr, &denied.args)).unwrap();
            refuse(listener.as_fd(), !denied.id, libc::EPERM).expect("a caller that is gone is no error");
            assert!(refuse(listener.as_fd(), denied.id, 0).is_err(), "no answer may pass for success");
        }
        if told.contains(PollFlags::IN) {
            let mut errno = [0; 4];
            assert_eq!(rustix::io::read(&ours, &mut errno).unwrap(), 4);
            results.push(i32::from_ne_bytes(errno));
        } else {
            assert!(!told.contains(PollFlags::HUP), "the child died after {} of {:?}", results.len(), seen);
        }
    }
    assert_eq!(wait(pid), End::Exit(0));

    for ((name, args, wanted, _), found) in attempts.iter().zip(results) {
        assert!(wanted.is_none_or(|wanted| wanted == found), "{name} {args:x?} gave {found}, not {wanted:?}");
    }
    let visible: Vec<_> = attempts.iter().filter(|attempt| attempt.3).map(|attempt| attempt.0).collect();
    assert_eq!(seen, visible);
}

#[test]
fn without_a_listener_the_same_calls_fail_unseen() {
    let filter = Filter::compile(Visibility::Silent);
    let attempts = attempts();
    let numbers: Vec<u32> = attempts.iter().map(|attempt| number(attempt.0)).collect();
    let pid = in_child(|| {
        no_new_privs();
        if !matches!(filter.install(), Ok(None)) {
            return 255;
        }
        let wrong =
            |(nr, attempt): (&u32, &Attempt)| attempt.2.is_some_and(|wanted| wanted != call(*nr, attempt.1));
        i32::try_from(numbers.iter().zip(&attempts).position(wrong).map_or(0, |at| at + 1)).unwrap_or(254)
    });
    assert_eq!(wait(pid), End::Exit(0), "the exit code is the first attempt that went wrong, counted from 1");
}

#[test]
fn a_denied_call_whose_listener_is_gone_is_still_refused() {
    let filter = Filter::compile(Visibility::Reported);
    let (unshare, getppid) = (number("unshare"), number("getppid"));
    let pid = in_child(|| {
        no_new_privs();
        drop(filter.install());
        let refused = call(unshare, [0x1000_0000, 0, 0, 0, 0, 0]) == libc::ENOSYS;
        let allowed = call(getppid, [0; 6]) == 0;
        i32::from(!(refused && allowed))
    });
    assert_eq!(wait(pid), End::Exit(0));
}

#[test]
fn an_x32_call_kills_the_process() {
    let filter = Filter::compile(Visibility::Reported);
    let x32 = arch::FOREIGN_BIT.unwrap() | number("getpid");
    let pid = in_child(|| {
        no_new_privs();
        let listener = filter.install();
        call(x32, [0; 6]);
        i32::from(listener.is_ok())
    });
    assert_eq!(wait(pid), End::Signal(libc::SIGSYS));
}

/// `getpid` by way of the 32-bit gate.
#[cfg(target_arch = "x86_64")]
fn int_80() -> i32 {
    let mut result: i32 = 20;
    // SAFETY: the 32-bit getpid takes no argument and touches no memory; the registers that the gate may clear are
    // declared.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inout("eax") result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_32_bit_call_kills_the_process() {
    let control = wait(in_child(|| i32::from(int_80() <= 0)));
    if control != End::Exit(0) {
        blastbox_skips::skip_this(&format!("this kernel has no 32-bit gate ({control:?})"));
        return;
    }
    let filter = Filter::compile(Visibility::Silent);
    let pid = in_child(|| {
        no_new_privs();
        if filter.install().is_err() {
            return 1;
        }
        int_80();
        0
    });
    assert_eq!(wait(pid), End::Signal(libc::SIGSYS));
}

#[test]
fn the_filter_needs_no_new_privs() {
    let filter = Filter::compile(Visibility::Silent);
    let pid = in_child(|| {
        // Root may do without: become nobody first.
        call(number("setresuid"), [65_534, 65_534, 65_534, 0, 0, 0]);
        let refused = filter.install().is_err_and(|error| error.raw_os_error() == Some(libc::EACCES));
        i32::from(!refused)
    });
    assert_eq!(wait(pid), End::Exit(0));
}
