//! Virtual machines on this host: who plays them, its version, what it reads of the host, and whether KVM is fast.

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

use crate::MachineEngine;
use crate::warden::places;

const AGENT: &str = "blastbox-agent";
const KVM: &str = "/dev/kvm";
/// The program that loads programs.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// What is there for virtual machines.
#[derive(Debug, Clone, Default)]
pub struct Machines {
    /// Who plays them.
    pub engine: Option<Installed>,
    /// Our program that is the first process of a guest.
    pub agent: Option<PathBuf>,
    /// Found out once, when somebody wants to know: it means starting a program, and a guest of a few instructions.
    found: Arc<OnceLock<Found>>,
}

/// An engine that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Which one.
    pub engine: MachineEngine,
    /// Its program.
    pub program: PathBuf,
}

/// What it takes a moment to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The engine's version, as far as it says one.
    pub version: Option<(u32, u32)>,
    /// Whether guests run on the processor itself.
    pub kvm: Kvm,
    /// How many processors there are.
    pub processors: u32,
    /// The view of the host that the engine is shown.
    pub view: HostImage,
    /// What of it it may read.
    pub reads: Vec<String>,
    /// The digest of what a machine that sleeps can be woken by alone: this build of its engine, and this host's processor.
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
        let engine = MachineEngine::ALL.into_iter().find(|engine| there(engine.program()));
        let engine = engine.map(|engine| Installed { engine, program: engine.program().to_owned() });
        Self { engine, agent, found: Arc::default() }
    }

    /// The rest. Whoever confines itself asks before: it takes up to a second and a half where KVM crawls.
    pub fn found(&self) -> &Found {
        self.found.get_or_init(|| self.find_out())
    }

    /// The engine's version alone, which takes less.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        match self.found.get() {
            Some(found) => found.version,
            None => {
                let Installed { engine, program } = self.engine.as_ref()?;
                engine.version(&ask(program)?)
            }
        }
    }

    fn find_out(&self) -> Found {
        let says = self.engine.as_ref().and_then(|found| ask(&found.program)).unwrap_or_default();
        let engine = self.engine.as_ref().map(|found| found.engine);
        let reads = engine.map(MachineEngine::reads).unwrap_or_default();
        let name = engine.map(MachineEngine::name).unwrap_or_default();
        Found {
            version: engine.and_then(|engine| engine.version(&says)),
            kvm: Kvm::of(probe()),
            processors: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            view: HostImage::look(),
            reads: reads.iter().filter(|path| stat(**path).is_ok()).map(ToString::to_string).collect(),
            build: Hash::of([name.as_bytes(), b"\0", says.as_bytes(), b"\0", processor().as_bytes()]),
        }
    }

    /// Finds out and makes everything that somebody who confines itself could not afterwards: it starts no program, opens
    /// no device and reads no program of ours then. Best effort: what is missing is said when a machine is asked for.
    pub fn settle(&self, store: &Path) {
        if self.engine.is_some() {
            self.found();
        }
        if let (Some(agent), Ok(Some(kernel))) = (&self.agent, Kernels::of_store(store).current()) {
            kernel.first_files(agent).ok();
        }
    }

    /// The program that loads the engine's, where it can be seen.
    pub(crate) const fn loader() -> &'static str {
        LOADER
    }

    #[cfg(test)]
    pub(crate) fn of(found: Found) -> Self {
        let known = OnceLock::new();
        known.get_or_init(|| found);
        let engine = MachineEngine::Qemu;
        let engine = Some(Installed { engine, program: engine.program().to_owned() });
        Self { engine, agent: Some("/opt/agent".into()), found: Arc::new(known) }
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
        let Self { engine, agent, found: _ } = self;
        (engine, agent) == (&other.engine, &other.agent)
    }
}

impl Eq for Machines {}

impl Serialize for Machines {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let found = self.found.get();
        let mut all = to.serialize_struct("Machines", 4)?;
        all.serialize_field("engine", &self.engine.as_ref().map(|found| found.engine))?;
        all.serialize_field("program", &self.engine.as_ref().map(|found| &found.program))?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
