//! A virtual machine as data, and QEMU's words for it. Another engine would have other words for the same.

use blastbox_policy::{FileRules, KernelRules, Loopback, ScratchExec, SealedPolicy};
use blastbox_wire::BoxId;

/// The oldest QEMU whose words these are. See docs/decisions for why not a newer one.
pub(super) const OLDEST_QEMU: (u32, u32) = (7, 2);

/// Where its files lie in the root around QEMU.
pub(super) const HOME: &str = "/machine";
pub(super) const KERNEL: &str = "/machine/kernel";
pub(super) const FIRST_FILES: &str = "/machine/first";
pub(super) const DISK: &str = "/machine/disk";

/// The number of the control channel, by which QEMU inherits it.
const CONTROL: u32 = 3;
/// The name of the port by which the guest knows it.
const PORT: &str = "blastbox.control";

const MIB: u64 = 1 << 20;

/// How the guest's instructions are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processor {
    /// By the host's processor.
    Kvm,
    /// By a program that plays one.
    Emulated,
}

impl Processor {
    /// What QEMU itself takes of the box's memory: its program, its tables, and what it makes of the guest's instructions.
    pub(super) fn overhead(self) -> u64 {
        match self {
            Self::Kvm => 64 * MIB,
            Self::Emulated => 128 * MIB,
        }
    }
}

/// The least memory that a guest's kernel and the agent start with.
pub(super) const LEAST_MEMORY: u64 = 128 * MIB;

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VmSpec {
    pub(super) processor: Processor,
    pub(super) processors: u32,
    /// Bytes of the guest's own memory.
    pub(super) memory: u64,
    /// What the guest's first process is told.
    pub(super) orders: Vec<String>,
}

impl VmSpec {
    /// What the guest's first process is told: the same rules that hold in a jail.
    pub(super) fn orders(policy: &SealedPolicy, box_id: &BoxId, workspace: bool) -> Vec<String> {
        // No `..`: a rule that is added does not compile until it is said who holds it. Processors and memory are the
        // machine's, the agent is told by a frame what a denied call leads to.
        // Whether it is to be deterministic is judged before, for every tier.
        let KernelRules {
            tier: _,
            cpus: _,
            memory: _,
            pids,
            on_denied_syscall: _,
            root: _,
            deterministic: _,
        } = policy.kernel();
        let FileRules { disk, inodes, file_size, open_files, exec, workspace: _ } = policy.files();
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        vec![
            "guest".to_owned(),
            format!("bytes={}", disk.0),
            format!("inodes={inodes}"),
            format!("pids={pids}"),
            format!("files={open_files}"),
            format!("size={}", file_size.0),
            format!("exec={}", yes(*exec == ScratchExec::Allowed)),
            format!("workspace={}", yes(workspace)),
            format!("loopback={}", yes(policy.network().loopback == Loopback::Own)),
            "denials=yes".to_owned(),
            format!("name={}", box_id.as_host_name()),
        ]
    }

    /// The kernel's command line. Nothing in it makes the guest weaker; what only speed is for stands under an emulated
    /// processor alone.
    fn command_line(&self) -> String {
        // A kernel that gives up starts again at once, which ends the machine. There is no port for a console.
        let mut words = vec!["quiet", "panic=-1", "8250.nr_uarts=0", "vsyscall=none", "slab_nomerge"];
        if self.processor == Processor::Emulated {
            words.extend(["tsc=reliable", "no_timer_check"]);
        }
        words.push("--");
        words.extend(self.orders.iter().map(String::as_str));
        words.join(" ")
    }

    /// QEMU's arguments, its own name first: no default device, no settings of the host, no console, no monitor.
    pub(super) fn qemu(&self) -> Vec<String> {
        let (accelerator, model) = match self.processor {
            Processor::Kvm => ("kvm", "host"),
            // The size of what it makes of the guest's instructions, in MiB: counted in the overhead.
            Processor::Emulated => ("tcg,tb-size=48", "max"),
        };
        let mut words = Vec::new();
        let mut say = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
        say("-machine", "q35,usb=off,vmport=off,smbus=off,sata=off,i8042=off,hpet=off,graphics=off");
        say("-accel", accelerator);
        say("-cpu", model);
        say("-smp", &self.processors.to_string());
        say("-m", &format!("{}M", self.memory / MIB));
        say("-display", "none");
        say("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
        say("-kernel", KERNEL);
        say("-initrd", FIRST_FILES);
        say("-append", &self.command_line());
        say("-device", "virtio-serial-pci,max_ports=2");
        say("-chardev", &format!("socket,id=control,fd={CONTROL}"));
        say("-device", &format!("virtserialport,chardev=control,name={PORT}"));
        say("-blockdev", &format!("driver=file,node-name=disk,filename={DISK},read-only=on,locking=off"));
        say("-device", "virtio-blk-pci,drive=disk");
        say("-object", "rng-builtin,id=random");
        say("-device", "virtio-rng-pci,rng=random");
        let alone = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"];
        alone.iter().map(ToString::to_string).chain(words).collect()
    }
}
