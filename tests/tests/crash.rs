//! Killing blastbox: whoever is killed, and whenever, nothing is left.
//!
//! The moment is chosen by the clock here; `crash_steps.rs` chooses it by the victim's own steps.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::time::{Duration, Instant};

use blastbox_tests::census::{Census, child_of, descendants, orphans};
use blastbox_tests::{Caller, Held, Terminal, both_ways, processes_naming, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Moments of the clock for each victim.
const MOMENTS: u32 = 40;
/// Between them. A box is made and its command runs well before the last.
const BETWEEN: Duration = Duration::from_micros(500);

both_ways!(
    a_census_counts_what_lives,
    when_a_run_returns_nothing_is_left,
    killing_the_command_at_any_time_leaves_nothing,
    killing_the_warden_at_any_time_leaves_nothing_and_is_reported,
    killing_the_agent_at_any_time_leaves_nothing_and_is_reported,
    what_is_left_when_all_are_killed_at_once_goes_with_the_next_run,
    a_signal_ends_the_box_cleanly,
    an_interrupt_from_the_terminal_ends_the_box_cleanly,
    a_closed_terminal_ends_the_box_cleanly,
    a_stopped_agent_does_not_outlive_its_time,
    a_stopped_caller_does_not_lengthen_the_life_of_its_box,
    a_command_that_stops_itself_does_not_outlive_its_time,
    a_crowd_that_ignores_every_signal_is_gone_with_its_box,
);

/// A command that starts processes in its own group and in a session of their own, and waits.
const FAMILY: &str = "echo up; sleep 30 & setsid sleep 30 & sleep 30";

fn start(caller: &Caller) -> Held {
    caller.blastbox(["run", "--timeout", "40s", "--", "/bin/sh", "-c", FAMILY]).start()
}

fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself, which is one of the moments that are tried.
        kill_process(pid, signal).ok();
    }
}

/// Waits for the child of a process; `None`: the process has none and is over.
fn await_child(parent: u32, held: &mut Held) -> Option<u32> {
    let mut found = None;
    wait_until(|| {
        found = child_of(parent);
        found.is_some() || held.is_over()
    });
    found
}

/// A box that runs its command: the ids of command, warden and agent.
fn await_box(held: &mut Held) -> (u32, u32, u32) {
    let warden = await_child(held.id(), held).expect("a warden");
    let agent = await_child(warden, held).expect("an agent");
    assert!(wait_until(|| child_of(agent).is_some_and(|shell| child_of(shell).is_some())));
    (held.id(), warden, agent)
}

fn pause(begun: Instant, until: Duration) {
    std::thread::sleep(until.saturating_sub(begun.elapsed()));
}

fn a_census_counts_what_lives(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut held = start(caller);
    await_box(&mut held);
    let namespaces = census.see();
    assert!(namespaces >= 6, "a box has namespaces of its own, seen were {namespaces}");
    caller.file("left", "");
    let left = census.left();
    let mut kinds = vec!["process ", "file "];
    if caller.is_root() {
        kinds.push("name ");
    }
    for kind in kinds {
        assert!(left.iter().any(|line| line.starts_with(kind)), "{kind}is not counted: {left:?}");
    }
    census.expect_file("left");
    kill(held.id(), Signal::KILL);
    drop(held);
    census.expect_nothing("a killed command");
}

fn when_a_run_returns_nothing_is_left(caller: &Caller) {
    let mut census = Census::begin(caller);
    // Collects what others have left to this program.
    descendants();
    for script in ["true", "sleep 30 & setsid sleep 30 & exit 3", "kill -9 $$", "exec sleep 30"] {
        let held = caller.blastbox(["run", "--timeout", "1s", "--", "/bin/sh", "-c", script]).start();
        census.see();
        let ended = held.end();
        // Not only gone by chance: `run` has waited for the end of what it started.
        let orphans = orphans();
        assert!(orphans.is_empty(), "{script}: exit {}: not waited for: {orphans:?}", ended.code);
        let left = census.left();
        assert!(left.is_empty(), "{script}: exit {}: left at once: {left:?}", ended.code);
    }
}

fn killing_the_command_at_any_time_leaves_nothing(caller: &Caller) {
    let mut census = Census::begin(caller);
    for moment in 0..MOMENTS {
        let begun = Instant::now();
        let held = start(caller);
        pause(begun, BETWEEN * moment);
        census.see();
        held.signal(Signal::KILL);
        assert_eq!(held.end().code, 137);
        census.expect_nothing(&format!("command killed at moment {moment}"));
    }
}

/// Kills somebody at each moment after it has come into being, and looks at what the command says of it.
fn kill_at_any_time(caller: &Caller, who: &str, victim: impl Fn(&mut Held) -> Option<u32>) {
    let mut census = Census::begin(caller);
    for moment in 0..MOMENTS {
        let mut held = start(caller);
        let victim = victim(&mut held).expect("a victim");
        pause(Instant::now(), BETWEEN * moment);
        census.see();
        kill(victim, Signal::KILL);
        let ended = held.end();
        assert_eq!(ended.code, 125, "{who} killed at moment {moment}: {}", ended.err);
        assert!(ended.err.contains("error: "), "{who} killed at moment {moment}: {:?}", ended.err);
        census.expect_nothing(&format!("{who} killed at moment {moment}"));
    }
}

fn killing_the_warden_at_any_time_leaves_nothing_and_is_reported(caller: &Caller) {
    kill_at_any_time(caller, "warden", |held| await_child(held.id(), held));
}

fn killing_the_agent_at_any_time_leaves_nothing_and_is_reported(caller: &Caller) {
    kill_at_any_time(caller, "agent", |held| {
        let warden = await_child(held.id(), held)?;
        await_child(warden, held)
    });
}

fn what_is_left_when_all_are_killed_at_once_goes_with_the_next_run(caller: &Caller) {
    let mut census = Census::begin(caller);
    for moment in 0..MOMENTS {
        let mut held = start(caller);
        let warden = await_child(held.id(), &mut held).expect("a warden");
        pause(Instant::now(), BETWEEN * moment);
        census.see();
        kill(warden, Signal::KILL);
        held.signal(Signal::KILL);
        drop(held);
        census.expect_nothing_but_groups(&format!("command and warden killed at moment {moment}"));
        // Not after each: what several left must go at once.
        if moment % 4 == 3 {
            let next = caller.blastbox(["run", "--", "/bin/true"]).end();
            assert_eq!(next.code, 0, "{}", next.err);
            census.expect_nothing("the next run");
        }
    }
}

/// Whether this process, and so whatever it starts, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("read the own status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (signal.as_raw() - 1) & 1 == 1
}

fn a_signal_ends_the_box_cleanly(caller: &Caller) {
    let mut census = Census::begin(caller);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        if is_ignored(signal) {
            // Whoever started these tests wants it ignored, and what ignores a signal from its start goes on doing so.
            caller.skip(&format!("{signal:?} is ignored where these tests were started"));
            continue;
        }
        let mut held = start(caller);
        await_box(&mut held);
        census.see();
        held.signal(signal);
        let ended = held.end();
        assert_eq!(ended.code, code, "{}", ended.err);
        assert!(ended.err.contains("blastbox got the signal and ended the box"), "{}", ended.err);
        let left = census.left();
        assert!(left.is_empty(), "{signal:?}: left at once: {left:?}");
        // However early it comes.
        for moment in 0..6 {
            let begun = Instant::now();
            let held = start(caller);
            pause(begun, BETWEEN * 3 * moment);
            held.signal(signal);
            assert_eq!(held.end().code, code);
            census.expect_nothing(&format!("{signal:?} at moment {moment}"));
        }
    }
}

fn an_interrupt_from_the_terminal_ends_the_box_cleanly(caller: &Caller) {
    let mut census = Census::begin(caller);
    let words = ["run", "--", "/bin/sh", "-c", FAMILY];
    let Some(mut terminal) = Terminal::start(caller, 24, 80, &words) else {
        return caller.skip("no setsid");
    };
    terminal.expect("up");
    census.see();
    terminal.type_in("\u{3}");
    let (code, shown) = terminal.end();
    assert_eq!(code, 130, "{shown}");
    census.expect_nothing("an interrupt");
}

fn a_closed_terminal_ends_the_box_cleanly(caller: &Caller) {
    let mut census = Census::begin(caller);
    for options in [&["run", "--"][..], &["run", "-t", "--"], &["run", "-i", "--"]] {
        let words: Vec<&str> = options.iter().copied().chain(["/bin/sh", "-c", FAMILY]).collect();
        let Some(mut terminal) = Terminal::start(caller, 24, 80, &words) else {
            return caller.skip("no setsid");
        };
        terminal.expect("up");
        census.see();
        assert_eq!(terminal.close(), 129, "{options:?}");
        census.expect_nothing(&format!("a closed terminal, {options:?}"));
    }
}

fn a_stopped_caller_does_not_lengthen_the_life_of_its_box(caller: &Caller) {
    let census = Census::begin(caller);
    let mut held = caller.blastbox(["run", "--timeout", "2s", "--", "/bin/sh", "-c", FAMILY]).start();
    let (command, _, agent) = await_box(&mut held);
    kill(command, Signal::STOP);
    let agent =
        || std::fs::read_to_string(format!("/proc/{agent}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(wait_until(|| !agent()), "it lives for as long as its caller is stopped");
    kill(command, Signal::CONT);
    assert_eq!(held.end().code, 124);
    census.expect_nothing("a stopped caller");
}

fn a_stopped_agent_does_not_outlive_its_time(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut held = caller.blastbox(["run", "--timeout", "1s", "--", "/bin/sh", "-c", FAMILY]).start();
    let (_, _, agent) = await_box(&mut held);
    census.see();
    kill(agent, Signal::STOP);
    let ended = held.end();
    assert_eq!(ended.code, 124, "{}", ended.err);
    census.expect_nothing("a stopped agent");
}

fn a_command_that_stops_itself_does_not_outlive_its_time(caller: &Caller) {
    let mut census = Census::begin(caller);
    let words = ["run", "--timeout", "1s", "--", "/bin/sh", "-c", "sleep 30 & kill -STOP $$"];
    let held = caller.blastbox(words).start();
    census.see();
    let ended = held.end();
    assert_eq!(ended.code, 124, "{}", ended.err);
    census.expect_nothing("a stopped command");
}

fn a_crowd_that_ignores_every_signal_is_gone_with_its_box(caller: &Caller) {
    let mut census = Census::begin(caller);
    let marker = format!("30.{}", std::process::id());
    let script = format!(
        "trap '' HUP INT TERM QUIT PIPE; for i in 1 2 3 4 5 6 7 8 9 10; do \
         (setsid sleep {marker} </dev/null >/dev/null 2>&1 &); done; echo up; sleep {marker}"
    );
    let mut held = caller.blastbox(["run", "--", "/bin/sh", "-c", &script]).start();
    await_box(&mut held);
    assert!(wait_until(|| processes_naming(&format!("sleep\0{marker}")).len() == 11));
    census.see();
    held.signal(Signal::TERM);
    assert_eq!(held.end().code, 143);
    assert_eq!(processes_naming(&format!("sleep\0{marker}")), Vec::<u32>::new());
    census.expect_nothing("a crowd");
}
