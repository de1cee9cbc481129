//! Lies of an agent that was taken over: frames that no honest one sends.

use blastbox_policy::Boundary;

use crate::attempt::Ending::{self, Bounded, FoundOut, Gone, Outlasted};
use crate::attempt::{Attempt, Class, Control, Issue, Script, nothing_false};
use crate::layer::Second;

/// Name, what it tries, what it stands for, how the host has to end it; the name is also the lie's.
type Line = (&'static str, &'static str, &'static str, Ending);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("unknown-kind", "Send a frame of a kind that there is not", "parsers that guess", FoundOut),
    ("lying-length", "Announce four gigabytes", "memory by the attacker's number", FoundOut),
    ("short-body", "Send a frame that is too short for its kind", "reading past an end", FoundOut),
    ("cut", "End in the middle of a frame", "waiting for what never comes", Gone),
    ("host-frame", "Speak as the host does", "confused roles", FoundOut),
    ("foreign-exit", "Tell the end of a command that was never started", "state by the attacker's number", FoundOut),
    ("foreign-output", "Send output of a command that was never started", "state by the attacker's number", FoundOut),
    ("third-stream", "Send output on a stream that there is not", "indices by the attacker's number", FoundOut),
    ("start-twice", "Start a command twice", "states that cannot be", FoundOut),
    ("hello-twice", "Greet twice", "states that cannot be", FoundOut),
    ("beyond-window", "Send more output than the host has asked for", "memory of whoever reads", Bounded),
    ("denied-flood", "Tell of a hundred thousand denied calls", "reports without end", Outlasted),
    ("input-never-sent", "Take more input than was sent", "counters that wrap", FoundOut),
    ("silence", "Say nothing more", "waiting for ever", Outlasted),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(lie, title, stands_for, ending): &Line| Attempt {
        class: Class::ControlPlane,
        // Made once per campaign, a dozen short texts.
        name: Box::leak(format!("frames-{lie}").into_boxed_str()),
        title,
        boundary: Boundary::Lifecycle,
        issue: Issue::PeerDoS,
        stands_for,
        first: "every frame is bounded, and checked against the state of its box",
        second: Second::Unlifted(
            "a guest that breaks the protocol ends its box, and the box's own clock is outside of it",
            "the check is how the host reads, with no switch to lift: what it reads is fuzzed",
        ),
        script: Script::Frames(lie, ending),
        control: Control::Honest,
        props: &[],
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless: &[],
    };
    LINES.iter().map(make).collect()
}
