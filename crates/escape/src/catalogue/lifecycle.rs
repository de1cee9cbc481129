//! Living on after the end, and steering one's own end.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Box, Plain, PlainRoot};
use crate::attempt::Prop::Decoy;
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};
use crate::layer::Layer::{Capabilities, Mounts, Processes};
use crate::layer::Second::{self, Behind, Unlifted};

const PID_1: &str = "when pid 1 of the box ends, the kernel ends every process in it";
const SWEEP: Second = Behind(Processes, "the agent ends whatever is left, and whatever comes to it");
const SECOND_CLOCK: Second = Unlifted(
    "the warden's own clock, five seconds later",
    "the first clock is the engine's, which is in no warden: `the_warden_is_told_every_deadline_and_its_clock_ends_a_box_as_timed_out` stops it",
);
const SCOPE: &str = "Landlock keeps signals inside the box (ABI 6), and another user id (as root)";
const NO_POWER: Second =
    Behind(Capabilities, "the kernel wants power over the host, which no user namespace of a box gives");

const TEMPLATE: Attempt = Attempt {
    class: Class::Lifecycle,
    name: "",
    title: "",
    boundary: Boundary::Lifecycle,
    issue: Issue::Escape,
    stands_for: "",
    first: PID_1,
    second: SWEEP,
    script: Script::Line(""),
    control: Plain,
    props: &[],
    options: &[],
    stopped_by: &[],
    lie: nothing_false,
    unless: &[],
};

/// Name, what it tries, what it stands for, the statement: each leaves a process that only the host can see.
#[rustfmt::skip]
const SURVIVORS: &[(&str, &str, &str, &str)] = &[
    ("orphan", "Leave a child when the command ends", "background jobs", "leave_process() if os.fork() == 0 else left('a child')"),
    ("double-fork", "Leave a grandchild without parent", "daemons", "(leave_process() if os.fork() == 0 else os._exit(0)) if os.fork() == 0 else (os.wait(), left('a grandchild'))"),
    ("setsid", "Leave a process in a session of its own", "setsid, nohup", "(os.setsid(), leave_process()) if os.fork() == 0 else left('a session')"),
    ("daemon", "Become a daemon with everything closed", "daemon(3)", include_str!("../../attempts/lifecycle/daemon.py")),
    ("ignore-signals", "Leave a process that ignores every signal it can", "signal handlers against a polite end", include_str!("../../attempts/lifecycle/ignore_signals.py")),
    ("subreaper", "Collect one's own orphans", "PR_SET_CHILD_SUBREAPER", "libc.prctl(36, 1, 0, 0, 0); leave_process() if os.fork() == 0 else left('a collected child')"),
    ("many-generations", "Fork on from process to process", "chasing a process that is always another", include_str!("../../attempts/lifecycle/generations.py")),
    ("stopped", "Leave a stopped process", "a process that takes no signal", include_str!("../../attempts/lifecycle/stopped.py")),
    ("thread-outlives", "Let the first thread end and others live", "thread groups without a leader", include_str!("../../attempts/lifecycle/thread_leader.py")),
];

/// Name, what it tries, what it stands for, issue, first control, second, the statement, where it must succeed, options, outcomes that stop it, props, gaps.
type Line = (
    &'static str,
    &'static str,
    &'static str,
    Issue,
    &'static str,
    Second,
    &'static str,
    Control,
    &'static [&'static str],
    &'static [&'static str],
    &'static [Prop],
    &'static [Gap],
);

const SHORT: &[&str] = &["--timeout", "2s"];
const LONG: Control = Box(&["--timeout", "20s"]);
const CLOCK: &str = "a wall clock outside the box";

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("outlive-deadline", "Go on after the deadline", "endless loops", Issue::HostDoS, CLOCK, SECOND_CLOCK, "begun(); time.sleep(4); escaped('alive after four seconds')", LONG, SHORT, &["timed_out"], &[], &[]),
    ("block-deadline", "Block every signal, then go on after the deadline", "SIGTERM handlers", Issue::HostDoS, CLOCK, SECOND_CLOCK, include_str!("../../attempts/lifecycle/block_signals.py"), LONG, SHORT, &["timed_out"], &[], &[]),
    ("stop-the-clock", "Stop oneself, so that no time passes", "SIGSTOP against a timer inside", Issue::HostDoS, CLOCK, SECOND_CLOCK, include_str!("../../attempts/lifecycle/stop_self.py"), LONG, SHORT, &["timed_out"], &[], &[]),
    ("kill-host-process", "Signal a process of the host by its id", "signals across boxes", Issue::Escape, "process ids of the box's own", Behind(Processes, SCOPE), include_str!("../../attempts/lifecycle/kill_decoy.py"), Plain, &[], &[], &[Decoy], &[]),
    ("signal-storm", "Signal every process id there is", "signal storms", Issue::PeerDoS, "process ids of the box's own", Unlifted(SCOPE, "among the host's own ids it would signal every process of the host; lifecycle.kill-host-process asks the same of one that was started for it"), include_str!("../../attempts/lifecycle/storm.py"), Plain, &[], &[], &[Decoy], &[]),
    ("own-cgroup", "Move to another cgroup, or thaw oneself", "cgroup.procs, cgroup.freeze", Issue::HostDoS, "a root of the box's own, in which there is no cgroup file system", Behind(Mounts, "Landlock grants nothing beneath the host's /sys, and its files are root's"), include_str!("../../attempts/lifecycle/cgroup.py"), PlainRoot, &[], &[], &[], &[]),
    ("real-time", "Take the processor for oneself", "SCHED_FIFO", Issue::HostDoS, "no capability in the box, and a limit of 0 on real-time priorities", NO_POWER, include_str!("../../attempts/lifecycle/real_time.py"), PlainRoot, &[], &[], &[], &[]),
    ("nice", "Go before everybody else", "negative nice values", Issue::HostDoS, "no capability in the box, and a limit on priorities", NO_POWER, "r, e = syscall(141, 0, 0, -20); held('setpriority: ' + e) if e else escaped('the highest priority')", PlainRoot, &[], &[], &[], &[]),
    ("io-priority", "Go before everybody else at the disk", "real-time I/O class", Issue::HostDoS, "no capability in the box", NO_POWER, "r, e = syscall(251, 1, 0, 1 << 13); held('ioprio_set: ' + e) if e else escaped('real-time I/O')", PlainRoot, &[], &[], &[], &[]),
    ("raise-limits", "Raise one's own limits again", "prlimit", Issue::HostDoS, "no capability in the box to raise what is hard, and the filter", NO_POWER, include_str!("../../attempts/lifecycle/raise_limits.py"), Plain, &[], &[], &[], &[]),
    ("oom-score", "Be the last whom the kernel ends", "oom_score_adj", Issue::PeerDoS, "no capability in the box, and lowering it wants one", NO_POWER, include_str!("../../attempts/lifecycle/oom_score.py"), PlainRoot, &[], &[], &[], &[]),
    ("wake-alarm", "Wake the machine", "CLOCK_REALTIME_ALARM", Issue::HostDoS, "no capability in the box (CAP_WAKE_ALARM)", NO_POWER, "call(283, 8, 0)", PlainRoot, &[], &[], &[], &[]),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let survivor =
        |&(name, title, stands_for, line): &(&'static str, &'static str, &'static str, &'static str)| {
            Attempt { name, title, stands_for, script: Script::Line(line), ..TEMPLATE }
        };
    let line = |&(
        name,
        title,
        stands_for,
        issue,
        first,
        second,
        line,
        control,
        options,
        stopped_by,
        props,
        unless,
    ): &Line| {
        Attempt {
            name,
            title,
            stands_for,
            issue,
            first,
            second,
            script: Script::Line(line),
            control,
            options,
            stopped_by,
            props,
            unless,
            ..TEMPLATE
        }
    };
    SURVIVORS.iter().map(survivor).chain(LINES.iter().map(line)).collect()
}
