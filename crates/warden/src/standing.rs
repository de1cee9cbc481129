//! What this warden is and holds: taken once at the start, before the first plan is looked at.

use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use blastbox_sys::cgroup::{Controller, Room};
use blastbox_sys::fork::SingleThreaded;
use blastbox_sys::namespaces::{self, DenyGroups, IdRow};
use blastbox_sys::seccomp::{Filter, Monitor, Visibility, monitor_program};
use blastbox_sys::{identity, mount, program, spawn};
use blastbox_wire::plan::{Denials, First, MonitorKind};
use blastbox_wire::warden::Powers;
use rustix::fs::{Mode, OFlags, fstat, open, readlinkat};
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use crate::groups::Groups;
use crate::ids::{Block, Slot};
use crate::trouble::{Trouble, Trying};

/// Boxes that write their settings in one and the same /proc.
const SETTLERS: u32 = 64;

/// Descriptors below this number are kept free for what the agent inherits.
pub(crate) const RESERVED: i32 = 10;

/// Everything that launching needs and that does not change from box to box.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Proof that forking is safe.
    pub(crate) proof: SingleThreaded,
    /// Readable when a child has ended.
    pub(crate) children: OwnedFd,
    /// Ids to hand out; `None` without privilege.
    pub(crate) ids: Option<Block>,
    /// Groups to hand out.
    pub(crate) groups: Groups,
    /// The host's /proc, for tables of users and namespaces.
    pub(crate) proc: OwnedFd,
    /// Where a box's own settings are written, if not there; and how many boxes wrote theirs.
    settings: Option<OwnedFd>,
    settled: u32,
    /// The mounts from which templates are made.
    pub(crate) base: OwnedFd,
    /// The network that the warden was started in, which it leaves for those of its boxes; `None` without privilege.
    home: Option<OwnedFd>,
    /// The host's /dev/net/tun, not opened yet; `None` where there is none.
    pub(crate) tun: Option<OwnedFd>,
    /// The filter whose denials are reported, the one that has writes told too, and the one whose denials are not: compiled when
    /// first needed, because hardly any warden needs two.
    reported: OnceCell<Filter>,
    with_writes: OnceCell<Filter>,
    silent: OnceCell<Filter>,
    /// Those of monitors, in the order of [`MonitorKind::ALL`].
    monitors: [OnceCell<Filter>; 3],
    /// Where monitors are executed from; `None` where the host allows too few descriptors.
    monitor_program: Option<u16>,
}

impl Standing {
    /// Finds out what this warden may do, and takes what it needs for that.
    pub(crate) fn take(name: Option<u64>, room: Room) -> Result<Self, Trouble> {
        // What a caller forgot to close is no business of any box's (CVE-2024-21626). The agent closes what is left once more.
        program::close_from(3).tried("let go of what the caller has left open")?;
        let proof = SingleThreaded::prove().tried("count the warden's threads")?;
        // Started from a descriptor, it would be called by a number.
        rustix::thread::set_name(c"blastbox-warden").tried("take a name")?;
        reserve_descriptors()?;
        // From here on no signal of a terminal or a service manager ends the warden: it ends when its caller does.
        let children = spawn::watch_children().tried("watch the warden's children")?;
        raise_descriptor_limit();
        // Here and not by the caller, whose library knows a fast way to start a program only where it starts.
        rustix::process::chdir("/").tried("leave the caller's directory")?;
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = open("/proc", directory, Mode::empty()).tried("open /proc")?;
        let tun = open("/dev/net/tun", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        // Before the own users, who may not look for it; so whatever fails afterwards takes it away again.
        let mut groups = Groups::find(name, room)?;
        let (ids, base) = take_users(&proc).inspect_err(|_| groups.clear())?;
        let home = ids.is_some().then(|| namespaces::open(proc.as_fd(), "self", "net")).transpose();
        let home = home.tried("open the own network").inspect_err(|_| groups.clear())?;
        Ok(Self {
            proof,
            children,
            ids,
            groups,
            proc,
            settings: None,
            settled: 0,
            base,
            home,
            tun,
            reported: OnceCell::new(),
            with_writes: OnceCell::new(),
            silent: OnceCell::new(),
            monitors: Default::default(),
            monitor_program: monitor_program(rustix::process::getrlimit(Resource::Nofile).current),
        })
    }

    /// The filter for a plan. To be asked before a box is forked, so that the next one finds it compiled.
    pub(crate) fn filter(&self, first: &First, denials: Denials) -> Result<&Filter, Trouble> {
        let [wasm, gvisor, qemu] = &self.monitors;
        let (place, monitor) = match (first, denials) {
            (First::Agent, Denials::Reported) => {
                return Ok(self.reported.get_or_init(|| Filter::compile(Visibility::Reported)));
            }
            (First::Agent, Denials::WithWrites) => {
                return Ok(self.with_writes.get_or_init(|| Filter::compile(Visibility::WithWrites)));
            }
            (First::Agent, Denials::Silent) => {
                return Ok(self.silent.get_or_init(|| Filter::compile(Visibility::Silent)));
            }
            (First::Monitor(monitor), _) => match monitor.kind {
                MonitorKind::Wasm => (wasm, Monitor::Wasm),
                MonitorKind::Gvisor => (gvisor, Monitor::Gvisor),
                MonitorKind::Qemu => (qemu, Monitor::Qemu),
            },
        };
        let program = self.monitor_program()?;
        Ok(place.get_or_init(|| Filter::for_monitor(monitor, program)))
    }

    /// One more box writes its settings. The kernel remembers a name for each set of users that did so in one and the same /proc, and goes
    /// through all of them for the next: a thousand boxes would make the next one wait for a millisecond. So every now and
    /// then there is another /proc, attached nowhere; where none can be had, the host's has to do.
    pub(crate) fn settle(&mut self) {
        self.settled = self.settled.wrapping_add(1);
        if self.settled.is_multiple_of(SETTLERS) {
            self.settings = mount::create("proc", &[], mount::Attributes::PLAIN.no_programs()).ok();
        }
    }

    /// Where a box's own settings are written.
    pub(crate) fn settings(&self) -> BorrowedFd<'_> {
        self.settings.as_ref().unwrap_or(&self.proc).as_fd()
    }

    /// Where a monitor is executed from.
    pub(crate) fn monitor_program(&self) -> Result<u16, Trouble> {
        self.monitor_program.ok_or_else(|| {
            Trouble::plain(
                "find a descriptor for the monitor: at most 255 may be open here; raise ulimit -Hn",
            )
        })
    }

    /// Takes a block of ids for one box alone, by its name in the warden's own network: names are held per network, and
    /// this process may stand in that of a box, where the name is free, or where the box holds them all.
    pub(crate) fn take_block(&self) -> Result<Block, Trouble> {
        if let Some(home) = &self.home {
            namespaces::enter_network(home.as_fd()).tried("go back to the own network")?;
        }
        Block::take()
    }

    /// Gives ids back that nobody has any more.
    pub(crate) fn free(&mut self, slots: impl IntoIterator<Item = Slot>) {
        if let Some(ids) = self.ids.as_mut() {
            slots.into_iter().for_each(|slot| ids.free(slot));
        }
    }

    /// What the caller may count on.
    pub(crate) fn powers(&self) -> Powers {
        Powers {
            own_ranges: self.ids.is_some(),
            cgroups: self.groups.flavour(),
            memory: self.groups.has(Controller::Memory),
            cpu: self.groups.has(Controller::Cpu),
            pids: self.groups.has(Controller::Pids),
        }
    }

    /// A directory of the caller as this warden can copy it. The kernel copies only mounts of the current namespace:
    /// with privilege the warden goes to where the caller is; without, it opens the same directory in its own copy of
    /// the mounts, as the same user, and makes sure that it is the same one.
    pub(crate) fn local(&self, directory: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
        if self.ids.is_some() {
            return directory.try_clone_to_owned().tried("copy a descriptor");
        }
        let name = format!("self/fd/{}", directory.as_raw_fd());
        let path = readlinkat(&self.proc, name, Vec::new()).tried("find the path of a directory")?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(path.as_c_str(), flags, Mode::empty()).tried("open a directory again")?;
        let identity = |fd: BorrowedFd<'_>| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let same = identity(directory).and_then(|one| identity(opened.as_fd()).map(|other| one == other));
        if same.tried("compare directories")? {
            Ok(opened)
        } else {
            Err(Trouble::plain("open a directory again: another one is at its path now"))
        }
    }
}

/// Ids to hand out, or users of its own where there are none to be had; and the mounts as they are then.
fn take_users(proc: &OwnedFd) -> Result<(Option<Block>, OwnedFd), Trouble> {
    let ids = if has_privilege() { Some(Block::take()?) } else { None };
    if ids.is_some() {
        identity::hide().tried("hide the warden's memory")?;
    } else {
        // Not hidden: the kernel would then keep the tables of its boxes' users from it. It holds nothing that its
        // caller, the only one who could look, does not hold as well.
        enter_own_users(proc)?;
    }
    let base = namespaces::open(proc.as_fd(), "self", "mnt").tried("open the own mount namespace")?;
    Ok((ids, base))
}

/// Whether this process can do all that root can do for a box. Root without these (in a container, say) is treated as
/// an ordinary user rather than failing halfway.
fn has_privilege() -> bool {
    let needed = CapabilitySet::SYS_ADMIN
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | CapabilitySet::CHOWN
        | CapabilitySet::SETPCAP
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::SYS_CHROOT;
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Without privilege: a user namespace in which this process may do what it needs to itself and to nobody else.
fn enter_own_users(proc: &OwnedFd) -> Result<(), Trouble> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 {
        // Its boxes would run as the root of whatever is around us. No box ever does.
        return Err(Trouble::plain(
            "act for root without root's capabilities (a container, perhaps): start blastbox as an ordinary user",
        ));
    }
    namespaces::own_users_and_mounts().tried("make a user namespace")?;
    let row = |outside| [IdRow { inside: 0, outside, count: 1 }];
    namespaces::write_maps(proc.as_fd(), "self", &row(uid), &row(gid), DenyGroups::Yes)
        .tried("write the tables of the user namespace")?;
    mount::keep_to_ourselves().tried("make the mounts private")
}

/// No descriptor of the warden has a number that the agent's own descriptors will get.
fn reserve_descriptors() -> Result<(), Trouble> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).tried("open /dev/null")?;
    loop {
        let next = rustix::io::fcntl_dupfd_cloexec(&null, 0).tried("reserve descriptors")?;
        if next.as_raw_fd() >= RESERVED {
            return Ok(());
        }
        // Held until the warden ends.
        std::mem::forget(next);
    }
}

fn raise_descriptor_limit() {
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
    // A lower limit only means fewer boxes at a time, and says so when it is met.
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).ok();
}
