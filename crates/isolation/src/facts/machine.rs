//! Virtual machines on this host: QEMU, its version, what it reads of the host, and whether KVM is fast.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use blastbox_images::HostImage;
use blastbox_images::machine::Kernels;
use blastbox_sys::kvm::{INSTRUCTIONS, KvmProbe, probe};
use blastbox_wire::event::Hash;
use rustix::fs::{Access, access, stat};
use rustix::thread::{CapabilitySet, capabilities};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::warden::places;

const AGENT: &str = "blastbox-agent";
/// Where distributions install it. Not PATH: that is the caller's. And beneath /usr, which is what QEMU is shown.
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const KVM: &str = "/dev/kvm";
/// What a QEMU of a distribution reads at its start, where it is there.
const READ: [&str; 9] = [
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/usr/share/qemu",
    "/usr/share/seabios",
    "/usr/share/qemu-kvm",
    "/usr/share/seavgabios",
    "/etc/ld.so.cache",
];
/// The program that loads programs.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// What is there for virtual machines.
#[derive(Debug, Clone, Default)]
pub struct Machines {
    /// QEMU.
    pub qemu: Option<PathBuf>,
    /// Our program that is the first process of a guest.
    pub agent: Option<PathBuf>,
    /// Found out once, when somebody wants to know: it means starting a program, and a guest of a few instructions.
    found: Arc<OnceLock<Found>>,
}

/// What it takes a moment to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// QEMU's version, as far as it says one.
    pub version: Option<(u32, u32)>,
    /// Whether guests run on the processor itself.
    pub kvm: Kvm,
    /// How many processors there are.
    pub processors: u32,
    /// The view of the host that QEMU is shown.
    pub view: HostImage,
    /// What of it QEMU may read.
    pub reads: Vec<String>,
    /// The digest of what a machine that sleeps can be woken by alone: this build of QEMU, and this host's processor.
    pub build: Hash,
}

/// Whether guests run on the processor itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kvm {
    /// They do, and at speed.
    Fast,
    /// They do not, and why.
    Unusable(String),
}

impl Machines {
    /// Looks for the files, and starts nothing.
    pub(super) fn look() -> Self {
        let there = |path: &Path| access(path, Access::EXEC_OK).is_ok();
        let agent = places(AGENT).unwrap_or_default().into_iter().find(|path| there(path));
        Self { qemu: Some(PathBuf::from(QEMU)).filter(|path| there(path)), agent, found: Arc::default() }
    }

    /// The rest. Whoever confines itself asks before: it takes up to a second and a half where KVM crawls.
    pub fn found(&self) -> &Found {
        self.found.get_or_init(|| self.find_out())
    }

    /// QEMU's version alone, which takes less.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        match self.found.get() {
            Some(found) => found.version,
            None => version(&self.qemu.as_deref().and_then(ask)?),
        }
    }

    fn find_out(&self) -> Found {
        let says = self.qemu.as_deref().and_then(ask).unwrap_or_default();
        Found {
            version: version(&says),
            kvm: Kvm::of(probe()),
            processors: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            view: HostImage::look(),
            reads: READ.iter().filter(|path| stat(**path).is_ok()).map(ToString::to_string).collect(),
            build: Hash::of([says.as_bytes(), b"\0", processor().as_bytes()]),
        }
    }

    /// Finds out and makes everything that somebody who confines itself could not afterwards: it starts no program, opens
    /// no device and reads no program of ours then. Best effort: what is missing is said when a machine is asked for.
    pub fn settle(&self, store: &Path) {
        if self.qemu.is_some() {
            self.found();
        }
        if let (Some(agent), Ok(Some(kernel))) = (&self.agent, Kernels::of_store(store).current()) {
            kernel.first_files(agent).ok();
        }
    }

    /// The program that loads QEMU, where it can be seen.
    pub(crate) const fn loader() -> &'static str {
        LOADER
    }

    #[cfg(test)]
    pub(crate) fn of(found: Found) -> Self {
        let known = OnceLock::new();
        known.get_or_init(|| found);
        Self { qemu: Some(QEMU.into()), agent: Some("/opt/agent".into()), found: Arc::new(known) }
    }
}

impl Kvm {
    fn of(found: KvmProbe) -> Self {
        let failed = |errno| std::io::Error::from_raw_os_error(errno);
        match found {
            KvmProbe::Absent => Self::Unusable(format!("there is no {KVM}")),
            KvmProbe::NoAccess(errno) => {
                Self::Unusable(format!("{KVM} may not be opened: {}", failed(errno)))
            }
            KvmProbe::Broken { step, errno } => {
                Self::Unusable(format!("{KVM} does not work: could not {step}: {}", failed(errno)))
            }
            KvmProbe::Measured { per_200k } if !found.is_usable() => {
                let millions = f64::from(INSTRUCTIONS) / per_200k.as_secs_f64().max(1e-9) / 1e6;
                Self::Unusable(format!(
                    "{KVM} is too slow to boot anything: {millions:.1} million guest instructions a second"
                ))
            }
            KvmProbe::Measured { .. } if !open_to_boxes() => Self::Unusable(format!(
                "{KVM} is fast, closed to the users of boxes, and no file of their own can be made for it without CAP_MKNOD (give it, or chmod 0666 {KVM})"
            )),
            KvmProbe::Measured { .. } => Self::Fast,
        }
    }
}

/// Whether boxes can have the device. The users of root's boxes are nobody's friends: what only root and a group may open is closed to
/// them, unless the warden may make a file of the box's own for it.
pub(crate) fn open_to_boxes() -> bool {
    !rustix::process::geteuid().is_root()
        || stat(KVM).is_ok_and(|found| found.st_mode & 0o006 == 0o006)
        || may_make_devices()
}

/// Only the host's own root makes files of devices, and not in every container.
fn may_make_devices() -> bool {
    let hosts = std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    hosts && capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::MKNOD))
}

/// What was found out goes with the files.
impl PartialEq for Machines {
    fn eq(&self, other: &Self) -> bool {
        let Self { qemu, agent, found: _ } = self;
        (qemu, agent) == (&other.qemu, &other.agent)
    }
}

impl Eq for Machines {}

impl Serialize for Machines {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let found = self.found.get();
        let mut all = to.serialize_struct("Machines", 3)?;
        all.serialize_field("qemu", &self.qemu)?;
        all.serialize_field("version", &found.and_then(|found| found.version))?;
        all.serialize_field("kvm", &found.map(|found| found.kvm == Kvm::Fast))?;
        all.end()
    }
}

/// What the kernel says of the first processor, without what changes from moment to moment.
fn processor() -> String {
    lasting(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn lasting(said: &str) -> String {
    let first = said.split("\n\n").next().unwrap_or_default();
    let stays = |line: &&str| !line.starts_with("cpu MHz") && !line.starts_with("bogomips");
    first.lines().filter(stays).collect::<Vec<_>>().join("\n")
}

fn ask(program: &Path) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "asks a program of the host for its version, before any box"
    )]
    let mut command = Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    let answer = command.output().ok()?;
    Some(String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// The two first numbers behind the word.
fn version(answer: &str) -> Option<(u32, u32)> {
    let words = answer.lines().next()?.split_once("version ")?.1;
    let mut numbers = words.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn versions_are_read_however_they_go_on() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright"), Some((7, 2)));
        assert_eq!(version("QEMU emulator version 10.0.2"), Some((10, 0)));
        for other in ["", "QEMU", "QEMU emulator version x"] {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn a_processor_is_the_same_from_moment_to_moment_and_another_one_is_not() {
        let said = |mhz: &str, flags: &str| {
            format!(
                "processor\t: 0\ncpu MHz\t\t: {mhz}\nbogomips\t: {mhz}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
            )
        };
        let first = lasting(&said("2100.1", "fpu avx"));
        assert_eq!(first, "processor\t: 0\nflags\t\t: fpu avx");
        assert_eq!(lasting(&said("3400.9", "fpu avx")), first);
        assert_ne!(lasting(&said("2100.1", "fpu")), first);
        assert!(!processor().is_empty());
    }

    #[test]
    fn a_processor_that_crawls_is_named_with_its_rate() {
        let Kvm::Unusable(why) = Kvm::of(KvmProbe::Measured { per_200k: Duration::from_millis(100) }) else {
            panic!("a hundred milliseconds are not fast");
        };
        assert!(why.contains("2.0 million"), "{why}");
        assert!(matches!(Kvm::of(KvmProbe::Absent), Kvm::Unusable(_)));
    }
}
