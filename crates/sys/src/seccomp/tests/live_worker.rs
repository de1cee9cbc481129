//! What a Wasm worker that was taken over while a guest runs gets from the running kernel: a forked child puts on the worker's two filters,
//! one after the other as the worker does, and asks for everything that would lead out of it.

use std::ffi::CStr;

use super::super::monitors::KEPT;
use super::super::{Filter, Monitor};
use super::live::{End, call, in_child, wait};
use crate::arch;

const READ_WRITE: u64 = 3;
const EXECUTE: u64 = 4;
const PAGE: u64 = 4096;
/// Private and of no file.
const ANONYMOUS: u64 = 0x22;
/// No descriptor, or whoever is not there.
const NOBODY: u64 = u64::MAX;
const ALIVE: u64 = 0;
/// Whoever is in the process group of the caller.
const ITS_GROUP: u64 = 0;

/// Calls that newer kernels pass by every filter: they do something for the kernel's own trampoline only, and nothing for anybody else.
const PAST_FILTERS: [&str; 2] = ["uretprobe", "uprobe"];

/// Whether whoever is not locked in may do it, whoever he is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Else {
    Allowed,
    /// It asks for privileges, is not in every kernel, or would change the child too much to be tried.
    Untold,
}

fn address(text: &'static CStr) -> u64 {
    text.as_ptr().addr() as u64
}

/// A page of this process. Whoever is locked in may still have it.
fn page() -> u64 {
    // SAFETY: new memory at an address of the kernel's choice.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    at.addr() as u64
}

/// Call, arguments, and whether others may.
fn burglary(page: u64, parent: u64) -> Vec<(&'static str, [u64; 6], Else)> {
    use Else::{Allowed, Untold};
    let path = address(c"/etc/passwd");
    vec![
        // Code.
        ("mmap", [0, PAGE, READ_WRITE | EXECUTE, ANONYMOUS, NOBODY, 0], Allowed),
        ("mmap", [0, PAGE, EXECUTE, ANONYMOUS, NOBODY, 0], Allowed),
        ("mprotect", [page, PAGE, READ_WRITE | EXECUTE, 0, 0, 0], Allowed),
        ("mprotect", [page, PAGE, EXECUTE, 0, 0, 0], Allowed),
        ("pkey_mprotect", [page, PAGE, EXECUTE, NOBODY, 0, 0], Allowed),
        ("memfd_create", [address(c"x"), 0, 0, 0, 0, 0], Allowed),
        ("memfd_secret", [0; 6], Untold),
        ("shmat", [0, 0, 0, 0, 0, 0], Untold),
        ("personality", [0x40_0000, 0, 0, 0, 0, 0], Allowed),
        // Programs and processes.
        ("execve", [address(c"/bin/true"), 0, 0, 0, 0, 0], Untold),
        ("execveat", [255, address(c""), 0, 0, 0x1000, 0], Untold),
        ("clone", [17, 0, 0, 0, 0, 0], Untold),
        ("clone", [0x3D_0F00, 0, 0, 0, 0, 0], Untold),
        ("clone3", [page, 88, 0, 0, 0, 0], Untold),
        ("fork", [0; 6], Untold),
        ("vfork", [0; 6], Untold),
        // Others.
        ("kill", [parent, ALIVE, 0, 0, 0, 0], Allowed),
        ("kill", [ITS_GROUP, ALIVE, 0, 0, 0, 0], Allowed),
        ("tkill", [parent, ALIVE, 0, 0, 0, 0], Allowed),
        ("tgkill", [parent, parent, ALIVE, 0, 0, 0], Allowed),
        ("pidfd_open", [parent, 0, 0, 0, 0, 0], Untold),
        ("pidfd_send_signal", [NOBODY, ALIVE, 0, 0, 0, 0], Untold),
        ("pidfd_getfd", [NOBODY, 0, 0, 0, 0, 0], Untold),
        ("ptrace", [16, parent, 0, 0, 0, 0], Untold),
        ("process_vm_readv", [parent, page, 1, page, 1, 0], Untold),
        ("process_vm_writev", [parent, page, 1, page, 1, 0], Untold),
        ("process_madvise", [NOBODY, page, 1, 0, 0, 0], Untold),
        ("kcmp", [parent, parent, 0, 0, 0, 0], Untold),
        ("setpriority", [0, 0, 0, 0, 0, 0], Untold),
        ("prlimit64", [0, 7, 0, page, 0, 0], Allowed),
        // Files.
        ("open", [path, 0, 0, 0, 0, 0], Allowed),
        ("openat", [NOBODY, path, 0, 0, 0, 0], Allowed),
        ("openat2", [NOBODY, path, page, 24, 0, 0], Untold),
        ("creat", [address(c"/tmp/x"), 0, 0, 0, 0, 0], Untold),
        ("newfstatat", [NOBODY, path, page, 0, 0, 0], Allowed),
        ("statx", [NOBODY, path, 0, 0, page, 0], Untold),
        ("access", [path, 0, 0, 0, 0, 0], Allowed),
        ("readlink", [address(c"/proc/self/exe"), page, PAGE, 0, 0, 0], Untold),
        ("chdir", [address(c"/"), 0, 0, 0, 0, 0], Allowed),
        ("name_to_handle_at", [NOBODY, path, page, page, 0, 0], Untold),
        ("open_by_handle_at", [NOBODY, page, 0, 0, 0, 0], Untold),
        ("getdents64", [0, page, PAGE, 0, 0, 0], Untold),
        ("dup", [1, 0, 0, 0, 0, 0], Untold),
        ("fcntl", [1, 0, 0, 0, 0, 0], Untold),
        ("ioctl", [1, 0x5412, page, 0, 0, 0], Untold),
        ("pwrite64", [1, page, 0, 0, 0, 0], Untold),
        ("sendfile", [1, 0, 0, 0, 0, 0], Untold),
        ("splice", [0, 0, 1, 0, 0, 0], Untold),
        // The network, and descriptors of others.
        ("socket", [1, 1, 0, 0, 0, 0], Allowed),
        ("socket", [2, 1, 0, 0, 0, 0], Untold),
        ("socket", [16, 3, 0, 0, 0, 0], Untold),
        ("socketpair", [1, 1, 0, page, 0, 0], Allowed),
        ("connect", [1, page, 16, 0, 0, 0], Untold),
        ("bind", [1, page, 16, 0, 0, 0], Untold),
        ("recvmsg", [3, page, 0, 0, 0, 0], Untold),
        ("sendmsg", [3, page, 0, 0, 0, 0], Untold),
        // Names, mounts, users.
        ("unshare", [0x1000_0000, 0, 0, 0, 0, 0], Untold),
        ("setns", [NOBODY, 0, 0, 0, 0, 0], Untold),
        ("mount", [page, path, page, 0, 0, 0], Untold),
        ("umount2", [path, 0, 0, 0, 0, 0], Untold),
        ("fsopen", [page, 0, 0, 0, 0, 0], Untold),
        ("open_tree", [NOBODY, path, 0, 0, 0, 0], Untold),
        ("move_mount", [NOBODY, page, NOBODY, page, 0, 0], Untold),
        ("pivot_root", [path, path, 0, 0, 0, 0], Untold),
        ("chroot", [address(c"/"), 0, 0, 0, 0, 0], Untold),
        ("setuid", [0; 6], Untold),
        ("setresuid", [NOBODY, NOBODY, NOBODY, 0, 0, 0], Allowed),
        ("capset", [page, page, 0, 0, 0, 0], Untold),
        ("prctl", [4, 1, 0, 0, 0, 0], Allowed),
        ("prctl", [3, 0, 0, 0, 0, 0], Allowed),
        ("seccomp", [1, 0, page, 0, 0, 0], Untold),
        // The rest of the kernel.
        ("bpf", [0, page, 16, 0, 0, 0], Untold),
        ("io_uring_setup", [1, page, 0, 0, 0, 0], Untold),
        ("io_uring_enter", [NOBODY, 0, 0, 0, 0, 0], Untold),
        ("userfaultfd", [1, 0, 0, 0, 0, 0], Untold),
        ("perf_event_open", [page, 0, 0, NOBODY, 0, 0], Untold),
        ("keyctl", [0, 0xFFFF_FFFD, 0, 0, 0, 0], Untold),
        ("add_key", [page, page, 0, 0, 0, 0], Untold),
        ("modify_ldt", [0, page, PAGE, 0, 0, 0], Untold),
        ("init_module", [page, 0, page, 0, 0, 0], Untold),
        ("kexec_load", [0, 0, page, 0, 0, 0], Untold),
        ("iopl", [3, 0, 0, 0, 0, 0], Untold),
        ("reboot", [0; 6], Untold),
    ]
}

/// What a worker puts on at its start, and before a guest runs.
fn filters() -> [Filter; 2] {
    [Filter::for_monitor(Monitor::Wasm, 255), Filter::for_wasm_locked()]
}

/// What goes wrong is told as a number, and looked up by the one who waits.
fn locked(filters: &[Filter; 2], body: impl FnOnce() -> Option<usize>) -> End {
    wait(in_child(|| {
        let ready = rustix::thread::set_no_new_privs(true).is_ok()
            && filters.iter().all(|filter| filter.install().is_ok());
        // Nothing is told by more than a byte.
        if ready { body().map_or(0, |number| i32::try_from(number % 250).unwrap_or(0) + 2) } else { 1 }
    }))
}

#[test]
fn a_worker_that_was_taken_over_gets_nothing_that_leads_out_of_it() {
    let (page, parent) = (page(), u64::from(std::process::id()));
    let all = burglary(page, parent);
    let number = |name: &str| arch::syscall_number(name).unwrap_or_else(|| panic!("{name} is no call here"));
    let calls: Vec<(u32, [u64; 6])> = all.iter().map(|(name, args, _)| (number(name), *args)).collect();
    let refused = |(nr, args): &(u32, [u64; 6])| call(*nr, *args) == libc::EPERM;
    let told = locked(&filters(), || calls.iter().position(|asked| !refused(asked)));
    let which = |end: &End| match end {
        End::Exit(code) => {
            usize::try_from(code - 2).ok().and_then(|at| all.get(at)).map(|(name, args, _)| (*name, *args))
        }
        End::Signal(_) => None,
    };
    assert_eq!(told, End::Exit(0), "{:?}", which(&told));
    // The same calls are not refused to whoever is not locked in: it is the lock that holds.
    let open: Vec<usize> =
        (0..all.len()).filter(|at| all.get(*at).is_some_and(|(.., other)| *other == Else::Allowed)).collect();
    let free = wait(in_child(|| {
        let works = |at: &usize| calls.get(*at).is_some_and(|(nr, args)| call(*nr, *args) != libc::EPERM);
        open.iter().find(|at| !works(at)).map_or(0, |at| i32::try_from(*at).unwrap_or(0) + 2)
    }));
    assert_eq!(free, End::Exit(0), "{:?}", which(&free));
}

#[test]
fn the_kernel_refuses_a_worker_that_runs_guests_every_call_that_is_on_no_list() {
    let denied = arch::CALLS.iter().filter(|(_, name)| !KEPT.iter().any(|line| line.0.contains(name)));
    let denied: Vec<(u32, &str)> = denied.copied().filter(|(_, name)| !PAST_FILTERS.contains(name)).collect();
    assert!(denied.len() > 250, "{}", denied.len());
    let filters = filters();
    let tried = |number: u32| locked(&filters, || (call(number, [0; 6]) != libc::EPERM).then_some(0));
    let got: Vec<(&str, End)> = denied
        .iter()
        .map(|(number, name)| (*name, tried(*number)))
        .filter(|(_, end)| *end != End::Exit(0))
        .collect();
    assert!(got.is_empty(), "{got:?}");
}
