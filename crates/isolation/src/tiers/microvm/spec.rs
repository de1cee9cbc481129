//! A virtual machine as data: what it has, where its parts are handed over, and what its guest is told. Words for it are an engine's.

use blastbox_policy::{FileRules, KernelRules, Loopback, NetworkMode, ScratchExec, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::plan::WorkspaceAccess;

use crate::request::Worksite;

/// Grows with every change in how copies are made.
pub(crate) const COPIES: &str = "copies of machines 5";

/// Where its files lie in the root around its engine.
pub(crate) const HOME: &str = "/machine";
pub(crate) const KERNEL: &str = "/machine/kernel";
pub(crate) const FIRST_FILES: &str = "/machine/first";
pub(crate) const DISK: &str = "/machine/disk";

/// The numbers of what an engine inherits: the control channel; of a template and its copies, the memory and the line for orders.
pub(crate) const CONTROL_AT: u32 = 3;
pub(crate) const MEMORY_AT: u32 = 4;
pub(crate) const ORDERS_AT: u32 = 5;
/// The wire to the gateway comes behind them, then the workspace, then whoever hears the console.
pub(crate) const fn card_at(form: Form) -> u32 {
    match form {
        Form::Alone => 4,
        Form::Template | Form::Copy | Form::Heir => 6,
    }
}
/// The name of the port by which the guest knows it.
pub(crate) const PORT: &str = "blastbox.control";

const MIB: u64 = 1 << 20;

/// How the guest's instructions are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processor {
    /// By the host's processor.
    Kvm,
    /// By a program that plays one.
    Emulated,
}

/// How a machine begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
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
pub(crate) const LEAST_MEMORY: u64 = 128 * MIB;

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VmSpec {
    pub(crate) processor: Processor,
    pub(crate) processors: u32,
    /// Bytes of the guest's own memory.
    pub(crate) memory: u64,
    /// Whether it has a network card.
    pub(crate) card: bool,
    /// Whether a copy of the caller's directory is its second disk.
    pub(crate) workspace: bool,
    /// Whether somebody hears what its kernel says. Such a machine boots by itself.
    pub(crate) console: bool,
    /// What the guest's first process is told.
    pub(crate) orders: Vec<String>,
}

impl VmSpec {
    /// What the guest's first process is told: the same rules that hold in a jail.
    pub(crate) fn orders(policy: &SealedPolicy, worksite: Worksite) -> Vec<String> {
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

    /// All that it is told, with what is its own: a copy is told its name when it wakes, with everything else that no two of them may share.
    pub(crate) fn told(&self, form: Form, box_id: &BoxId) -> Vec<String> {
        let own = match form {
            Form::Alone => ["asleep=no".to_owned(), format!("name={}", box_id.as_host_name())],
            Form::Template | Form::Copy | Form::Heir => ["asleep=yes".to_owned(), "name=template".to_owned()],
        };
        self.orders.iter().cloned().chain(own).collect()
    }

    /// The number of the workspace's disk.
    pub(crate) fn workspace_at(&self, form: Form) -> u32 {
        card_at(form) + u32::from(self.card)
    }

    /// The number of the line to whoever hears the console.
    pub(crate) fn console_at(&self, form: Form) -> u32 {
        self.workspace_at(form) + u32::from(self.workspace)
    }
}
