//! What the ledger tells: one typed event per record. Closed and append-only: alerts, sinks and auditors key on the words.
//!
//! - [`Event`] and [`About`]: what happens, and to which box under which rules.
//! - [`ledger_text`]: the line that an event becomes, and back.
//!
//! An event is written *before* the effect that it announces. Secrets have no place here: a command is named by its
//! program and the digest of its arguments, because arguments are where people put tokens. Text that a caller or a box
//! had a hand in is a [`Label`]: cut to a bound, and to be escaped before it meets a terminal.

pub(crate) mod hex;
pub mod ledger_text;

use std::fmt;

use blastbox_policy::{Gap, PolicyDigest, ThreatLevel, Tier};
use serde::{Deserialize, Serialize};

use crate::BoxId;
use crate::egress::{Carried, Door};
use crate::receipt::{LimitName, Outcome, Usage};

pub use hex::{BadHex, Hash, LedgerId, PublicKey, Signature};

/// Most bytes of a [`Label`], not counting the mark of a cut.
pub const MAX_LABEL: usize = 256;

/// A short text from elsewhere, cut to [`MAX_LABEL`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Label(String);

impl Label {
    /// The text, or as much of it as is kept, with `…` at the end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.get(..text.floor_char_boundary(MAX_LABEL)) {
            // One that was cut before stays as it is, so that what is read back is what was written.
            Some(head) if head.len() < text.len() && text.get(head.len()..) != Some("…") => {
                Self(format!("{head}…"))
            }
            Some(_) | None => Self(text.to_owned()),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Label {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Which box an event is about, and under which rules it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The box; absent until it has a name.
    #[serde(rename = "box", default, skip_serializing_if = "Option::is_none")]
    pub box_id: Option<BoxId>,
    /// Whose it is.
    pub tenant: Label,
    /// The name of the sealed policy.
    pub policy: PolicyDigest,
    /// What it is made from.
    pub image: ImageMark,
    /// The tier that is really used; absent until one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// What is weaker than it could be, each accepted by name.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// An image by its label and, where it has one, its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageMark {
    /// Such as `host`.
    pub label: Label,
    /// SHA-256 of the content; absent for a view of a directory, which has no fixed content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Hash>,
}

/// Who asked for a box to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KilledBy {
    /// Its owner.
    Caller,
    /// An operator of this daemon.
    Operator,
    /// Its time was over.
    Deadline,
    /// It met a limit that ends it.
    Limit,
    /// It broke the protocol, or its agent died.
    Fault,
    /// The daemon stops.
    Shutdown,
    /// A new daemon clears what a killed one left.
    Reaper,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolEnd {
    /// The function gave something.
    Answered,
    /// It said that it failed.
    Failed,
    /// Nobody answered in time.
    TimedOut,
}

/// What happens. A reader that is older than the writer sees [`Event::Unrecognized`] and can still verify the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The first record of every file.
    Header {
        /// Version of the form: [`ledger_text::VERSION`].
        version: u32,
        /// The ledger that the file belongs to.
        ledger: LedgerId,
        /// Number of the file, from 1.
        file: u32,
        /// What checks the signatures of this ledger.
        key: PublicKey,
    },
    /// A signing key was made.
    KeyCreated {
        /// Its public half.
        key: PublicKey,
    },
    /// A signature over the record directly before, and so over everything before it.
    Checkpoint {
        /// The record that is signed: always the one before.
        signed: u64,
        /// Over [`ledger_text::checkpoint_message`].
        signature: Signature,
    },
    /// A line was half written when a daemon died; it was moved aside.
    Recovered {
        /// The file that ended in it.
        file: u32,
        /// Its length.
        bytes: u64,
        /// Its SHA-256.
        digest: Hash,
        /// The name of the file that keeps it.
        kept_as: Label,
    },
    /// The chain goes on in the next file.
    Rotated {
        /// Its number.
        next: u32,
    },
    /// The ledger was closed in order; the checkpoint after it proves that nothing is missing before.
    Closed,

    /// A daemon begins to work.
    DaemonStarted {
        /// Its version.
        version: Label,
    },
    /// A daemon ends in order.
    DaemonStopped,
    /// A sink does not take records.
    SinkUnreachable {
        /// Its name.
        sink: Label,
        /// Why.
        why: Label,
    },
    /// A sink takes records again.
    SinkReached {
        /// Its name.
        sink: Label,
    },
    /// A member of a warm pool died or answered wrongly; it is destroyed, never handed out.
    PoolPoisoned {
        /// What was wrong.
        why: Label,
    },

    /// Somebody wants a box.
    BoxAsked {
        /// The threat level of the policy.
        threat: ThreatLevel,
    },
    /// blastbox worked and the answer is no.
    BoxRefused {
        /// The stable code of the refusal.
        reason: Label,
    },
    /// A box is about to be started.
    BoxLaunched,
    /// Its agent answered; it takes commands.
    BoxReady {
        /// SHA-256 of the kernel that it boots, where it is a virtual machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel: Option<Hash>,
        /// The engine that plays it, by its stable name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        engine: Option<Label>,
    },
    /// A command is about to be sent to the box.
    CommandAsked {
        /// The command, by its number in the box.
        exec: u32,
        /// The program.
        program: Label,
        /// How many arguments follow it.
        arguments: u32,
        /// SHA-256 over program and arguments, each followed by a zero byte.
        digest: Hash,
    },
    /// The command runs.
    CommandStarted {
        /// The command.
        exec: u32,
    },
    /// The command is over.
    CommandEnded {
        /// The command.
        exec: u32,
        /// What it returned, where it returned.
        code: Option<u8>,
        /// The signal, where one ended it.
        signal: Option<u8>,
        /// Its work, where the policy has it counted. Where it was all that the policy gives, `limit_met` follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fuel: Option<u64>,
    },
    /// The command calls a function of its owner, who is told next.
    ToolCalled {
        /// The command.
        exec: u32,
        /// The call, by its number in the command.
        call: u32,
        /// The function.
        tool: Label,
        /// Bytes of JSON that it is given.
        bytes: u64,
        /// SHA-256 over them.
        digest: Hash,
    },
    /// The command is about to hear what came of its call.
    ToolAnswered {
        /// The command.
        exec: u32,
        /// The call.
        call: u32,
        /// In a word.
        how: ToolEnd,
        /// Bytes of JSON that it hears.
        bytes: u64,
    },
    /// The box tried a system call that its profile does not hold.
    SyscallDenied {
        /// Its number in the box's architecture.
        number: u32,
        /// Its name, where it has one.
        name: Option<Label>,
        /// How often since the last record about it.
        count: u64,
    },
    /// The box changed a file or a name where nobody expects it, or tried to: the kernel decided whether it could.
    UnexpectedWrite {
        /// The path in the box, escaped; empty for those whose path is not known or not told apart.
        path: Label,
        /// The stable word for why it is unexpected.
        reason: Label,
        /// The call that was used first.
        syscall: Label,
        /// How often since the last record about it.
        count: u64,
    },
    /// The box was kept from something by its gateway, or asked for a name that it may not have.
    NetworkDenied {
        /// The connection that it came in, where one was open already; 0 where none was, and for several together.
        #[serde(default)]
        flow: u64,
        /// By which way it came; absent for a question about a name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        door: Option<Door>,
        /// The name, or the address where there was none.
        target: Label,
        /// The port; 53 for a question about the name.
        port: u16,
        /// The type that was asked for, as DNS numbers it, where it was a question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind_asked: Option<u16>,
        /// Where it went, as far as that is known: what the box named itself, or the last address that the name was found at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<std::net::IpAddr>,
        /// The stable word for why.
        reason: Label,
        /// How often since the last record about it.
        count: u32,
        /// What it had carried until then; of all of them together, where it stands for several.
        #[serde(flatten)]
        carried: Carried,
    },
    /// The box reached something through its gateway.
    NetworkOpened {
        /// The connection, by its number at the gateway.
        flow: u64,
        /// By which way it came; absent in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        door: Option<Door>,
        /// The name, or the address where there was none.
        target: Label,
        /// The port.
        port: u16,
        /// The address that was dialled.
        address: std::net::IpAddr,
        /// The rule that allowed it, by its host as written.
        rule: Label,
    },
    /// A connection of the box through its gateway is over.
    NetworkClosed {
        /// The connection.
        flow: u64,
        /// The name, or the address where there was none.
        target: Label,
        /// The port.
        port: u16,
        /// What it has carried.
        #[serde(flatten)]
        carried: Carried,
        /// What ended it, where it was neither of both sides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Label>,
    },
    /// The box asked for a name and was answered.
    NameAsked {
        /// The name.
        name: Label,
        /// The type that was asked for, as DNS numbers it.
        kind_asked: u16,
        /// How often since the last record about it.
        count: u32,
    },
    /// A secret was put into a request of the box that is about to be sent.
    SecretLent {
        /// The connection.
        flow: u64,
        /// The secret's name. Its value is in no record.
        secret: Label,
        /// The host that it goes to.
        target: Label,
        /// The port.
        port: u16,
        /// Method and path of the request.
        request: Label,
    },
    /// A secret was minted for the box; its gateway gets it next.
    SecretMinted {
        /// Its name. The value is nowhere.
        secret: Label,
        /// How many seconds it lives, where its source says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
    /// A secret of the box was revoked.
    SecretRevoked {
        /// Its name.
        secret: Label,
    },
    /// A lease could not be renewed or revoked.
    SecretTrouble {
        /// Its name.
        secret: Label,
        /// What was tried, and why it did not work.
        why: Label,
    },
    /// What the box may reach is about to change, by whoever owns it. The record stands under the policy before.
    RulesChanged {
        /// Rules that come, as `HOST:PORT`.
        allowed: Vec<Label>,
        /// Rules that go.
        denied: Vec<Label>,
        /// The policy from now on.
        to: PolicyDigest,
    },
    /// So many records of the box's gateway could not be told.
    NetworkUntold {
        /// How many.
        count: u32,
    },
    /// The box met a limit.
    LimitMet {
        /// Which.
        limit: LimitName,
    },
    /// The box has little time left.
    TimeNearlyOver {
        /// How little.
        left_seconds: u64,
    },
    /// The box is about to be frozen.
    BoxPaused,
    /// The box is about to go on.
    BoxResumed,
    /// A new daemon takes a box over that has outlived the one before.
    BoxAdopted,
    /// The box is about to be put to sleep for a moment, and copied with everything that runs in it.
    BoxCopied {
        /// The name of the snapshot, or how many forks.
        to: Label,
    },
    /// The box was paused to disk: its machine lies there, and nothing else of it is left until it is resumed or killed.
    BoxOnDisk {
        /// What it used since it was made, or was last resumed from there.
        spent: Usage,
    },
    /// The box that was asked for begins as a copy of one that ran.
    BoxBegunFrom {
        /// The name of the snapshot, or of the box.
        from: Label,
    },
    /// A snapshot is about to be taken away.
    SnapshotRemoved {
        /// Its name.
        snapshot: Label,
        /// The box that it was taken of; absent where its file cannot be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<BoxId>,
    },
    /// A program that a tenant brought is about to take its place among those of the tier `wasm`.
    ModuleBrought {
        /// Whose it is.
        tenant: Label,
        /// Its name.
        module: Label,
        /// SHA-256 of what was brought.
        digest: Hash,
    },
    /// Such a program is about to be taken away.
    ModuleRemoved {
        /// Whose it is.
        tenant: Label,
        /// Its name.
        module: Label,
    },
    /// The box is about to be ended.
    KillAsked {
        /// By whom.
        by: KilledBy,
    },
    /// Nothing of the box is left.
    BoxEnded {
        /// How it ended.
        outcome: Outcome,
        /// What it used.
        spent: Usage,
    },
    /// Break-outs were tried on this host, and a report was sealed: `blastbox escape --state-dir`.
    EscapeReported {
        /// The report's digest, as `blastbox audit report` computes it.
        digest: Hash,
        /// Attempts.
        attempts: u64,
        /// Cells of the matrix in which the box held.
        held: u64,
        /// Those in which something came out.
        escaped: u64,
        /// Those that say nothing: broken, or not run.
        doubtful: u64,
    },

    /// An event of a later version. Read, never written.
    #[serde(other)]
    Unrecognized,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_cut_once_and_reads_back_as_it_was_written() {
        let long = Label::new(&"ä".repeat(MAX_LABEL));
        assert!(long.as_str().ends_with("ä…") && long.as_str().len() <= MAX_LABEL + '…'.len_utf8());
        assert_eq!(Label::new(long.as_str()), long);
        assert_eq!(Label::new("host").as_str(), "host");
    }

    #[test]
    fn an_event_of_a_later_version_is_read_as_unrecognized() {
        let event: Event = serde_json::from_str(r#"{"kind":"box_teleported","to":"mars"}"#).unwrap();
        assert_eq!(event, Event::Unrecognized);
    }

    #[test]
    fn a_field_that_was_added_later_does_not_hide_the_event() {
        let event: Event =
            serde_json::from_str(r#"{"kind":"kill_asked","by":"caller","mood":"calm"}"#).unwrap();
        assert_eq!(event, Event::KillAsked { by: KilledBy::Caller });
    }

    #[test]
    fn the_kernel_of_a_machine_is_told_and_an_older_record_without_one_is_read() {
        let bare = r#"{"kind":"box_ready"}"#;
        let event: Event = serde_json::from_str(bare).unwrap();
        assert_eq!(event, Event::BoxReady { kernel: None, engine: None });
        assert_eq!(serde_json::to_string(&event).unwrap(), bare);
        let kernel = Some(Hash::of([b"kernel".as_slice()]));
        let event = Event::BoxReady { kernel, engine: Some("qemu".into()) };
        let told = serde_json::to_string(&event).unwrap();
        assert!(told.contains(r#""kernel":"sha256:"#) && told.contains(r#""engine":"qemu""#), "{told}");
        assert_eq!(serde_json::from_str::<Event>(&told).unwrap(), event);
    }
}
