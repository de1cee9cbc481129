//! What the child does between fork and exec.
//!
//! Must not: allocate, lock, panic or return. Only calls that are safe after a fork; every failure ends in `_exit`. Where the
//! memory is the parent's, it writes nothing but its own stack and `errno`.

use std::ffi::{CStr, c_int, c_long, c_void};

use super::{Identity, Stage, Terminal, last_errno};

/// All that the child needs, made by the parent. Pointers point into texts that the parent holds across the fork.
pub(super) struct Orders<'a> {
    pub(super) programs: &'a [*const libc::c_char],
    /// Ends with a null pointer.
    pub(super) arguments: &'a [*const libc::c_char],
    /// Ends with a null pointer.
    pub(super) environment: &'a [*const libc::c_char],
    pub(super) directory: &'a CStr,
    pub(super) identity: Option<Identity>,
    pub(super) streams: [c_int; 3],
    pub(super) terminal: Terminal,
    pub(super) oom_score_adj: Option<&'a [u8]>,
    pub(super) report: c_int,
}

/// The child's stack where it has no copy of its parent's. Far more than a few calls need.
const STACK: usize = 32 << 10;

/// Starts the child on the parent's memory, on a stack of its own. Returns when it is the command, or has ended.
pub(super) fn on_lent_memory(orders: &Orders<'_>) -> c_long {
    extern "C" fn begin(orders: *mut c_void) -> c_int {
        // SAFETY: what `on_lent_memory` was given, whose frame waits for the end of this.
        become_command(unsafe { &*orders.cast::<Orders<'_>>() })
    }
    // Nobody writes it beforehand: memory that is touched has its price.
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack grows down from the end of memory that is nobody else's, and the child is done with it and with the orders
    // before this call returns (CLONE_VFORK). Files, directory and signal dispositions are the child's own.
    unsafe { libc::clone(begin, top.cast(), flags, (&raw const *orders).cast_mut().cast()) }.into()
}

/// Becomes the command, or tells the parent why not.
pub(super) fn become_command(orders: &Orders<'_>) -> ! {
    let (stage, errno) = attempt(orders);
    let [a, b, c, d] = errno.to_ne_bytes();
    let message = [stage.letter(), a, b, c, d];
    // SAFETY: the message is on the stack, and five bytes long. Nobody is left to hear that it could not be written.
    unsafe { libc::write(orders.report, message.as_ptr().cast(), message.len()) };
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Every step in order; returns only what failed.
fn attempt(orders: &Orders<'_>) -> (Stage, i32) {
    match prepare(orders) {
        Err(stage) => (stage, last_errno()),
        Ok(()) => execute(orders),
    }
}

fn prepare(orders: &Orders<'_>) -> Result<(), Stage> {
    match orders.terminal {
        // A group is all that is signalled, and a session costs the kernel far more: only a terminal needs one.
        // SAFETY: no memory is passed.
        Terminal::None => check(unsafe { libc::setpgid(0, 0) }, Stage::Streams)?,
        // SAFETY: no memory is passed.
        Terminal::Controlling => check(unsafe { libc::setsid() }, Stage::Streams)?,
    }
    for (to, &from) in (0..).zip(&orders.streams) {
        // SAFETY: no memory is passed. `spawn` has made sure that no source is among the targets.
        check(unsafe { libc::dup2(from, to) }, Stage::Streams)?;
    }
    match orders.terminal {
        Terminal::None => {}
        Terminal::Controlling => {
            // SAFETY: this request takes a number, not a pointer.
            check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) }, Stage::Streams)?;
        }
    }
    // Before the user changes: the file belongs to whoever the parent is.
    if let Some(score) = orders.oom_score_adj {
        volunteer_for_the_oom_killer(score);
    }
    if let Some(identity) = orders.identity {
        take_on(identity)?;
    }
    // As the new user: a directory that it may not enter must not become its working directory.
    // SAFETY: a C string that the parent holds.
    check(unsafe { libc::chdir(orders.directory.as_ptr()) }, Stage::Directory)?;
    // Everything of the parent's closes with the exec: all of it was opened so, and this holds even where it was not.
    // The last number is the largest that a descriptor can have: gVisor's kernel refuses a larger one.
    // SAFETY: no memory is passed.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, i32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    check_long(closed, Stage::Streams)?;
    // The runtime of every Rust program ignores it, and an ignored signal stays so across an exec.
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // Last, so that a signal from outside finds a process that dies of it as any other would.
    check_long(super::house::block_signals(0), Stage::Streams)
}

/// Best effort: where there is no /proc, or it is not ours to write, the command is as precious as its parent.
fn volunteer_for_the_oom_killer(score: &[u8]) {
    // SAFETY: a C string constant.
    let file = unsafe { libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if file >= 0 {
        // SAFETY: pointer and length are those of one slice.
        unsafe { libc::write(file, score.as_ptr().cast(), score.len()) };
        // SAFETY: the descriptor was opened here and is used nowhere else.
        unsafe { libc::close(file) };
    }
}

/// By the kernel's own calls: the C library's would try to carry threads along.
fn take_on(Identity { uid, gid, keeps }: Identity) -> Result<(), Stage> {
    // SAFETY: an empty list: the pointer is not read.
    let groups = unsafe { libc::syscall(libc::SYS_setgroups, 0_usize, std::ptr::null::<libc::gid_t>()) };
    check_long(groups, Stage::Identity)?;
    // SAFETY: no memory is passed.
    check_long(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }, Stage::Identity)?;
    // SAFETY: no memory is passed.
    check_long(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }, Stage::Identity)?;
    // Whatever else is left, permitted, effective and inheritable. The bounding set is the parent's to empty: once, and
    // not for every command.
    let mut header = [0x2008_0522_u32, 0]; // version 3, this process
    let kept = [keeps, keeps, 0, 0, 0, 0];
    // SAFETY: version 3 is a header of eight bytes and two data structs of twelve; the kernel writes only the header.
    let dropped = unsafe { libc::syscall(libc::SYS_capset, header.as_mut_ptr(), kept.as_ptr()) };
    check_long(dropped, Stage::Identity)
}

/// Tries each program as `execvp` does. Returns only when none of them runs.
fn execute(orders: &Orders<'_>) -> (Stage, i32) {
    let mut refused = None;
    for &program in orders.programs {
        // SAFETY: a C string, and two arrays of C strings that end with a null pointer, all held by the parent.
        unsafe { libc::execve(program, orders.arguments.as_ptr(), orders.environment.as_ptr()) };
        match last_errno() {
            libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {}
            libc::EACCES => refused = Some(libc::EACCES),
            other => return (Stage::Execute, other),
        }
    }
    if let Some(errno) = refused {
        return (Stage::Execute, errno);
    }
    // The kernel says ENOENT too when the file is there, and the interpreter that it names is not.
    for &program in orders.programs {
        // SAFETY: a C string, held by the parent.
        if unsafe { libc::faccessat(libc::AT_FDCWD, program, libc::F_OK, 0) } == 0 {
            return (Stage::Execute, libc::ENOENT);
        }
    }
    (Stage::Find, libc::ENOENT)
}

fn check(result: c_int, stage: Stage) -> Result<(), Stage> {
    if result < 0 { Err(stage) } else { Ok(()) }
}

fn check_long(result: c_long, stage: Stage) -> Result<(), Stage> {
    if result < 0 { Err(stage) } else { Ok(()) }
}
