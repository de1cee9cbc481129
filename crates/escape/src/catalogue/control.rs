//! Lying to blastbox itself: the agent, the channel, the receipt.

use blastbox_policy::{Boundary, Gap};
use blastbox_wire::receipt::{Outcome, Receipt};

use crate::attempt::Control::{self, Believed, Plain};
use crate::attempt::Prop::Decoy;
use crate::attempt::{Attempt, Class, Issue, Prop, Script};
use crate::layer::Layer::{Seccomp, Users};
use crate::layer::Second::{self, Behind, Nothing, Unlifted};

/// Name, what it tries, what it stands for, issue, first control, second, the script, where it must succeed, what would be false, props, gaps.
type Line = (
    &'static str,
    &'static str,
    &'static str,
    Issue,
    &'static str,
    Second,
    &'static str,
    Control,
    fn(&Receipt) -> Option<String>,
    &'static [Prop],
    &'static [Gap],
);

const ONE_PATH: &str = "it is the one path that output takes through the program, with no switch to lift: fuzzing holds it, and control.frames-* go for what is behind";
const CHANNEL: Second =
    Unlifted("frames are bounded, checked against the state of the box, and fuzzed", ONE_PATH);
const ONE_SOURCE: Second =
    Nothing("the outcome has one source, which no box reaches: what a command says of itself is never asked");
const OUTSIDE: Second = Unlifted(
    "what ends a box is seen from outside: clock, cgroup, exit of pid 1",
    "how an end is told is one path of the program, with no switch to lift",
);
const FOREIGN: Second = Behind(Users, "pid 1 takes no signal from inside that it has not asked for");
const NOT_DUMPABLE: Second = Behind(Users, "pid 1 is not dumpable: the kernel shows and opens nothing of it");
/// What stands behind the filter, and is proven without it.
const HIDDEN: Second = Behind(Seccomp, "the agent is not dumpable, and another user (as root)");
const AGENT: &str = "the agent is another user (as root)";

/// The receipt must say that the command ended by itself with this code.
fn exited(receipt: &Receipt, code: u8) -> Option<String> {
    let outcome = receipt.outcome.as_str();
    let right = outcome == "exited" && receipt.exit_code == code;
    (!right).then(|| format!("the receipt says {outcome} {}, the command exited {code}", receipt.exit_code))
}

/// The receipt must say that the box went on.
fn went_on(receipt: &Receipt) -> Option<String> {
    let outcome = receipt.outcome.as_str();
    (outcome != "exited").then(|| format!("the box did not go on: {outcome}"))
}

fn not_a_limit(receipt: &Receipt) -> Option<String> {
    let outcome = receipt.outcome.as_str();
    (outcome != "signalled").then(|| format!("the receipt says {outcome}, the command killed itself"))
}

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("lie-timed-out", "End with the code of a passed deadline", "exit codes that mean two things", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 124', flush=True); os._exit(124)", Believed(Outcome::TimedOut, 124), |receipt| exited(receipt, 124), &[], &[]),
    ("lie-refused", "End with the code of a refusal", "exit codes that mean two things", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 125', flush=True); os._exit(125)", Believed(Outcome::Refused, 125), |receipt| exited(receipt, 125), &[], &[]),
    ("lie-not-executable", "End with the code of a program that cannot be executed", "exit codes that mean two things", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 126', flush=True); os._exit(126)", Believed(Outcome::NotStarted, 126), |receipt| exited(receipt, 126), &[], &[]),
    ("lie-not-found", "End with the code of a program that is not there", "exit codes that mean two things", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 127', flush=True); os._exit(127)", Believed(Outcome::NotStarted, 127), |receipt| exited(receipt, 127), &[], &[]),
    ("lie-killed", "End with the code of a killed program", "128 and a signal's number", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 137', flush=True); os._exit(137)", Believed(Outcome::Signalled, 137), |receipt| exited(receipt, 137), &[], &[]),
    ("lie-no-reader", "End with the code of output that nobody took", "128 and a signal's number", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 141', flush=True); os._exit(141)", Believed(Outcome::Signalled, 141), |receipt| exited(receipt, 141), &[], &[]),
    ("lie-output-limit", "End with the code of too much output", "128 and a signal's number", Issue::Integrity, "the outcome comes from outside, not from the code", ONE_SOURCE, "print('HELD exits 153', flush=True); os._exit(153)", Believed(Outcome::OutputLimit, 153), |receipt| exited(receipt, 153), &[], &[]),
    ("lie-out-of-memory", "End as if memory had run out", "SIGKILL means many things", Issue::Integrity, "the cgroup's own count of kills", ONE_SOURCE, "print('HELD kills itself', flush=True); os.kill(os.getpid(), 9)", Believed(Outcome::OutOfMemory, 137), not_a_limit, &[], &[]),
    ("fake-receipt", "Print a receipt", "output that is taken for a report", Issue::Integrity, "output travels as data beside the receipt", CHANNEL, include_str!("../../attempts/control/fake_receipt.py"), Believed(Outcome::Exited, 0), |receipt| exited(receipt, 7), &[], &[]),
    ("frames-in-output", "Print frames of the agent's protocol", "confusing data with commands", Issue::Integrity, "output travels as data in frames with lengths", CHANNEL, include_str!("../../attempts/control/frames.py"), Believed(Outcome::Exited, 0), |receipt| exited(receipt, 9), &[], &[]),
    ("odd-bytes", "Print every byte, nulls and broken text", "parsers of text", Issue::PeerDoS, "output is bytes, and base64 in JSON", CHANNEL, include_str!("../../attempts/control/odd_bytes.py"), Believed(Outcome::Lost, 125), |receipt| exited(receipt, 11), &[], &[]),
    ("byte-by-byte", "Alternate between streams byte by byte", "a frame for every byte", Issue::PeerDoS, "frames are joined, and pieces are counted", CHANNEL, include_str!("../../attempts/control/byte_by_byte.py"), Believed(Outcome::Lost, 125), |receipt| exited(receipt, 12), &[], &[]),
    ("denial-flood", "Be denied ten thousand times under many numbers", "reports without end", Issue::PeerDoS, "denials are counted per number, and numbers are bounded", CHANNEL, include_str!("../../attempts/control/denials.py"), Believed(Outcome::Lost, 125), |receipt| exited(receipt, 13), &[], &[]),
    ("zombies", "Leave children for pid 1 to bury", "an agent that is busy with the dead", Issue::PeerDoS, "the agent reaps whatever comes to it", OUTSIDE, include_str!("../../attempts/control/zombies.py"), Believed(Outcome::Lost, 125), |receipt| exited(receipt, 14), &[], &[]),
    ("closed-streams", "Close every stream and go on", "ends that nobody hears of", Issue::Integrity, "the end is that of the process, not of its streams", OUTSIDE, include_str!("../../attempts/control/closed_streams.py"), Believed(Outcome::Exited, 0), |receipt| exited(receipt, 15), &[], &[]),
    ("kill-agent", "Kill pid 1", "ending one's own guard", Issue::InternalEsc, AGENT, FOREIGN, include_str!("../../attempts/control/kill_agent.py"), Plain, went_on, &[Decoy], &[]),
    ("stop-agent", "Stop pid 1", "freezing one's own guard", Issue::InternalEsc, AGENT, FOREIGN, include_str!("../../attempts/control/stop_agent.py"), Plain, went_on, &[Decoy], &[]),
    ("signal-agent", "Send pid 1 every signal", "handlers of one's own guard", Issue::InternalEsc, AGENT, FOREIGN, include_str!("../../attempts/control/signal_agent.py"), Plain, went_on, &[Decoy], &[]),
    ("trace-agent", "Trace pid 1", "steering one's own guard", Issue::InternalEsc, "the filter denies ptrace", HIDDEN, include_str!("../../attempts/control/trace_agent.py"), Plain, went_on, &[], &[]),
    ("agent-channel", "Write into the agent's channel", "speaking in the agent's name", Issue::InternalEsc, AGENT, NOT_DUMPABLE, include_str!("../../attempts/control/channel.py"), Plain, went_on, &[Decoy], &[]),
    ("agent-memory", "Write the agent's memory", "speaking in the agent's name", Issue::InternalEsc, AGENT, NOT_DUMPABLE, include_str!("../../attempts/control/memory.py"), Plain, went_on, &[Decoy], &[]),
    ("agent-descriptors", "See what the agent holds open", "the control channel by its name", Issue::InternalRead, AGENT, NOT_DUMPABLE, include_str!("../../attempts/control/descriptors.py"), Plain, went_on, &[Decoy], &[]),
    ("take-descriptor", "Take the control channel out of the agent", "pidfd_getfd", Issue::InternalEsc, "the filter denies pidfd_getfd", HIDDEN, include_str!("../../attempts/control/take_descriptor.py"), Plain, went_on, &[], &[]),
    ("write-memory", "Write the agent's memory from outside it", "process_vm_writev", Issue::InternalEsc, "the filter denies process_vm_writev", HIDDEN, include_str!("../../attempts/control/write_memory.py"), Plain, went_on, &[], &[]),
    ("agent-limits", "Change the agent's limits", "prlimit on another process", Issue::InternalEsc, AGENT, Behind(Users, "the filter lets nobody set a limit of pid 1"), include_str!("../../attempts/control/limits.py"), Plain, went_on, &[Decoy], &[]),
    ("agent-priority", "Make the agent slow", "setpriority and affinity of another process", Issue::InternalEsc, AGENT, Nothing("where commands are the agent's own user they slow it down as they slow down themselves; the clock outside does not wait for it"), include_str!("../../attempts/control/priority.py"), Plain, went_on, &[Decoy], &[Gap::SharedUid]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make =
        |&(name, title, stands_for, issue, first, second, line, control, lie, props, unless): &Line| {
            Attempt {
                class: Class::ControlPlane,
                name,
                title,
                boundary: Boundary::Lifecycle,
                issue,
                stands_for,
                first,
                second,
                script: Script::Line(line),
                control,
                props,
                options: &[],
                stopped_by: &[],
                lie,
                unless,
            }
        };
    LINES.iter().map(make).collect()
}
