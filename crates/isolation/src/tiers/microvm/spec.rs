//! A virtual machine as data, and QEMU's words for it. Another engine would have other words for the same.

use blastbox_policy::{FileRules, KernelRules, Loopback, NetworkMode, ScratchExec, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::plan::WorkspaceAccess;

use crate::request::Worksite;

/// The oldest QEMU whose words these are. See docs/decisions for why not a newer one.
pub(crate) const OLDEST_QEMU: (u32, u32) = (7, 2);

/// Grows with every change in how copies are made.
pub(super) const COPIES: &str = "copies of machines 5";

/// Where its files lie in the root around QEMU.
pub(super) const HOME: &str = "/machine";
pub(super) const KERNEL: &str = "/machine/kernel";
pub(super) const FIRST_FILES: &str = "/machine/first";
pub(super) const DISK: &str = "/machine/disk";

/// The numbers of what QEMU inherits: the control channel; of a template and its copies, the memory and the line for orders.
const CONTROL: u32 = 3;
const MEMORY: u32 = 4;
const ORDERS: u32 = 5;
/// The wire to the gateway comes behind them, then the workspace, then whoever hears the console.
const fn card(form: Form) -> u32 {
    match form {
        Form::Alone => 4,
        Form::Template | Form::Copy | Form::Heir => 6,
    }
}
/// A card that does what a packet needs and nothing else: no firmware of its own, no queue for orders about itself.
const CARD: &str = "virtio-net-pci,netdev=wire,romfile=,mq=off,ctrl_vq=off,ctrl_rx=off,ctrl_rx_extra=off,ctrl_vlan=off,\
                    ctrl_mac_addr=off,ctrl_guest_offloads=off,guest_announce=off";
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

/// How a machine begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// It boots, and is a box.
    Alone,
    /// It boots, and falls asleep to be copied.
    Template,
    /// It begins as a copy, and is a box.
    Copy,
    /// It takes over from a box that sleeps, which it is like in everything, to be copied.
    Heir,
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
    /// Whether it has a network card.
    pub(super) card: bool,
    /// Whether a copy of the caller's directory is its second disk.
    pub(super) workspace: bool,
    /// Whether somebody hears what its kernel says. Such a machine boots by itself.
    pub(super) console: bool,
    /// What the guest's first process is told.
    pub(super) orders: Vec<String>,
}

impl VmSpec {
    /// What the guest's first process is told: the same rules that hold in a jail.
    pub(super) fn orders(policy: &SealedPolicy, worksite: Worksite) -> Vec<String> {
        // No `..`: a rule that is added does not compile until it is said who holds it. Processors and memory are the
        // machine's, the agent is told by a frame what a denied call leads to.
        // Whether it is to be deterministic or metered is judged before, for every tier.
        let KernelRules {
            tier: _,
            cpus: _,
            memory: _,
            pids,
            on_denied_syscall: _,
            root: _,
            gpu: _,
            deterministic: _,
            fuel: _,
            guest: _,
            gvisor_platform: _,
        } = policy.kernel();
        let FileRules { disk, inodes, file_size, open_files, exec, workspace: _, report_writes } =
            policy.files();
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        vec![
            "guest".to_owned(),
            format!("bytes={}", disk.0),
            format!("inodes={inodes}"),
            format!("pids={pids}"),
            format!("files={open_files}"),
            format!("size={}", file_size.0),
            format!("exec={}", yes(*exec == ScratchExec::Allowed)),
            format!(
                "workspace={}",
                match worksite {
                    Worksite::Absent => "no",
                    Worksite::Scratch => "yes",
                    Worksite::Directory(WorkspaceAccess::ReadOnly) => "ro",
                    Worksite::Directory(WorkspaceAccess::CopyOnWrite) => "cow",
                }
            ),
            format!("loopback={}", yes(policy.network().loopback == Loopback::Own)),
            format!("network={}", yes(policy.network().mode != NetworkMode::Off)),
            format!("authority={}", yes(policy.network().needs_authority())),
            format!("denials={}", if *report_writes { "writes" } else { "yes" }),
        ]
    }

    /// The kernel's command line. Nothing in it makes the guest weaker; what only speed is for stands under an emulated
    /// processor alone.
    fn command_line(&self, form: Form, box_id: &BoxId) -> String {
        // A kernel that gives up starts again at once, which ends the machine. A port for a console is there only where somebody hears it.
        // All devices are on the first bus; looking for others on 255 more leaves the guest eight thousand times.
        let mut words = match self.console {
            false => vec!["quiet", "8250.nr_uarts=0"],
            true => vec!["console=ttyS0"],
        };
        words.extend(["panic=-1", "pci=lastbus=0", "vsyscall=none", "slab_nomerge"]);
        if self.processor == Processor::Emulated {
            // The last leaves out what a kernel tries of its ciphers each time it starts: a seventh of an emulated boot.
            words.extend(["tsc=reliable", "no_timer_check", "cryptomgr.notests"]);
        }
        words.push("--");
        words.extend(self.orders.iter().map(String::as_str));
        // A copy is told its name when it wakes, with everything else that no two of them may share.
        let own = match form {
            Form::Alone => format!("asleep=no name={}", box_id.as_host_name()),
            Form::Template | Form::Copy | Form::Heir => "asleep=yes name=template".to_owned(),
        };
        words.push(&own);
        words.join(" ")
    }

    /// QEMU's arguments, its own name first: no default device, no settings of the host; a console only where somebody hears it, a line
    /// for orders only where somebody has to say when it falls asleep, or from what it wakes.
    pub(super) fn qemu(&self, form: Form, box_id: &BoxId) -> Vec<String> {
        let (accelerator, model) = match self.processor {
            // No machine in the machine: what the host's kernel would do for one is its hardest part, and no box is offered it.
            Processor::Kvm => ("kvm", "host,vmx=off,svm=off"),
            // The size of what it makes of the guest's instructions, in MiB: counted in the overhead.
            Processor::Emulated => ("tcg,tb-size=48", "max"),
        };
        let mut words = Vec::new();
        let mut say = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
        let machine = "q35,usb=off,vmport=off,smbus=off,sata=off,i8042=off,hpet=off,graphics=off";
        let memory = self.memory / MIB;
        // Copies have the template's memory as a private view: what they write is their own. What it comes from is sealed, so
        // it does not matter that QEMU opens it for writing.
        let share = match form {
            Form::Alone => None,
            Form::Template | Form::Heir => Some("on"),
            Form::Copy => Some("off"),
        };
        match share {
            None => say("-machine", machine),
            Some(share) => {
                say("-machine", &format!("{machine},memory-backend=memory"));
                let file =
                    format!("memory-backend-file,id=memory,size={memory}M,mem-path=/proc/self/fd/{MEMORY}");
                say("-object", &format!("{file},share={share}"));
                say("-chardev", &format!("socket,id=orders,fd={ORDERS}"));
                say("-mon", "chardev=orders,mode=control");
            }
        }
        // Kernels that know it draw new randomness by themselves; the agent sees to it for all. Also where nothing is copied: one list of
        // devices for all machines.
        say("-device", "vmgenid,guid=auto");
        if matches!(form, Form::Copy | Form::Heir) {
            say("-incoming", "defer");
        }
        say("-accel", accelerator);
        say("-cpu", model);
        say("-smp", &self.processors.to_string());
        say("-m", &format!("{memory}M"));
        say("-display", "none");
        say("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
        // One that takes over from another has all of this in its memory. QEMU would keep a copy of the kernel for each.
        if matches!(form, Form::Alone | Form::Template) {
            say("-kernel", KERNEL);
            say("-initrd", FIRST_FILES);
            say("-append", &self.command_line(form, box_id));
        }
        say("-device", "virtio-serial-pci,max_ports=2");
        say("-chardev", &format!("socket,id=control,fd={CONTROL}"));
        say("-device", &format!("virtserialport,chardev=control,name={PORT}"));
        // All boxes of an image read the same disk: one that wakes has no reason to drop it from the host's memory.
        say(
            "-blockdev",
            &format!("driver=file,node-name=disk,filename={DISK},read-only=on,locking=off,drop-cache=off"),
        );
        say("-device", "virtio-blk-pci,drive=disk");
        if self.workspace {
            let number = card(form) + u32::from(self.card);
            let file = format!("driver=file,node-name=workspace,filename=/proc/self/fd/{number}");
            say("-blockdev", &format!("{file},read-only=on,locking=off"));
            say("-device", "virtio-blk-pci,drive=workspace");
        }
        if self.console {
            let number = card(form) + u32::from(self.card) + u32::from(self.workspace);
            say("-chardev", &format!("socket,id=console,fd={number}"));
            say("-device", "isa-serial,chardev=console");
        }
        say("-object", "rng-builtin,id=random");
        say("-device", "virtio-rng-pci,rng=random");
        if self.card {
            // A stream of frames, each behind its length; whoever is at the other end of it is the gateway, or nobody.
            say("-netdev", &format!("socket,id=wire,fd={}", card(form)));
            say("-device", CARD);
        }
        let alone = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"];
        alone.iter().map(ToString::to_string).chain(words).collect()
    }
}
