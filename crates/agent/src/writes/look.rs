//! Reads the names that a watched call was given, while its caller sleeps.
//!
//! Trust: memory, names and links are the payload's, and may change at any moment: what is read here is told and decides
//! nothing. Reads are bounded; nothing is opened but names (`O_PATH`), which reaches no driver and waits for nobody.
//!
//! Must not: make a watched call. The thread that answers them is the one that runs here.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use blastbox_sys::guise::open_files_as;
use blastbox_sys::seccomp::Denied;
use blastbox_sys::spawn::Identity;
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::process::DumpableBehavior;

use super::names::{Directory, Last, names_of, opens_to_change};
use super::unexpected::plain;

/// The longest name that the kernel takes.
const LONGEST: usize = 4096;
/// Reads do not cross a page: the next one may not be there, and need not be.
const PAGE: u64 = 4096;
const WORKING_DIRECTORY: i32 = -100;

/// Its caller hides its memory, or there is nothing where its arguments point.
#[derive(Debug)]
pub(super) struct Hidden;

/// Whose eyes names are read with: the kernel shows memory to its own user only. Most are the payload's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eyes {
    payload: Option<Identity>,
    has_root: bool,
}

impl Eyes {
    /// Puts the payload's on, for the thread that calls.
    pub(super) fn open(payload: Option<Identity>, root: Option<Identity>) -> io::Result<Self> {
        let eyes = Self { payload, has_root: root.is_some() };
        eyes.become_payload()?;
        Ok(eyes)
    }

    fn become_payload(self) -> io::Result<()> {
        match self.payload {
            Some(Identity { uid, gid, .. }) => see_as(uid, gid),
            None => Ok(()),
        }
    }

    /// What a call changes, by real paths as far as they can be known. An error is the end of the agent: it would go on as somebody else.
    pub(super) fn names(self, call: &Denied) -> io::Result<Result<Vec<Vec<u8>>, Hidden>> {
        let seen = names(call);
        if seen.is_ok() || self.payload.is_none() || !self.has_root {
            return Ok(seen);
        }
        // A command of the box's root.
        see_as(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())?;
        let seen = names(call);
        self.become_payload()?;
        Ok(seen)
    }
}

/// The kernel makes a process that changes its file user visible to others, if the host is set up so: said again at once.
fn see_as(uid: u32, gid: u32) -> io::Result<()> {
    open_files_as(uid, gid)?;
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn names(call: &Denied) -> Result<Vec<Vec<u8>>, Hidden> {
    let argument = |at: usize| call.args.get(at).copied().unwrap_or_default();
    let read = OFlags::RDONLY | OFlags::CLOEXEC;
    let memory = openat(CWD, format!("/proc/{}/mem", call.pid), read, Mode::empty()).map_err(|_| Hidden)?;
    if call.name() == Some("openat2") {
        let mut flags = [0; 8];
        let got = rustix::io::pread(&memory, &mut flags, argument(2)).map_err(|_| Hidden)?;
        if got < flags.len() {
            return Err(Hidden);
        }
        if !opens_to_change(u64::from_ne_bytes(flags)) {
            return Ok(Vec::new());
        }
    }
    let mut names = Vec::new();
    for name in names_of(call.nr) {
        let text = text(&memory, argument(name.text))?;
        let from = match name.directory {
            Directory::Working => WORKING_DIRECTORY,
            // As the kernel does: the low half, signed.
            Directory::Argument(at) => low_half(argument(at)),
        };
        // An empty name is none, or a descriptor's own.
        if !text.is_empty() {
            names.push(resolve(call.pid, from, &text, name.last));
        }
    }
    Ok(names)
}

#[expect(clippy::cast_possible_truncation, reason = "the kernel reads an `int`")]
const fn low_half(argument: u64) -> i32 {
    argument as i32
}

/// The text at an address, up to its end or the longest name.
fn text(memory: &OwnedFd, mut at: u64) -> Result<Vec<u8>, Hidden> {
    let mut text = Vec::new();
    let mut page = [0; LONGEST];
    while text.len() < LONGEST {
        let to_edge = usize::try_from(PAGE - at % PAGE).unwrap_or(LONGEST);
        let piece = page.get_mut(..to_edge.min(LONGEST)).ok_or(Hidden)?;
        let got = rustix::io::pread(memory, &mut *piece, at).map_err(|_| Hidden)?;
        let piece = piece.get(..got).unwrap_or_default();
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(piece.get(..end).unwrap_or_default());
            return Ok(text);
        }
        if piece.is_empty() {
            return Err(Hidden);
        }
        text.extend_from_slice(piece);
        at = at.checked_add(u64::try_from(got).unwrap_or(PAGE)).ok_or(Hidden)?;
    }
    // The kernel refuses it.
    text.truncate(LONGEST);
    Ok(text)
}

/// The real path of a name, links followed, as far as it can be known; else what the text says.
fn resolve(pid: u32, from: i32, text: &[u8], last: Last) -> Vec<u8> {
    let ours = from_here(pid, from, text);
    let whole = match last {
        Last::Followed => real(&ours),
        Last::Itself => None,
    };
    whole.or_else(|| of_parent(&ours)).unwrap_or_else(|| {
        let begin = match text.first() {
            Some(b'/') => Vec::new(),
            _ => link(&format!("/proc/{pid}/{}", start(from))).unwrap_or_default(),
        };
        plain(&[begin.as_slice(), b"/", text].concat())
    })
}

/// A path by which this thread finds what the caller means.
fn from_here(pid: u32, from: i32, text: &[u8]) -> Vec<u8> {
    let own = |rest: &[u8]| [format!("/proc/{pid}").as_bytes(), rest].concat();
    let is_end = |rest: &[u8]| rest.is_empty() || rest.starts_with(b"/");
    let text_of = |prefix: &[u8]| text.strip_prefix(prefix).filter(|rest| is_end(rest));
    // Who "self" is depends on who asks.
    if let Some(rest) = text_of(b"/proc/self").or_else(|| text_of(b"/proc/thread-self")) {
        return own(rest);
    }
    if let Some(rest) = text_of(b"/dev/fd") {
        return own(&[b"/fd", rest].concat());
    }
    for (name, number) in [(&b"/dev/stdin"[..], "0"), (b"/dev/stdout", "1"), (b"/dev/stderr", "2")] {
        if text == name {
            return own(format!("/fd/{number}").as_bytes());
        }
    }
    match text.first() {
        Some(b'/') => text.to_vec(),
        _ => own(&[b"/", start(from).as_bytes(), b"/", text].concat()),
    }
}

/// Where a relative name begins, among what the kernel tells of its caller.
fn start(from: i32) -> String {
    if from == WORKING_DIRECTORY { "cwd".to_owned() } else { format!("fd/{from}") }
}

fn of_parent(path: &[u8]) -> Option<Vec<u8>> {
    let trimmed = path.len() - path.iter().rev().take_while(|byte| **byte == b'/').count();
    let path = path.get(..trimmed)?;
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let (parent, name) = (path.get(..=at)?, path.get(at + 1..)?);
    if name == b"." || name == b".." {
        return real(path);
    }
    let mut real = real(parent)?;
    if real != b"/" {
        real.push(b'/');
    }
    real.extend_from_slice(name);
    Some(real)
}

fn real(path: &[u8]) -> Option<Vec<u8>> {
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    link(&format!("/proc/self/fd/{}", found.as_raw_fd()))
}

fn link(at: &str) -> Option<Vec<u8>> {
    readlinkat(CWD, at, Vec::with_capacity(256)).ok().map(std::ffi::CString::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that looks is the one that is looked at.
    fn seen(from: i32, text: &[u8], last: Last) -> Vec<u8> {
        resolve(std::process::id(), from, text, last)
    }

    #[test]
    fn names_are_read_page_by_page_and_no_longer_than_the_kernel_would() {
        let memory = OwnedFd::from(std::fs::File::open("/proc/self/mem").unwrap());
        let long = vec![b'x'; 3 * LONGEST];
        let long = std::ffi::CString::new(long).unwrap();
        let address = |text: &std::ffi::CStr| u64::try_from(text.as_ptr().addr()).unwrap();
        assert_eq!(text(&memory, address(c"/etc/passwd")).unwrap(), b"/etc/passwd");
        assert_eq!(text(&memory, address(&long)).unwrap().len(), LONGEST);
        for nowhere in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63] {
            assert!(text(&memory, nowhere).is_err(), "{nowhere:x}");
        }
    }

    #[test]
    fn links_are_followed_where_the_call_follows_them() {
        let place = std::env::temp_dir().join(format!("writes-look-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let link = place.join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).ok();
        std::os::unix::fs::symlink("/etc", place.join("folder")).ok();
        let text = link.to_str().unwrap().as_bytes();
        let folder = place.join("folder/new").to_str().unwrap().as_bytes().to_vec();
        let (followed, itself) =
            (seen(WORKING_DIRECTORY, text, Last::Followed), seen(WORKING_DIRECTORY, text, Last::Itself));
        let new = seen(WORKING_DIRECTORY, &folder, Last::Followed);
        let opened = OwnedFd::from(std::fs::File::open(&place).unwrap());
        let beneath = seen(opened.as_raw_fd(), b"folder/../x", Last::Followed);
        let lost = seen(WORKING_DIRECTORY, b"/no/such/../place/x", Last::Followed);
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(followed, b"/etc/passwd");
        assert_eq!(itself, text);
        assert_eq!(new, b"/etc/new");
        assert_eq!(beneath, b"/x", "above the directory that the link leads to");
        assert_eq!(lost, b"/no/place/x");
    }

    #[test]
    fn self_is_whoever_called() {
        assert_eq!(from_here(7, -100, b"/proc/self/comm"), b"/proc/7/comm");
        assert_eq!(from_here(7, -100, b"/proc/thread-self"), b"/proc/7");
        assert_eq!(from_here(7, -100, b"/proc/selfish"), b"/proc/selfish");
        assert_eq!(from_here(7, -100, b"/dev/stdout"), b"/proc/7/fd/1");
        assert_eq!(from_here(7, -100, b"/dev/fd/9"), b"/proc/7/fd/9");
        assert_eq!(from_here(7, -100, b"x/y"), b"/proc/7/cwd/x/y");
        assert_eq!(from_here(7, 5, b"x"), b"/proc/7/fd/5/x");
    }
}
