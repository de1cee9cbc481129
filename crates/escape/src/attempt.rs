//! What an attempt is: data and a script.

use blastbox_policy::{Boundary, Gap};
use blastbox_wire::receipt::{Outcome, Receipt};
use serde::Serialize;

use crate::layer::Second;
use crate::reply::Reply;

/// The classes of the catalogue: one room of it each, and one page in `docs/attacks/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// System calls and other doors of the kernel.
    Kernel,
    /// Files of the host, and what is left in a workspace.
    Files,
    /// Ways out.
    Network,
    /// Secrets of the caller and the host.
    Credentials,
    /// Living on, and steering one's own end.
    Lifecycle,
    /// More than one's share.
    Resources,
    /// What the host is and what runs on it.
    Information,
    /// From one box to the next, or to a neighbour.
    Persistence,
    /// Lying to blastbox itself.
    ControlPlane,
}

impl Class {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 9] = [
        Self::Kernel,
        Self::Files,
        Self::Network,
        Self::Credentials,
        Self::Lifecycle,
        Self::Resources,
        Self::Information,
        Self::Persistence,
        Self::ControlPlane,
    ];

    /// The word before the dot in an attempt's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Files => "files",
            Self::Network => "network",
            Self::Credentials => "credentials",
            Self::Lifecycle => "lifecycle",
            Self::Resources => "resources",
            Self::Information => "information",
            Self::Persistence => "persistence",
            Self::ControlPlane => "control",
        }
    }

    /// What it is called in a report.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Kernel => "Kernel surface",
            Self::Files => "File system",
            Self::Network => "Network",
            Self::Credentials => "Credentials",
            Self::Lifecycle => "Life and end",
            Self::Resources => "Resources",
            Self::Information => "Information about the host",
            Self::Persistence => "Between boxes",
            Self::ControlPlane => "Control plane",
        }
    }
}

/// The issue classes of SECURITY.md: what a success would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "SECURITY.md says what each means")]
pub enum Issue {
    Escape,
    HostLeak,
    Exfil,
    Lateral,
    HostDoS,
    PeerDoS,
    InternalEsc,
    InternalRead,
    Integrity,
}

/// What the attempt runs.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    /// One statement in Python after the prelude.
    Line(&'static str),
    /// A file in Python after the prelude.
    Python(&'static str),
    /// A file for the shell.
    Shell(&'static str),
    /// Nothing in a box: what an agent that lies says, by its name, and how its box then ends.
    Frames(&'static str, Ending),
    /// Nothing in a box: what a box that lies answers to `blastbox cp`.
    Reply(Reply),
}

/// How the host has to end a box whose agent lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As one that broke the protocol.
    FoundOut,
    /// The same, or at its limit on output: a host that takes as fast as it is sent to has a window that never closes.
    Bounded,
    /// As one whose agent is gone.
    Gone,
    /// By its own clock: what was said changes nothing, however often.
    Outlasted,
}

/// How the word of an attempt (`ESCAPED`) is taken where the box has a kernel of its own. That kernel answers for itself: an
/// answer alone says nothing about the host. What the host sees on its own side counts in every tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// As in a jail: it tells of something that only the host could have given, or of a limit that was passed.
    Counts,
    /// It has read something and printed it: an escape where the host has the same, held where the host has another one.
    Content,
    /// Something was answered. These attempts judge what can be reached by it.
    Answer(&'static str),
}

/// Where the same attempt must succeed, so that a held cell is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// As a plain process of the caller.
    Plain,
    /// As a plain process, if the caller is root; what it does there changes nothing.
    PlainRoot,
    /// As root of namespaces of its own: power over nothing of the host's.
    Namespaces,
    /// In a network of its own in which every address answers.
    OwnNet,
    /// In a box whose policy opens what the attempt needs.
    Box(&'static [&'static str]),
    /// In a receipt: that of the box as somebody would write it who believed the lie, with this outcome and code. Only a box has
    /// one, so what is shown is that such a receipt would not pass.
    Believed(Outcome, u8),
    /// With an agent that does not lie: the same box then comes to its own end, which would not pass for held.
    Honest,
}

/// What the host prepares besides its canaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prop {
    /// The stage's workspace is given to the box.
    Workspace,
    /// A descriptor of the stage's directory is left open for whoever is started.
    LeakedDescriptor,
    /// A process of the host that holds a secret in its environment and its command line, as `ESCAPE_DECOY`.
    Decoy,
    /// These facts of the host count as secrets.
    HostFacts,
    /// What the host has in this file counts as a secret.
    HostFile(&'static str),
    /// What the host's kernel has logged counts as a secret, where the caller may read it.
    HostLog,
    /// Two boxes after each other: `ESCAPE_PHASE` is `leave`, then `look`.
    TwoBoxes,
    /// Two boxes at the same time: the first is alive while the second looks.
    Neighbours,
}

/// The receipt of an attempt that is not about receipts.
pub(crate) fn nothing_false(_: &Receipt) -> Option<String> {
    None
}

/// One attempt.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Its class.
    pub class: Class,
    /// Its name within the class.
    pub name: &'static str,
    /// What it tries, in a line.
    pub title: &'static str,
    /// Which boundary has to hold.
    pub boundary: Boundary,
    /// What a success would be called.
    pub issue: Issue,
    /// The known case or technique that it stands for.
    pub stands_for: &'static str,
    /// The control that stops it first.
    pub first: &'static str,
    /// What holds if that falls.
    pub second: Second,
    /// What it runs.
    pub script: Script,
    /// Where it must succeed.
    pub control: Control,
    /// What the host prepares.
    pub props: &'static [Prop],
    /// Further options of `blastbox run`.
    pub options: &'static [&'static str],
    /// Outcomes (words of the receipt) that mean that it was stopped.
    pub stopped_by: &'static [&'static str],
    /// What the host finds false in the receipt.
    pub lie: fn(&Receipt) -> Option<String>,
    /// Gaps that, where a policy accepts them and the host has them, make a success expected.
    pub unless: &'static [Gap],
}

impl Attempt {
    /// Its whole name, such as `kernel.unshare-user`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}.{}", self.class.as_str(), self.name)
    }

    /// How its own word is taken where the box has a kernel of its own.
    #[must_use]
    pub fn word(&self) -> Word {
        crate::catalogue::word(self.class, self.name)
    }

    pub(crate) fn has(&self, prop: Prop) -> bool {
        self.props.contains(&prop)
    }

    /// What a success looks like from the host's side.
    #[must_use]
    pub fn success(&self) -> &'static str {
        crate::catalogue::success(self)
    }
}
