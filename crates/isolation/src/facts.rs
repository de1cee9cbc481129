//! What this host can do, as far as lowering needs to know. Cheap: a few system calls and small files of /proc.

mod gpu;
mod gvisor;
mod machine;

pub use gpu::Gpu;
pub use gvisor::{Gvisor, Version};
pub(crate) use machine::{Found, Kvm, open_to_boxes};
pub use machine::{Installed, Machines};

use std::fs;
use std::path::Path;

use blastbox_wire::warden::Powers;

/// What this host can do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Facts {
    /// The kernel's release, as it calls itself.
    pub kernel: String,
    /// The same as numbers.
    pub version: KernelVersion,
    /// The machine, such as `x86_64`.
    pub arch: String,
    /// Whether the warden has ids to give to boxes.
    pub privileged: bool,
    /// Which interface holds limits for a whole box.
    pub cgroups: CgroupKind,
    /// Memory can be limited for a whole box.
    pub memory: bool,
    /// Processor time can be limited for a whole box.
    pub cpu: bool,
    /// Processes can be limited for a whole box.
    pub pids: bool,
    /// Landlock's interface version; 0 = there is none.
    pub landlock_abi: u32,
    /// Denied system calls can be reported.
    pub seccomp_user_notif: bool,
    /// A process may look into the memory of those that it has started, where they are its own user's.
    pub reads_own_children: bool,
    /// Swap space, and whether a limit on memory covers it.
    pub swap: Swap,
    /// Who may make user namespaces.
    pub user_namespaces: UserNamespaces,
    /// Whether interfaces for boxes with network can be made.
    pub tun: Tun,
    /// gVisor's program, and ours for it.
    pub gvisor: Gvisor,
    /// The worker of the tier `wasm` and its guests, where they are installed.
    pub wasm: Option<crate::tiers::wasm::Guests>,
    /// What is there for virtual machines.
    pub machines: Machines,
    /// A GPU that boxes can have.
    pub gpu: Option<Gpu>,
    /// Whether directories of callers are read here, on their behalf: by their own command, and by no daemon.
    pub reads_directories: bool,
    /// Whether somebody hears what the kernel of a box says on its console: a box that has none is refused then.
    pub hears_console: bool,
}

/// The device from which the interface of a box with network is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tun {
    /// It is there.
    Usable,
    /// It is there, and this user may not open it.
    Forbidden,
    /// There is none.
    Absent,
}

/// A kernel's version, comparable. An unreadable one is 0.0: older than anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct KernelVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

/// The cgroup interface that the warden can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupKind {
    /// None.
    None,
    /// The old one, a hierarchy for each controller.
    V1,
    /// The unified one.
    V2,
    /// Both: each has some of the controllers.
    Hybrid,
}

impl CgroupKind {
    /// As a person calls it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no cgroup",
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
            Self::Hybrid => "cgroup v1 and v2",
        }
    }
}

/// Swap space of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Swap {
    /// There is none.
    Absent,
    /// There is, and a limit on memory covers it.
    Counted,
    /// There is, and nothing counts it.
    Uncounted,
}

/// What stands in the way of user namespaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct UserNamespaces {
    /// How many there may be, where the kernel says so.
    pub most: Option<u64>,
    /// A distribution's switch keeps ordinary users from making them.
    pub switched_off: bool,
    /// AppArmor takes their rights from programs without a profile.
    pub apparmor_restricts: bool,
    /// This is a user namespace itself that was not given the ids which root hands to boxes (`unshare -r`, rootless containers).
    pub few_ids: bool,
}

/// The ids that a warden of root takes some of for each box, as `crates/warden/src/ids.rs` has them.
const BOX_IDS: std::ops::Range<u64> = 0x7000_0000..0x8000_0000;

/// Whether a map of users (`/proc/self/uid_map`) has all the ids that boxes may get. One that cannot be read says nothing against it.
fn has_box_ids(map: &str) -> bool {
    let rows = map.lines().filter_map(|row| {
        let mut numbers = row.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some((first, first.saturating_add(count)))
    });
    let rows: Vec<(u64, u64)> = rows.collect();
    rows.is_empty() || rows.iter().any(|(first, end)| *first <= BOX_IDS.start && *end >= BOX_IDS.end)
}

impl KernelVersion {
    /// A version.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Reads the beginning of a release such as `6.8.0-31-generic`.
    #[must_use]
    pub fn of_release(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Self { major, minor },
            _ => Self::default(),
        }
    }
}

impl Facts {
    /// Looks at the host. What the warden says about itself is the truth; the rest is read here.
    #[must_use]
    pub fn probe(powers: &Powers) -> Self {
        Self::look().with(powers)
    }

    /// What can be seen before the warden has said anything: it gets ready meanwhile.
    #[must_use]
    pub fn look() -> Self {
        let name = rustix::system::uname();
        let kernel = name.release().to_string_lossy().into_owned();
        Self {
            version: KernelVersion::of_release(&kernel),
            kernel,
            arch: name.machine().to_string_lossy().into_owned(),
            privileged: false,
            cgroups: CgroupKind::None,
            memory: false,
            cpu: false,
            pids: false,
            landlock_abi: blastbox_sys::landlock::abi(),
            seccomp_user_notif: reports_denials(),
            // Absent where the kernel has no such module.
            reads_own_children: number("/proc/sys/kernel/yama/ptrace_scope").is_none_or(|scope| scope < 2),
            swap: swap(),
            user_namespaces: UserNamespaces::probe(),
            tun: Tun::look(),
            gvisor: Gvisor::look(),
            wasm: crate::tiers::wasm::Guests::look(),
            machines: Machines::look(),
            gpu: Gpu::look(),
            reads_directories: true,
            hears_console: false,
        }
    }

    /// The same, with the GPU that is there now.
    #[must_use]
    pub fn looked_for_gpu(mut self) -> Self {
        self.gpu = Gpu::look();
        self
    }

    /// The same, with what the warden says.
    #[must_use]
    pub fn with(mut self, powers: &Powers) -> Self {
        let Powers { own_ranges, cgroups, memory, cpu, pids } = *powers;
        (self.privileged, self.memory, self.cpu, self.pids) = (own_ranges, memory, cpu, pids);
        self.cgroups = match cgroups {
            0 => CgroupKind::None,
            1 => CgroupKind::V1,
            3 => CgroupKind::Hybrid,
            _ => CgroupKind::V2,
        };
        if self.swap == Swap::Uncounted && memory && counts_swap(self.cgroups) {
            self.swap = Swap::Counted;
        }
        self
    }
}

impl Tun {
    fn look() -> Self {
        use rustix::fs::{Access, access};
        match access("/dev/net/tun", Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Self::Usable,
            Err(rustix::io::Errno::ACCESS) => Self::Forbidden,
            Err(_) => Self::Absent,
        }
    }
}

impl UserNamespaces {
    pub(crate) fn probe() -> Self {
        Self {
            most: number("/proc/sys/user/max_user_namespaces"),
            switched_off: number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
                .is_some_and(|value| value != 0),
            few_ids: fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !has_box_ids(&map)),
        }
    }
}

fn reports_denials() -> bool {
    fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail")
        .is_ok_and(|actions| actions.split_whitespace().any(|action| action == "user_notif"))
}

/// Whether there is any. Nothing counts it until the warden has said so.
fn swap() -> Swap {
    // A header, then one line for each. Unreadable is taken for the worse.
    if fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().count() <= 1) {
        Swap::Absent
    } else {
        Swap::Uncounted
    }
}

fn counts_swap(cgroups: CgroupKind) -> bool {
    match cgroups {
        CgroupKind::None => false,
        // Absent when the kernel was not started with swap accounting.
        CgroupKind::V1 => Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        CgroupKind::V2 => true,
        CgroupKind::Hybrid => !Path::new("/sys/fs/cgroup/memory").exists() || counts_swap(CgroupKind::V1),
    }
}

/// A number from a file of one line.
pub(crate) fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A new kernel, root, everything there.
    pub(crate) fn good_host() -> Facts {
        Facts {
            kernel: "6.12.0".into(),
            version: KernelVersion::new(6, 12),
            arch: "x86_64".into(),
            privileged: true,
            cgroups: CgroupKind::V2,
            memory: true,
            cpu: true,
            pids: true,
            landlock_abi: 7,
            seccomp_user_notif: true,
            reads_own_children: true,
            swap: Swap::Absent,
            user_namespaces: UserNamespaces { most: Some(60_000), ..UserNamespaces::default() },
            tun: Tun::Usable,
            gvisor: Gvisor::default(),
            wasm: None,
            machines: Machines::default(),
            gpu: None,
            reads_directories: true,
            hears_console: false,
        }
    }

    /// The same for an ordinary user without delegated cgroups.
    pub(crate) fn rootless_host() -> Facts {
        let none = Facts { privileged: false, cgroups: CgroupKind::None, ..good_host() };
        Facts { memory: false, cpu: false, pids: false, ..none }
    }

    #[test]
    fn a_namespace_without_the_ids_of_boxes_is_told_from_one_that_has_them() {
        for (map, has) in [
            ("         0          0 4294967295\n", true),
            ("         0       1000          1\n", false),
            ("0 1000 1\n1 100000 65536\n", false),
            ("0 100000 2147483648\n", true),
            ("", true),
        ] {
            assert_eq!(has_box_ids(map), has, "{map}");
        }
    }

    #[test]
    fn releases_are_read_and_nonsense_is_older_than_anything() {
        let version = KernelVersion::of_release;
        assert_eq!(version("6.8.0-31-generic"), KernelVersion::new(6, 8));
        assert_eq!(version("5.13-rc1"), KernelVersion::new(5, 13));
        assert_eq!(version("6.18.44+"), KernelVersion::new(6, 18));
        for nonsense in ["", "six", "6", "6.x", "99999999999.1"] {
            assert_eq!(version(nonsense), KernelVersion::default(), "{nonsense}");
        }
        assert!(KernelVersion::new(5, 9) < KernelVersion::new(5, 13));
    }

    #[test]
    fn what_the_warden_says_is_taken_as_it_is() {
        let powers = Powers { own_ranges: true, cgroups: 1, memory: true, cpu: false, pids: true };
        let facts = Facts::probe(&powers);
        assert!(facts.privileged && facts.memory && !facts.cpu && facts.pids);
        assert_eq!(facts.cgroups, CgroupKind::V1);
        assert!(facts.version > KernelVersion::new(3, 0), "{facts:?}");
    }

    #[test]
    fn probing_is_cheap() {
        let powers = Powers { own_ranges: true, cgroups: 2, memory: true, cpu: true, pids: true };
        let best = (0..50).map(|_| {
            let start = std::time::Instant::now();
            std::hint::black_box(Facts::probe(&powers));
            start.elapsed()
        });
        let best = best.min().unwrap();
        println!("probing the host took {best:?}");
        assert!(best < std::time::Duration::from_millis(1), "{best:?}");
    }
}
