//! What happens beneath a directory, told to the host.
//!
//! The queue of events is the kernel's, with the kernel's bound: what does not fit the host's credit stays there, and
//! when it overflows the host is told that something was lost. Directories that appear are watched too, and what is in
//! them already is told as created: it may have come before the watch.

use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use blastbox_wire::agent::{Change, ChangeKind, Depth, Entry, FileSay};
use blastbox_wire::limits::MAX_PATH;
use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::desk::{Desk, Next, Step, finished};
use super::facts;
use super::place::{ENTER, Places, stat_at};
use super::trouble::Trouble;
use super::walk::{Walk, identity};

/// Entries looked at in one step of a scan.
const STEP: usize = 64;
/// Bytes of events taken from the kernel at once.
const GULP: usize = 4 * 1024;
/// Bytes of one batch.
const BATCH: usize = 32 * 1024;
/// Bytes of paths that may be kept for the directories of one watch.
const MOST_PATHS: usize = 4 * 1024 * 1024;
/// Directories that may wait to be looked through; beyond it everything is looked through once more.
const MOST_WAITING: usize = 1024;

const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// Whether a scan tells what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Findings {
    Told,
    Known,
}

#[derive(Debug)]
struct Scan {
    walk: Walk,
    /// Path of where it began, with a slash behind it unless it is the watched directory.
    prefix: Vec<u8>,
    findings: Findings,
    /// Whether the directory that it began in is watched.
    begun: bool,
}

/// A directory that is being watched.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: OwnedFd,
    /// The directory by its path and by what it is. Not open: who holds it would never hear that it is gone.
    base: (Vec<u8>, (u64, u64)),
    base_watch: i32,
    depth: Depth,
    /// Paths of the watched directories, each with a slash behind it unless it is the base.
    directories: HashMap<i32, Vec<u8>>,
    path_bytes: usize,
    waiting: VecDeque<(Vec<u8>, Findings)>,
    scan: Option<Scan>,
    untold: VecDeque<Change>,
    opening: Option<Entry>,
    told: u64,
    ended: bool,
}

impl Watch {
    pub(super) fn open(places: &Places, path: &[u8], depth: Depth, room: usize) -> Result<Self, Trouble> {
        let base = places.directory(path)?;
        if room == 0 {
            return Err(Trouble(blastbox_wire::agent::Fault::TooMany, Errno::NOSPC));
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let base_watch = places.watch(inotify.as_fd(), base.as_fd(), WATCHED)?;
        let opening = facts::plain(path.to_vec(), &rustix::fs::fstat(&base)?);
        let base = (path.to_vec(), identity(base.as_fd())?);
        let waiting = match depth {
            Depth::One => VecDeque::new(),
            Depth::All => VecDeque::from([(Vec::new(), Findings::Known)]),
        };
        Ok(Self {
            inotify,
            base,
            base_watch,
            depth,
            directories: HashMap::from([(base_watch, Vec::new())]),
            path_bytes: 0,
            waiting,
            scan: None,
            untold: VecDeque::new(),
            opening: Some(opening),
            told: 0,
            ended: false,
        })
    }

    /// Where its events arrive.
    pub(super) fn events(&self) -> &OwnedFd {
        &self.inotify
    }

    /// How many directories it watches.
    pub(super) fn watches(&self) -> usize {
        self.directories.len()
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        if !self.untold.is_empty() {
            return Ok(self.tell(desk));
        }
        if self.ended {
            return Ok(finished(self.told));
        }
        if self.scan.is_some() || self.begin_scan(desk.places) {
            self.scan_some(desk);
            return Ok(Next::Again);
        }
        if let Some(entry) = self.opening.take() {
            desk.say(FileSay::Begun { entry });
        }
        self.take_events()
    }

    fn tell(&mut self, desk: &mut Desk<'_>) -> Next {
        let allowed = desk.allowance().min(BATCH);
        let (mut changes, mut cost) = (Vec::new(), 0_usize);
        while let Some(change) = self.untold.pop_front() {
            let with = cost.saturating_add(change.cost());
            if with > allowed {
                self.untold.push_front(change);
                break;
            }
            cost = with;
            changes.push(change);
        }
        if changes.is_empty() {
            return Next::Sleep;
        }
        self.told = self.told.saturating_add(u64::try_from(changes.len()).unwrap_or(0));
        desk.say(FileSay::Changes { changes });
        Next::Again
    }

    fn note(&mut self, kind: ChangeKind, cookie: u32, path: Vec<u8>) {
        let (kind, path) = if path.len() > MAX_PATH { (ChangeKind::Lost, Vec::new()) } else { (kind, path) };
        self.untold.push_back(Change { kind, cookie, path });
    }

    /// Whether a directory was waiting to be looked through.
    fn begin_scan(&mut self, places: &Places) -> bool {
        let Some((prefix, findings)) = self.waiting.pop_front() else { return false };
        let path = prefix.strip_suffix(b"/").unwrap_or(b".");
        match self.open_beneath(places, path).and_then(|directory| Ok(Walk::new(directory)?)) {
            Ok(walk) => self.scan = Some(Scan { walk, prefix, findings, begun: false }),
            // Gone again, or no directory any more: then there is nothing to watch.
            Err(Trouble(_, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
            Err(_) => self.note(ChangeKind::Unwatched, 0, path.to_vec()),
        }
        true
    }

    fn open_beneath(&self, places: &Places, path: &[u8]) -> Result<OwnedFd, Trouble> {
        let (base_path, base_identity) = &self.base;
        let base = places.directory(base_path)?;
        if identity(base.as_fd())? != *base_identity {
            return Err(Errno::STALE.into());
        }
        Ok(super::resolve::beneath(base.as_fd(), path, ENTER)?)
    }

    fn scan_some(&mut self, desk: &mut Desk<'_>) {
        let Some(mut scan) = self.scan.take() else { return };
        if !std::mem::replace(&mut scan.begun, true)
            && !scan.prefix.is_empty()
            && !self.add(desk, &scan, scan.prefix.clone())
        {
            return;
        }
        for _ in 0..STEP {
            let Ok(found) = scan.walk.next() else { return };
            let Some(name) = found else {
                match scan.walk.leave() {
                    Ok(Some(_)) => continue,
                    // The end; or the tree has moved, and whoever moved it made events.
                    Ok(None) | Err(_) => return,
                }
            };
            let path = [scan.prefix.as_slice(), &scan.walk.path_to(&name)].concat();
            let Ok(stat) = scan.walk.here().and_then(|here| stat_at(here, &name)) else { continue };
            if scan.findings == Findings::Told {
                self.note(ChangeKind::Created, 0, path.clone());
            }
            if FileType::from_raw_mode(stat.st_mode).is_dir() {
                match scan.walk.enter(&name) {
                    Ok(()) => {
                        if !self.add(desk, &scan, [path.as_slice(), b"/"].concat()) {
                            return;
                        }
                    }
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(_) => self.note(ChangeKind::Unwatched, 0, path),
                }
            }
        }
        self.scan = Some(scan);
    }

    /// Watches the directory that the scan stands in. Whether the scan may go on.
    fn add(&mut self, desk: &mut Desk<'_>, scan: &Scan, path: Vec<u8>) -> bool {
        let plain = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
        let full = desk.watches == 0 || self.path_bytes.saturating_add(path.len()) > MOST_PATHS;
        let added = if full {
            Err(Errno::NOSPC)
        } else {
            scan.walk.here().and_then(|here| desk.places.watch(self.inotify.as_fd(), here, WATCHED))
        };
        match added {
            Ok(watch) => {
                self.path_bytes = self.path_bytes.saturating_add(path.len());
                match self.directories.insert(watch, path) {
                    Some(old) => self.path_bytes = self.path_bytes.saturating_sub(old.len()),
                    None => desk.watches = desk.watches.saturating_sub(1),
                }
                true
            }
            Err(errno) => {
                self.note(ChangeKind::Unwatched, 0, plain);
                // What the host hears once it need not hear for each of a million directories.
                errno != Errno::NOSPC
            }
        }
    }

    /// Takes what the kernel has for us, one gulp of it.
    fn take_events(&mut self) -> Step {
        let mut buffer = [MaybeUninit::uninit(); GULP];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut taken = Vec::new();
        loop {
            match events.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                    taken.push((event.wd(), event.events(), event.cookie(), name));
                }
                Err(Errno::AGAIN) => return Ok(Next::Sleep),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            if events.is_buffer_empty() {
                break;
            }
        }
        for (watch, what, cookie, name) in taken {
            self.hear(watch, what, cookie, &name);
        }
        Ok(Next::Again)
    }

    fn hear(&mut self, watch: i32, what: ReadFlags, cookie: u32, name: &[u8]) {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.note(ChangeKind::Lost, 0, Vec::new());
            self.look_again(Vec::new(), Findings::Known);
            return;
        }
        if what.contains(ReadFlags::IGNORED) {
            if let Some(path) = self.directories.remove(&watch) {
                self.path_bytes = self.path_bytes.saturating_sub(path.len());
            }
            if watch == self.base_watch {
                self.note(ChangeKind::Ended, 0, Vec::new());
                self.ended = true;
            }
            return;
        }
        let Some(directory) = self.directories.get(&watch) else { return };
        if name.is_empty() {
            // About a watched directory itself: its parent's watch says the same, and the base is not beneath itself.
            return;
        }
        let path = [directory.as_slice(), name].concat();
        let kind = if what.contains(ReadFlags::CREATE) {
            ChangeKind::Created
        } else if what.contains(ReadFlags::MOVED_TO) {
            ChangeKind::MovedTo
        } else if what.contains(ReadFlags::MOVED_FROM) {
            ChangeKind::MovedFrom
        } else if what.contains(ReadFlags::DELETE) {
            ChangeKind::Removed
        } else if what.contains(ReadFlags::MODIFY) {
            ChangeKind::Written
        } else if what.contains(ReadFlags::ATTRIB) {
            ChangeKind::Attributes
        } else {
            return;
        };
        self.note(kind, cookie, path.clone());
        if what.contains(ReadFlags::ISDIR) && self.depth == Depth::All {
            let within = [path.as_slice(), b"/"].concat();
            match kind {
                ChangeKind::Created | ChangeKind::MovedTo => self.look_again(within, Findings::Told),
                ChangeKind::MovedFrom => self.forget(&within),
                _ => {}
            }
        }
    }

    fn look_again(&mut self, within: Vec<u8>, findings: Findings) {
        if self.depth == Depth::One {
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            // Everything at once instead; what is found there is no news to anybody who knows that something is lost.
            self.waiting = VecDeque::from([(Vec::new(), Findings::Known)]);
            self.note(ChangeKind::Lost, 0, Vec::new());
            return;
        }
        self.waiting.push_back((within, findings));
    }

    /// A directory was moved away with everything in it. Where it is now, other names hold.
    fn forget(&mut self, within: &[u8]) {
        let (inotify, mut freed) = (&self.inotify, 0_usize);
        self.directories.retain(|watch, path| {
            let stays = !path.starts_with(within);
            if !stays {
                freed = freed.saturating_add(path.len());
                // Its end is heard of once more, and means nothing then.
                inotify::remove_watch(inotify, *watch).ok();
            }
            stays
        });
        self.path_bytes = self.path_bytes.saturating_sub(freed);
    }
}
