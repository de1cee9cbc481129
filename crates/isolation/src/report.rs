//! What a tier makes of a policy: a plan, and what truly holds.

use std::path::PathBuf;

use blastbox_images::machine::CopyCaps;
use blastbox_policy::{Boundary, Gap, Tier};
use blastbox_wire::event::Hash;
use blastbox_wire::plan::Plan;

use crate::MachineEngine;

/// What one tier makes of one policy on one host.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Lowered {
    /// The tier.
    pub tier: Tier,
    /// What is to be done on the host. It holds to every rule of `Plan::check`.
    pub plan: Plan,
    /// Files and directories of the host that travel with the plan as descriptors, behind all others: what its steps show
    /// of them begins at [`crate::Request::first_show`].
    pub shows: Vec<PathBuf>,
    /// Each of the five boundaries, in the order of [`Boundary::ALL`].
    pub report: Vec<BoundaryReport>,
    /// Every gap that this tier has on this host. Of a choice: those that the policy accepted by name.
    pub gaps: Vec<Gap>,
    /// The kernel that it boots, by its content, where it boots one of its own.
    #[serde(skip)]
    pub kernel: Option<Hash>,
    /// Who plays its machine, where it is one.
    #[serde(skip)]
    pub engine: Option<MachineEngine>,
    /// How such a box can begin without booting, where it can.
    #[serde(skip)]
    pub copies: Option<Box<Copies>>,
    /// The caller's directory is copied and travels as a disk, behind all others, where this tier cannot show it.
    #[serde(skip)]
    pub workspace_disk: Option<CopyCaps>,
    /// Work that each command may do, where this tier counts it.
    #[serde(skip)]
    pub fuel: Option<u64>,
    /// Whether its commands have requests made by a call: see [`Self::calls_http`].
    #[serde(skip)]
    pub http: bool,
    /// Whether the first command of such a box costs far more than the next one, so that one that waits should have run it.
    #[serde(skip)]
    pub rehearses: bool,
}

impl Lowered {
    /// A box that boots by itself, whose directory is shown and whose work nobody counts.
    pub(crate) fn new(
        tier: Tier,
        plan: Plan,
        shows: Vec<PathBuf>,
        report: Vec<BoundaryReport>,
        gaps: Vec<Gap>,
    ) -> Self {
        Self {
            tier,
            plan,
            shows,
            report,
            gaps,
            kernel: None,
            engine: None,
            copies: None,
            workspace_disk: None,
            fuel: None,
            http: false,
            rehearses: false,
        }
    }
}

/// How boxes of a plan begin as copies of one machine that booted before them and ran nothing.
///
/// Two descriptors more travel with these plans, behind all others: the machine's memory, and a line for its engine's orders; and a
/// third where it has a network card, the wire to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copies {
    /// Who plays it, and takes its orders.
    pub engine: MachineEngine,
    /// Everything that a copy relies on. Another image, kernel, agent, machine, engine (or build of it) or processor is another one.
    pub bound: Hash,
    /// Bytes of the machine's memory.
    pub memory: u64,
    /// Whether it has a network card.
    pub card: bool,
    /// Whether its guest is told whom its programs believe.
    pub authority: bool,
    /// The plan of the machine that is copied, which is no box of anybody.
    pub template: Plan,
    /// The plan of a copy.
    pub copy: Plan,
    /// The plan of a machine that takes over from a copy which sleeps, so that others can begin as copies of that.
    pub heir: Plan,
}

/// What holds one boundary.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BoundaryReport {
    /// The boundary.
    pub boundary: Boundary,
    /// Whether it holds on its own when another one falls.
    pub effective: bool,
    /// What holds it, in short sentences.
    pub how: Vec<String>,
    /// What makes it weaker than it could be.
    pub gaps: Vec<Gap>,
}

impl Lowered {
    /// Whether commands in such a box can call functions of the caller: a worker passes calls on, and agents know none.
    #[must_use]
    pub fn calls_tools(&self) -> bool {
        match self.tier {
            Tier::Wasm => true,
            Tier::Jail | Tier::Gvisor | Tier::Microvm => false,
        }
    }

    /// Whether requests of such a box are brought to its gateway by the engine, because it has no link.
    #[must_use]
    pub fn calls_http(&self) -> bool {
        self.http
    }

    /// Whether what runs in such a box has a kernel of its own, which alone knows what it has refused there.
    #[must_use]
    pub fn has_own_kernel(&self) -> bool {
        self.tier == Tier::Microvm
    }

    /// Whether the agent of such a box has memory to refuse, and tells when it did: a worker counts what its guests hold.
    #[must_use]
    pub fn refuses_memory(&self) -> bool {
        self.tier == Tier::Wasm
    }

    /// Whether its commands are guests, which are begun before anybody asks for them.
    #[must_use]
    pub fn has_guests(&self) -> bool {
        self.tier == Tier::Wasm
    }

    /// The boundaries that hold.
    #[must_use]
    pub fn effective(&self) -> Vec<Boundary> {
        self.report.iter().filter(|report| report.effective).map(|report| report.boundary).collect()
    }
}
