//! Living on after the end, and steering one's own end.

use blastbox_policy::{Boundary, Gap};

use crate::attempt::Control::{self, Box, Plain, PlainRoot};
use crate::attempt::Layer::Mounts;
use crate::attempt::Prop::Decoy;
use crate::attempt::Second::{self, Behind, Named};
use crate::attempt::{Attempt, Class, Issue, Prop, Script, nothing_false};

const PID_1: &str = "when pid 1 of the box ends, the kernel ends every process in it";
const SWEEP: Second = Named("the box's cgroup is killed as a whole, and swept by name later");
const SCOPED: Second = Named("Landlock keeps signals inside the box (ABI 6), and another user id (as root)");
const NO_POWER: Second = Named("no capability over the host, and limits that only go down");

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
    ("outlive-deadline", "Go on after the deadline", "endless loops", Issue::HostDoS, CLOCK, SWEEP, "begun(); time.sleep(4); escaped('alive after four seconds')", LONG, SHORT, &["timed_out"], &[], &[]),
    ("block-deadline", "Block every signal, then go on after the deadline", "SIGTERM handlers", Issue::HostDoS, CLOCK, SWEEP, include_str!("../../attempts/lifecycle/block_signals.py"), LONG, SHORT, &["timed_out"], &[], &[]),
    ("stop-the-clock", "Stop oneself, so that no time passes", "SIGSTOP against a timer inside", Issue::HostDoS, CLOCK, SWEEP, include_str!("../../attempts/lifecycle/stop_self.py"), LONG, SHORT, &["timed_out"], &[], &[]),
    ("kill-host-process", "Signal a process of the host by its id", "signals across boxes", Issue::Escape, "process ids of the box's own", SCOPED, include_str!("../../attempts/lifecycle/kill_decoy.py"), Plain, &[], &[], &[Decoy], &[]),
    ("signal-storm", "Signal every process id there is", "signal storms", Issue::PeerDoS, "process ids of the box's own", SCOPED, include_str!("../../attempts/lifecycle/storm.py"), Plain, &[], &[], &[Decoy], &[]),
    ("own-cgroup", "Move to another cgroup, or thaw oneself", "cgroup.procs, cgroup.freeze", Issue::HostDoS, "a root of the box's own, in which there is no cgroup file system", Behind(Mounts, "Landlock grants nothing beneath the host's /sys, and its files are root's"), include_str!("../../attempts/lifecycle/cgroup.py"), PlainRoot, &[], &[], &[], &[]),
    ("real-time", "Take the processor for oneself", "SCHED_FIFO", Issue::HostDoS, "the limit on real-time priorities is 0", NO_POWER, include_str!("../../attempts/lifecycle/real_time.py"), PlainRoot, &[], &[], &[], &[]),
    ("nice", "Go before everybody else", "negative nice values", Issue::HostDoS, "the limit on priorities", NO_POWER, "r, e = syscall(141, 0, 0, -20); held('setpriority: ' + e) if e else escaped('the highest priority')", PlainRoot, &[], &[], &[], &[]),
    ("io-priority", "Go before everybody else at the disk", "real-time I/O class", Issue::HostDoS, "no capability", NO_POWER, "r, e = syscall(251, 1, 0, 1 << 13); held('ioprio_set: ' + e) if e else escaped('real-time I/O')", PlainRoot, &[], &[], &[], &[]),
    ("raise-limits", "Raise one's own limits again", "prlimit", Issue::HostDoS, "hard limits, and the filter", NO_POWER, include_str!("../../attempts/lifecycle/raise_limits.py"), Plain, &[], &[], &[], &[]),
    ("oom-score", "Be the last whom the kernel ends", "oom_score_adj", Issue::PeerDoS, "lowering it wants a capability", NO_POWER, include_str!("../../attempts/lifecycle/oom_score.py"), PlainRoot, &[], &[], &[], &[]),
    ("wake-alarm", "Wake the machine", "CLOCK_REALTIME_ALARM", Issue::HostDoS, "no capability over the host (CAP_WAKE_ALARM)", Named("deadlines are kept outside the box"), "call(283, 8, 0)", PlainRoot, &[], &[], &[], &[]),
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
