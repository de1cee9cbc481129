//! What `blastbox` does before the C library is there: it starts the warden of a run.
//!
//! To start, a static C library asks the processor a hundred things, each of which leaves a virtual machine, and a program that may lie
//! anywhere in memory writes its own addresses into it: half a millisecond for each of the two programs of a run. Started from here, the
//! warden's is loaded while the caller's own is still getting ready.
//!
//! The rules of this room: nothing is relocated yet and no function of the C library can be called, also none that the compiler would call for
//! a loop or a copy, nor one of this room that others can call too: that may be reached by a table of addresses, which is empty yet. So there are system calls, numbers, and texts by their distance from the code; bytes are moved one by one and seen to be.
//! It holds for optimized code alone, so other builds have another entry (`crates/cli/build.rs`).
//! What does not go as it goes nearly always is left to [`the usual way`](crate::program::unwritable), which says what is wrong; a file that
//! is no program the kernel knows ends as a warden that ended.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use rustix::process::Pid;

use crate::arch;

/// The program that is started, and its name.
const NAME: &[u8] = b"blastbox-warden\0";
/// Where it lies if not beside this program.
const ELSEWHERE: &[u8] = b"../libexec/blastbox/blastbox-warden\0";
/// What it is told: that it is for one command, and so for one box.
pub const ONE: &str = "one";
const ONE_AS_TEXT: &[u8] = b"one\0";
/// The exit code of a process that could not become the warden.
const NOT_EXECUTED: usize = 127;

static SOCKET: AtomicI32 = AtomicI32::new(-1);
static VIEW: AtomicI32 = AtomicI32::new(-1);
static CHILD: AtomicI32 = AtomicI32::new(0);

/// The path of a program, while one is looked for.
static PATH: [AtomicU8; 4096] = [const { AtomicU8::new(0) }; 4096];

/// What the kernel knows of a file (`struct statx`), in numbers of 32 bits: which of them is its owner, which begins with its mode.
static FACTS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];
const OWNER: usize = 5;
const MODE: usize = 7;
const STATX_MODE_AND_UID: usize = 2 | 8;
/// The bits of a mode that give whoever executes the file its owner or its group.
const GIVES: u32 = 0o6000;
/// Capabilities of this process, of every kind.
static SETS: [AtomicU32; 6] = [const { AtomicU32::new(0) }; 6];

/// The processors that a new process may use, as the kernel writes them: more than this many are left alone.
static PROCESSORS: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// A warden that was started before anything else.
#[derive(Debug)]
pub struct Started {
    /// The caller's end of its socket.
    pub socket: OwnedFd,
    /// What it was started from.
    pub view: OwnedFd,
    /// Its process, a child of this one.
    pub child: Pid,
}

/// The warden that was started before anything else, once. `None`: there is none, for whatever reason.
pub fn take() -> Option<Started> {
    let child = Pid::from_raw(CHILD.swap(0, Ordering::Relaxed))?;
    // SAFETY: opened here and told to nobody: the process id, which says that they are open, is taken by this call alone.
    let owned = |place: &AtomicI32| unsafe { OwnedFd::from_raw_fd(place.load(Ordering::Relaxed)) };
    Some(Started { socket: owned(&SOCKET), view: owned(&VIEW), child })
}

/// Called by the program's entry with the stack as the kernel has left it.
pub(crate) extern "C" fn first(stack: *const usize) {
    // SAFETY: that stack begins with the number of arguments, then their addresses, then a null.
    if unsafe { is_run(stack) }
        && let Some((socket, view, child)) = start()
    {
        SOCKET.store(socket, Ordering::Relaxed);
        VIEW.store(view, Ordering::Relaxed);
        CHILD.store(child, Ordering::Relaxed);
    }
}

/// # Safety
/// `stack` is the one that the kernel gives to a program.
unsafe fn is_run(stack: *const usize) -> bool {
    // SAFETY: the caller's promise.
    if unsafe { stack.read() } < 2 {
        return false;
    }
    // SAFETY: the number, the first argument, the second.
    let verb = unsafe { stack.wrapping_add(2).cast::<*const u8>().read() };
    let letter = |place| {
        // SAFETY: asked for in order, and for none after one that is not as expected: never behind the text's end.
        unsafe { verb.wrapping_add(place).read_volatile() }
    };
    letter(0) == b'r' && letter(1) == b'u' && letter(2) == b'n' && letter(3) == 0
}

/// The socket, what it was started from, and the process.
fn start() -> Option<(i32, i32, i32)> {
    // A standard stream that is closed is for the C library to open: its number is not to be taken here.
    for stream in 0..3 {
        call(libc::SYS_fcntl, [stream, widened(libc::F_GETFD), 0, 0, 0])?;
    }
    let view = from_where_nobody_writes(find()?)?;
    let child = may_execute(view).and_then(|()| pair()).and_then(|[ours, theirs]| {
        let before = here();
        let child = call(libc::SYS_clone, [widened(libc::SIGCHLD), 0, 0, 0, 0]);
        if child == Some(0) {
            leave(before);
            become_warden(view, theirs);
        }
        close(theirs);
        match child {
            Some(child) => drop(put_elsewhere(child)),
            None => close(ours),
        }
        child.map(|child| (ours, child))
    });
    match child {
        Some((socket, child)) => Some((socket, view, child)),
        None => {
            close(view);
            None
        }
    }
}

/// Has a child that was just forked begin on another processor, if there is one. A virtual machine's kernel may take a processor that is idle
/// for one that its host has taken away: then a child waits until its parent does, and what is meant to be done side by side is done
/// one after the other. Which processors the child may use stays as it was. Best effort.
#[inline(never)]
pub fn elsewhere(child: i32) -> Option<()> {
    put_elsewhere(child)
}

/// The same by the child, as its first act. It may begin before its parent has come to that: then it is still on its parent's processor,
/// and the parent waits for it there while others idle. `before`: where its parent was ([`processor`]).
#[inline(never)]
pub fn go_elsewhere(before: Option<usize>) {
    leave(before);
}

/// The processor that this process is on.
#[inline(never)]
pub fn processor() -> Option<usize> {
    here()
}

fn put_elsewhere(child: i32) -> Option<()> {
    move_off(child, here()?)
}

fn leave(before: Option<usize>) {
    if let (Some(before), Some(here)) = (before, here())
        && before == here
    {
        move_off(0, here);
    }
}

fn here() -> Option<usize> {
    let here = AtomicU32::new(0);
    call(libc::SYS_getcpu, [here.as_ptr().expose_provenance(), 0, 0, 0, 0])?;
    usize::try_from(here.into_inner()).ok()
}

/// Has a process (0: this one) go on at another processor than this one.
fn move_off(process: i32, here: usize) -> Option<()> {
    let set = [widened(process), size_of_val(&PROCESSORS), PROCESSORS.as_ptr().expose_provenance(), 0, 0];
    call(libc::SYS_sched_getaffinity, set)?;
    let (word, bit) = (PROCESSORS.get(here / 64)?, 1 << (here % 64));
    // Parent and child may be at it at the same time. Whoever sees what the other has taken out for a moment leaves it alone: it would be
    // put back as what the process had before, for good.
    if word.load(Ordering::Relaxed) & bit == 0 {
        return None;
    }
    word.fetch_xor(bit, Ordering::Relaxed);
    call(libc::SYS_sched_setaffinity, set);
    word.fetch_xor(bit, Ordering::Relaxed);
    call(libc::SYS_sched_setaffinity, set).map(drop)
}

/// The warden's program, opened.
fn find() -> Option<i32> {
    let room = PATH.len().checked_sub(ELSEWHERE.len())?;
    let own = call(
        libc::SYS_readlinkat,
        [0, text(b"/proc/self/exe\0"), PATH.as_ptr().expose_provenance(), room, 0],
    )?;
    // Not one that was cut off: what is its last slash then may be that of another directory.
    let mut directory = usize::try_from(own).ok().filter(|length| *length < room)?;
    while PATH.get(directory.checked_sub(1)?)?.load(Ordering::Relaxed) != b'/' {
        directory = directory.checked_sub(1)?;
    }
    open_at(directory, NAME).or_else(|| open_at(directory, ELSEWHERE))
}

fn open_at(directory: usize, name: &[u8]) -> Option<i32> {
    let mut place = directory;
    for letter in name {
        PATH.get(place)?.store(*letter, Ordering::Relaxed);
        place = place.checked_add(1)?;
    }
    open(PATH.as_ptr().expose_provenance(), libc::O_RDONLY)
}

/// What it is executed from; the descriptor that was given is this, or is closed.
fn from_where_nobody_writes(file: i32) -> Option<i32> {
    let view = show(file);
    if view.is_none() && out_of_reach(file, &FACTS, &SETS) {
        return Some(file);
    }
    close(file);
    view
}

/// Whether a file is somebody else's, and closed to writing for this user: then no process of his can change it, whichever way it comes by
/// it. Not for a process with any capability, which might look past owners and modes; and not for a file that gives whoever executes it
/// another user or capabilities, which a copy of it would not.
#[inline(never)]
pub fn is_out_of_reach(file: i32) -> bool {
    out_of_reach(file, &[const { AtomicU32::new(0) }; _], &[const { AtomicU32::new(0) }; _])
}

/// With places for the kernel's answers.
fn out_of_reach(file: i32, about: &[AtomicU32; 64], sets: &[AtomicU32; 6]) -> bool {
    let here = widened(libc::AT_EMPTY_PATH);
    let asked = [widened(file), text(b"\0"), here, STATX_MODE_AND_UID, about.as_ptr().expose_provenance()];
    if call(libc::SYS_statx, asked).is_none() {
        return false;
    }
    let fact = |place: usize| about.get(place).map(|fact| fact.load(Ordering::Relaxed));
    let owner = fact(OWNER).and_then(|owner| i32::try_from(owner).ok());
    let is_own = |number| owner.is_none() || call(number, [0; 5]).is_none_or(|user| Some(user) == owner);
    if is_own(libc::SYS_geteuid)
        || is_own(libc::SYS_getuid)
        || fact(MODE).is_none_or(|mode| mode & GIVES != 0)
    {
        return false;
    }
    let capabilities = [widened(file), text(b"security.capability\0"), 0, 0, 0];
    if !matches!(refusal(libc::SYS_fgetxattr, capabilities), libc::ENODATA | libc::EOPNOTSUPP) {
        return false;
    }
    let header = [0x2008_0522_u32, 0]; // version 3, this process
    let asked = [header.as_ptr().expose_provenance(), sets.as_ptr().expose_provenance(), 0, 0, 0];
    if call(libc::SYS_capget, asked).is_none() || sets.iter().any(|set| set.load(Ordering::Relaxed) != 0) {
        return false;
    }
    let flags = widened(libc::AT_EMPTY_PATH | libc::AT_EACCESS);
    let writing = [widened(file), text(b"\0"), widened(libc::W_OK), flags, 0];
    refusal(libc::SYS_faccessat2, writing) == libc::EACCES
}

/// Why one of the system calls of this room was refused; 0: it was not.
fn refusal(number: libc::c_long, arguments: [usize; 5]) -> i32 {
    // SAFETY: as in `call`.
    let result = unsafe { arch::system_call(number, arguments) };
    i32::try_from(result.min(0)).map_or(0, i32::wrapping_neg)
}

/// A read-only view of it, on a mount that is attached nowhere (CVE-2019-5736). Whoever may not mount goes the usual way.
fn show(file: i32) -> Option<i32> {
    let here = libc::AT_EMPTY_PATH;
    let flags = usize::try_from(libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC).ok()?;
    let view = call(libc::SYS_open_tree, [widened(file), text(b"\0"), flags | widened(here), 0, 0])?;
    let set = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let attributes = [set, 0, 0, 0];
    let (address, length) = (attributes.as_ptr().expose_provenance(), size_of_val(&attributes));
    match call(libc::SYS_mount_setattr, [widened(view), text(b"\0"), widened(here), address, length]) {
        Some(_) => Some(view),
        None => {
            close(view);
            None
        }
    }
}

/// Where it cannot be executed, the usual way says so.
fn may_execute(view: i32) -> Option<()> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    let wanted = [widened(view), text(b"\0"), widened(libc::X_OK), widened(flags), 0];
    call(libc::SYS_faccessat2, wanted).map(drop)
}

fn pair() -> Option<[i32; 2]> {
    let ends = [const { AtomicI32::new(-1) }; 2];
    let kind = widened(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC);
    call(libc::SYS_socketpair, [widened(libc::AF_UNIX), kind, 0, ends.as_ptr().expose_provenance(), 0])?;
    let [ours, theirs] = ends;
    Some([ours.into_inner(), theirs.into_inner()])
}

/// The child: as the usual way starts it, with an empty environment, a group of its own, and its socket as standard input. What else is
/// open it closes itself.
fn become_warden(view: i32, socket: i32) -> ! {
    // 1 and not 0, and no trouble where that cannot be: as the caller limits itself, only that it has not come to that yet.
    let core = [1_u64; 2];
    call(
        libc::SYS_prlimit64,
        [0, usize::try_from(libc::RLIMIT_CORE).unwrap_or(0), core.as_ptr().expose_provenance(), 0, 0],
    );
    call(libc::SYS_setpgid, [0; 5]);
    let null = open(text(b"/dev/null\0"), libc::O_WRONLY);
    let placed = |from: Option<i32>, to| call(libc::SYS_dup3, [widened(from.unwrap_or(-1)), to, 0, 0, 0]);
    if placed(Some(socket), 0).is_some() && placed(null, 1).is_some() {
        let (arguments, environment) = ([text(NAME), text(ONE_AS_TEXT), 0], [0_usize]);
        let lists = (arguments.as_ptr().expose_provenance(), environment.as_ptr().expose_provenance());
        let flags = widened(libc::AT_EMPTY_PATH);
        call(libc::SYS_execveat, [widened(view), text(b"\0"), lists.0, lists.1, flags]);
    }
    loop {
        call(libc::SYS_exit_group, [NOT_EXECUTED, 0, 0, 0, 0]);
    }
}

/// Opens what lies at an absolute path.
fn open(path: usize, how: i32) -> Option<i32> {
    call(libc::SYS_openat, [0, path, widened(how | libc::O_CLOEXEC), 0, 0])
}

fn close(fd: i32) {
    call(libc::SYS_close, [widened(fd), 0, 0, 0, 0]);
}

/// Where a text lies that ends in a zero.
fn text(text: &'static [u8]) -> usize {
    text.as_ptr().expose_provenance()
}

/// A small number as an argument. A negative one, which none is that means something, becomes one that every call refuses.
fn widened(number: i32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// One of the system calls above, with their arguments: a number that is no error. `None`: it was refused.
fn call(number: libc::c_long, arguments: [usize; 5]) -> Option<i32> {
    // SAFETY: every address that is passed in this room is that of a text with its end, or of a place as large as the call wants,
    // which outlives it.
    let result = unsafe { arch::system_call(number, arguments) };
    i32::try_from(result).ok().filter(|number| *number >= 0)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that somebody has just made")]
    fn a_child_that_begins_elsewhere_may_use_what_it_could_before() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let before = sched_getaffinity(Pid::from_raw(pid)).unwrap();

        let moved = elsewhere(pid);
        let after = sched_getaffinity(Pid::from_raw(pid));
        child.kill().unwrap();
        child.wait().unwrap();

        assert_eq!(moved, Some(()));
        assert_eq!(after, Ok(before));
        assert_eq!(elsewhere(pid), None, "one that is gone is nobody's trouble");
    }
}
