//! Killing a daemon, its warden, a box or a client, at each place of a box's life: nothing is left, and who lives goes on.
//!
//! The daemon is one that was built with places to be stopped at (`crates/engine/src/failpoint.rs`). It stops itself
//! there; the test sees that, kills whom it likes, lets the daemon go on where it is not the victim, and counts.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use blastbox_engine::failpoint::{STEPS, TRANSITIONS};
use blastbox_engine::store::Store;
use blastbox_tests::census::{Census, descendants};
use blastbox_tests::daemon::{BUSY_LIFE, Daemon, LIFE, end_tree, signal};
use blastbox_tests::freezer::{is_of_frozen, leave_out_unreached};
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(
    a_daemon_killed_at_each_place_leaves_nothing_to_the_next,
    a_daemon_killed_beside_warm_boxes_gateways_and_files_leaves_nothing_to_the_next,
    a_warden_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on,
    an_agent_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on,
    a_client_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on,
    a_daemon_and_its_stopped_warden_are_released_by_the_next_daemon,
    boxes_of_a_killed_daemon_are_gone_for_their_owner_and_in_the_ledger,
    a_shipped_program_has_no_place_to_be_stopped_at,
);

/// Where the daemon is while it does not answer yet.
const BEFORE_IT_ANSWERS: [&str; 2] = ["warden-noted", "warden-started"];

fn no_pools(caller: &Caller) -> String {
    caller.file("daemon.toml", "[pool]\nmax = 0\n").display().to_string()
}

/// Starts a daemon that stops itself at a place, and goes through a box's life until it has. `None`: never.
fn stop_at(daemon: &mut Daemon<'_>, point: &str, script: &str) -> Option<u32> {
    daemon.start(Some(point));
    if !daemon.await_answer() {
        assert!(daemon.is_stopped(), "{point}: it ended");
        return Some(0);
    }
    let mut life = daemon.script(script);
    let shell = life.id();
    assert!(wait_until(|| daemon.is_stopped() || life.is_over()), "{point}");
    if daemon.is_stopped() {
        // Ended by its number, with what it started.
        std::mem::forget(life);
        return Some(shell);
    }
    let ended = life.end();
    assert_eq!(ended.code, 0, "{point}: {}", ended.err);
    None
}

fn collect(shell: u32) {
    if shell != 0 {
        end_tree(shell);
        let pid = i32::try_from(shell).ok().and_then(rustix::process::Pid::from_raw).expect("a number");
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).ok();
    }
}

/// What the daemon is told, and what its callers do.
struct Scene {
    config: String,
    script: String,
}

impl Scene {
    /// One box at a time, and none in stock.
    fn plain(caller: &Caller) -> Self {
        Self { config: no_pools(caller), script: LIFE.to_owned() }
    }

    /// Others beside it: in stock, with a gateway, with files on their way.
    fn busy(caller: &Caller) -> Self {
        let config = caller.file("daemon.toml", "[pool]\nmax = 2\n").display().to_string();
        let policy = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \
            \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"silent-denials\", \"swap-unlimited\"]\n\
            [network]\nmode = \"allow\"\nallow = [{ host = \"a.example.com\" }]\n";
        let net = caller.file("net.toml", policy).display().to_string();
        let file = caller.file("up", "content").display().to_string();
        Self { config, script: format!("net={net}\nfile={file}\n{BUSY_LIFE}{LIFE}") }
    }
}

fn each_place(
    caller: &Caller,
    scene: &Scene,
    kill: impl Fn(&mut Daemon<'_>, u32, &str) -> bool,
    after: impl Fn(&mut Daemon<'_>, &str),
) {
    let mut census = Census::begin(caller);
    let Some(mut daemon) = Daemon::with_failpoints(caller) else { return };
    daemon = daemon.with_config(scene.config.clone());
    daemon.start(None);
    assert!(daemon.await_answer());
    daemon.stop();
    census.accept_files();
    for point in STEPS.iter().chain(TRANSITIONS) {
        let Some(shell) = stop_at(&mut daemon, point, &scene.script) else {
            leave_out_unreached(caller, point);
            daemon.stop();
            continue;
        };
        census.see();
        let killed = kill(&mut daemon, shell, point);
        collect(shell);
        assert!(
            killed || BEFORE_IT_ANSWERS.contains(point) || is_of_frozen(point) || !needs_box(point),
            "{point}: nobody to kill"
        );
        after(&mut daemon, point);
        daemon.stop();
        census.expect_nothing(point);
    }
}

/// Whether a box is there at this place.
fn needs_box(point: &str) -> bool {
    !BEFORE_IT_ANSWERS.contains(&point)
        && !["box-noted", "teardown>gone", "box-ended", "box-struck"].contains(&point)
}

fn agents() -> usize {
    descendants().iter().filter(|process| process.name == "blastbox-agent").count()
}

/// A daemon that lives makes, uses and ends a box.
fn goes_on(daemon: &mut Daemon<'_>, point: &str) {
    assert!(daemon.await_answer(), "{point}: the daemon is gone");
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    assert_eq!(daemon.ask(&["exec", &made, "--", "/bin/echo", "on"]), "on", "{point}");
    daemon.ask(&["kill", &made]);
}

/// The next daemon has nothing of the killed one, and works.
fn kill_the_daemon(caller: &Caller, scene: &Scene) {
    let kill = |daemon: &mut Daemon<'_>, _: u32, _: &str| {
        daemon.kill();
        true
    };
    each_place(caller, scene, kill, |daemon, point| {
        daemon.start(None);
        assert!(daemon.await_answer(), "{point}");
        assert_eq!(agents(), 0, "{point}: boxes of the dead are there");
        assert_eq!(daemon.ask(&["ps", "--json"]), "[]", "{point}");
        goes_on(daemon, point);
    });
}

fn a_daemon_killed_at_each_place_leaves_nothing_to_the_next(caller: &Caller) {
    kill_the_daemon(caller, &Scene::plain(caller));
}

fn a_daemon_killed_beside_warm_boxes_gateways_and_files_leaves_nothing_to_the_next(caller: &Caller) {
    kill_the_daemon(caller, &Scene::busy(caller));
}

fn kill_one(daemon: &Daemon<'_>, victim: Option<u32>) -> bool {
    if let Some(victim) = victim {
        signal(victim, Signal::KILL);
    }
    daemon.signal(Signal::CONT);
    // A signal is on its way for a while: until it has arrived, whoever looks would take the daemon for one that stops.
    assert!(wait_until(|| !daemon.is_stopped()));
    victim.is_some()
}

fn a_warden_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on(caller: &Caller) {
    each_place(
        caller,
        &Scene::plain(caller),
        |daemon, _, _| kill_one(daemon, daemon.warden()),
        |daemon, point| {
            // One that never got a warden says so and ends; another one is started.
            if BEFORE_IT_ANSWERS.contains(&point) && !daemon.await_answer() {
                assert_eq!(daemon.end().code, 125, "{point}");
                daemon.start(None);
            }
            // What was asked of the dead warden fails; what is asked after that does not.
            let mut made = String::new();
            assert!(
                wait_until(|| {
                    let ended = daemon.client(&["create", "--memory", "64MiB"]).end();
                    made = ended.text().trim().to_owned();
                    ended.code == 0
                }),
                "{point}: no box is made any more"
            );
            daemon.ask(&["kill", &made]);
        },
    );
}

fn an_agent_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on(caller: &Caller) {
    let kill = |daemon: &mut Daemon<'_>, _: u32, point: &str| {
        // The warden is not stopped, and may still be making it.
        if needs_box(point) {
            wait_until(|| daemon.agent().is_some());
        }
        kill_one(daemon, daemon.agent())
    };
    each_place(caller, &Scene::plain(caller), kill, goes_on);
}

/// The client that a shell waits for now, however deep beneath it.
fn client_of(shell: u32) -> Option<u32> {
    let family = descendants();
    let mut beneath = vec![shell];
    let mut next = 0;
    while let Some(parent) = beneath.get(next).copied() {
        beneath.extend(family.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        next += 1;
    }
    family.iter().find(|process| process.name == "blastbox" && beneath.contains(&process.pid)).map(|p| p.pid)
}

fn a_client_killed_at_each_place_leaves_nothing_and_the_daemon_goes_on(caller: &Caller) {
    let kill = |daemon: &mut Daemon<'_>, shell: u32, _: &str| {
        if shell == 0 {
            return kill_one(daemon, None);
        }
        // One may have its answer already, and the shell is about to start the next.
        let mut client = None;
        wait_until(|| {
            client = client_of(shell);
            client.is_some()
        });
        kill_one(daemon, client)
    };
    each_place(caller, &Scene::plain(caller), kill, goes_on);
}

fn a_daemon_and_its_stopped_warden_are_released_by_the_next_daemon(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    daemon.ask(&["create", "--memory", "64MiB"]);
    let warden = daemon.warden().expect("a warden");
    let agent = daemon.agent().expect("an agent");
    census.accept_files();
    census.see();
    // It cannot see that its caller goes, nor do anything about it.
    signal(warden, Signal::STOP);
    signal(agent, Signal::STOP);
    daemon.kill();
    assert!(descendants().iter().any(|process| process.pid == warden), "the warden is not there any more");
    daemon.start(None);
    assert!(daemon.await_answer());
    // The kernel ends the agent with its warden, and both are collected, in a moment of their own.
    let gone = || descendants().iter().all(|process| process.pid != warden && process.pid != agent);
    assert!(wait_until(gone), "the next daemon has not released the stopped warden");
    daemon.stop();
    census.expect_nothing("a stopped warden");
}

fn boxes_of_a_killed_daemon_are_gone_for_their_owner_and_in_the_ledger(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sleep", "60"]);
    census.accept_files();
    daemon.kill();
    daemon.start(None);
    assert!(daemon.await_answer());
    let asked = daemon.client(&["kill", &made]).end();
    assert!(asked.code != 0 && asked.err.contains("gone"), "{}", asked.err);
    let ledger = daemon.state().join("ledger").display().to_string();
    daemon.stop();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &made, "--json"]).end().text();
    assert!(shown.contains("\"by\":\"reaper\"") && shown.contains("\"outcome\":\"lost\""), "{shown}");
    assert_eq!(caller.blastbox(["audit", "verify", &ledger]).end().code, 0);
    if caller.is_root() {
        let store = Store::open(daemon.state()).expect("the store");
        assert_eq!(store.resources().expect("its journal"), [], "a daemon that ended in order left nothing");
    }
    census.expect_nothing("a killed daemon");
}

/// The variable that chooses a place is a word that only a program with such places holds.
fn a_shipped_program_has_no_place_to_be_stopped_at(caller: &Caller) {
    let holds = |program: &std::path::Path| {
        let bytes = std::fs::read(program).expect("read a program");
        let word = b"BLASTBOX_FAILPOINT";
        bytes.windows(word.len()).any(|piece| piece == word)
    };
    assert!(!holds(&caller.blastbox_path()));
    if let Some(daemon) = Daemon::with_failpoints(caller) {
        assert!(holds(daemon.program()), "and one that has them would be found");
    }
}
