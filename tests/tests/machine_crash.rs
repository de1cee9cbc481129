//! Killing a machine, the machine that copies it, the warden or the daemon at each step of a machine's life: nothing is left, neighbours
//! go on, and so does whoever lives. Alone in its program, because it counts.
//!
//! The steps are those that somebody outside sees: a process or a client that is there. What a daemon does between two writes of its
//! own is `paused_crash.rs`.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use blastbox_tests::census::{Census, begun_at, family};
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::machines::{PATIENCE, Workshop};
use blastbox_tests::{Caller, Held, both_ways};
use rustix::process::Signal;

both_ways!(
    a_machine_killed_at_each_step_leaves_nothing_and_its_neighbour_goes_on,
    a_warden_killed_at_each_step_of_a_machine_leaves_nothing_and_the_daemon_goes_on,
    a_daemon_killed_at_each_step_of_a_machine_leaves_nothing_to_the_next,
);

/// Where in its life a machine is when somebody is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    TemplateBoots,
    TemplateWaits,
    CopyBegins,
    CommandRuns,
    Paused,
    IsWrittenToDisk,
    LiesOnDisk,
    GoesOnFromDisk,
    IsKept,
    IsForked,
    Ends,
}

/// The beginning comes last: nobody begins with a machine of which a copy never spoke, and none would be copied after it.
const STEPS: [Step; 11] = [
    Step::TemplateBoots,
    Step::TemplateWaits,
    Step::CommandRuns,
    Step::Paused,
    Step::IsWrittenToDisk,
    Step::LiesOnDisk,
    Step::GoesOnFromDisk,
    Step::IsKept,
    Step::IsForked,
    Step::Ends,
    Step::CopyBegins,
];

/// Groups of a warden with one box: that one's, those in stock, and one that is about to be.
const OWN_GROUPS: usize = 6;
/// Between two looks.
const GLANCE: Duration = Duration::from_millis(5);
const CREATE: [&str; 7] = ["create", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools"];

fn eventually(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(GLANCE);
    }
    true
}

#[track_caller]
fn fine(daemon: &Daemon<'_>, words: &[&str]) -> String {
    let ended = daemon.client(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    ended.text().trim().to_owned()
}

/// The machines of a daemon, the oldest first.
fn machines(daemon: &Daemon<'_>) -> Vec<u32> {
    let is_qemu = |pid: u32| {
        // By its first argument: what the kernel calls a program that was started from a descriptor differs.
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"qemu-system"))
    };
    let mut found: Vec<u32> = family(daemon.id()).iter().map(|process| process.pid).collect();
    found.retain(|pid| is_qemu(*pid));
    found.sort_by_key(|pid| begun_at(*pid));
    found
}

/// The boxes of a daemon.
fn boxes(daemon: &Daemon<'_>) -> Vec<String> {
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&daemon.ask(&["ps", "--json"])).expect("a list");
    listed.iter().filter_map(|card| card.get("id")?.as_str().map(str::to_owned)).collect()
}

/// Somebody who can be killed.
struct Scene {
    /// The box, where it has a name by now.
    made: Option<String>,
    /// Who waits for an answer.
    asked: Option<Held>,
    /// The machines that were there before the last order was given, and those that are there since.
    before: Vec<u32>,
    since: Vec<u32>,
}

impl Scene {
    /// Brings a machine there. `None`: this host cannot.
    fn at(step: Step, daemon: &Daemon<'_>) -> Option<Self> {
        let another = [&CREATE[..], &["--memory", "448MiB"]].concat();
        let made =
            (!matches!(step, Step::TemplateBoots | Step::TemplateWaits | Step::CopyBegins)).then(|| {
                let made = fine(daemon, &CREATE);
                fine(daemon, &["exec", "--detach", &made, "--", "sh", "-c", "sleep 600"]);
                made
            });
        let name = made.as_deref().unwrap_or_default();
        let to_disk = ["pause", "--to-disk", name];
        if step == Step::Paused && daemon.client(&["pause", name]).end().code != 0 {
            fine(daemon, &["kill", name]);
            return None;
        }
        if matches!(step, Step::LiesOnDisk | Step::GoesOnFromDisk) {
            fine(daemon, &to_disk);
        }
        let order: Option<&[&str]> = match step {
            Step::TemplateBoots => Some(&another),
            Step::CopyBegins => Some(&CREATE),
            Step::IsWrittenToDisk => Some(&to_disk),
            Step::GoesOnFromDisk => Some(&["resume", name]),
            Step::IsKept => Some(&["snapshot", name]),
            Step::IsForked => Some(&["fork", name]),
            Step::Ends => Some(&["kill", name]),
            Step::TemplateWaits | Step::CommandRuns | Step::Paused | Step::LiesOnDisk => None,
        };
        let before = machines(daemon);
        let mut asked = order.map(|order| daemon.client(order).start());
        let mut since = Vec::new();
        if let Some(asked) = &mut asked
            && step != Step::Ends
        {
            let begun = Instant::now();
            let mut over = false;
            // Once more after the answer: whoever was faster than this look may be there still.
            while since.is_empty() && !over && begun.elapsed() < PATIENCE {
                over = asked.is_over();
                since = machines(daemon);
                since.retain(|pid| !before.contains(pid));
                std::thread::sleep(GLANCE);
            }
        }
        if let Some(asked) = asked.take_if(|asked| since.is_empty() && asked.is_over()) {
            let ended = asked.end();
            assert_eq!(ended.code, 0, "{step:?}: there is no machine: {}", ended.err);
        }
        Some(Self { made, asked, before, since })
    }
}

/// A daemon with a template in its store, and what is there before it does anything.
fn begin<'a>(caller: &'a Caller, census: &mut Census) -> Option<Daemon<'a>> {
    let workshop = Workshop::new(caller)?;
    workshop.template(&[]);
    let config = caller.file("daemon.toml", "[pool]\nmax = 0\n").display().to_string();
    let mut daemon = Daemon::shipped(caller).with_config(config).with_store(workshop.store.clone());
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    census.expect_file("state/snapshots");
    Some(daemon)
}

/// Waits for an answer. Without a template a box boots by itself, for seconds: also that one is killed, beside so many that stay.
fn hear(daemon: &Daemon<'_>, mut asked: Held, step: Step, stay: usize) -> blastbox_tests::Ended {
    while step == Step::TemplateBoots && !asked.is_over() {
        machines(daemon).iter().skip(stay).for_each(|pid| signal(*pid, Signal::KILL));
        std::thread::sleep(GLANCE);
    }
    asked.end_within(PATIENCE)
}

/// Removes what a step made and somebody asked for: boxes, and what was kept.
fn clear(daemon: &Daemon<'_>, but: &[String]) {
    for id in boxes(daemon).iter().filter(|id| !but.contains(id)) {
        // It may have been about to end.
        daemon.client(&["kill", id]).end();
    }
    for word in fine(daemon, &["snapshot", "ls"]).split_whitespace().filter(|word| word.starts_with("sn_")) {
        fine(daemon, &["snapshot", "rm", word]);
    }
}

/// A command in a box that lives.
#[track_caller]
fn answers(daemon: &Daemon<'_>, made: &str, after: &str) {
    assert_eq!(fine(daemon, &["exec", made, "--", "echo", "on"]), "on", "{after}");
}

fn a_machine_killed_at_each_step_leaves_nothing_and_its_neighbour_goes_on(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(mut daemon) = begin(caller, &mut census) else { return };
    let neighbour = fine(&daemon, &CREATE);
    let only = [neighbour.clone()];
    for step in STEPS {
        // That of the box, and the one that copies it, where both are there.
        for heirs in [false, true] {
            let has_both = matches!(step, Step::IsWrittenToDisk | Step::IsKept | Step::IsForked);
            if matches!(step, Step::TemplateWaits | Step::LiesOnDisk) || (heirs && !has_both) {
                continue;
            }
            let what = format!("{step:?}, {}", if heirs { "its heir" } else { "itself" });
            let Some(scene) = Scene::at(step, &daemon) else {
                caller.leave_out(&format!("{step:?}"), "this host lets this caller freeze nothing");
                continue;
            };
            census.see();
            let Scene { made, asked, before, since } = scene;
            // Of those before, the first is the neighbour's.
            let own = before.get(1).copied();
            let victim = if heirs { since.first().copied() } else { own.or(since.first().copied()) };
            // On a busy host what is over quickly may have been before anybody looked; everything else is there.
            let quick = heirs || matches!(step, Step::GoesOnFromDisk | Step::CopyBegins);
            assert!(victim.is_some() || (quick && asked.is_none()), "{what}: nobody to kill");
            if let Some(victim) = victim {
                signal(victim, Signal::KILL);
            }
            if let Some(asked) = asked {
                let ended = hear(&daemon, asked, step, 1);
                if heirs && ended.code != 0 {
                    // What was not copied goes on.
                    answers(&daemon, made.as_deref().expect("a name"), &what);
                }
            }
            // One that stands still in a freezer of the old kind ends when it goes on.
            if step == Step::CommandRuns {
                assert!(eventually(|| boxes(&daemon) == only), "{what}: {:?}", boxes(&daemon));
            }
            clear(&daemon, &only);
            let left = || beside(&census, &daemon);
            assert!(eventually(|| left().is_empty()), "{what}: left behind:\n  {}", left().join("\n  "));
            answers(&daemon, &neighbour, &what);
        }
    }
    fine(&daemon, &["kill", &neighbour]);
    daemon.stop();
    census.expect_nothing("all of them");
}

/// What is left beside a daemon that lives, with one box. Its warden has groups in stock, which nobody can tell from those that were
/// left: so many are its own, and each step would leave more.
fn beside(census: &Census, daemon: &Daemon<'_>) -> Vec<String> {
    let mut left = census.left();
    let groups: BTreeSet<&str> =
        left.iter().filter_map(|line| line.rsplit_once("/bx_")).map(|(_, id)| id).collect();
    let many = (groups.len() > OWN_GROUPS).then(|| format!("{} groups", groups.len()));
    left.retain(|line| line.starts_with("file ") || line.starts_with("mount "));
    left.extend(many);
    left.extend(machines(daemon).iter().skip(1).map(|pid| format!("machine {pid}")));
    left
}

fn a_warden_killed_at_each_step_of_a_machine_leaves_nothing_and_the_daemon_goes_on(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(mut daemon) = begin(caller, &mut census) else { return };
    for step in STEPS {
        let Some(Scene { asked, .. }) = Scene::at(step, &daemon) else {
            caller.leave_out(&format!("{step:?}"), "this host lets this caller freeze nothing");
            continue;
        };
        census.see();
        signal(daemon.warden().expect("a warden"), Signal::KILL);
        if let Some(asked) = asked {
            hear(&daemon, asked, step, 0);
        }
        // One that was asked for may have begun with the next warden.
        clear(&daemon, &[]);
        assert!(eventually(|| machines(&daemon).is_empty()), "{step:?}: machines live on");
        // A daemon without a warden has another one made.
        if step == Step::CommandRuns {
            let mut made = String::new();
            // What was asked of the dead one fails.
            assert!(blastbox_tests::wait_until(|| {
                let ended = daemon.client(&CREATE).start().end_within(PATIENCE);
                made = ended.text().trim().to_owned();
                ended.code == 0
            }));
            answers(&daemon, &made, "without a warden");
            clear(&daemon, &[]);
        }
        daemon.stop();
        census.expect_nothing(&format!("{step:?}, its warden"));
        daemon.start(None);
        assert!(daemon.await_answer());
    }
    daemon.stop();
}

fn a_daemon_killed_at_each_step_of_a_machine_leaves_nothing_to_the_next(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(mut daemon) = begin(caller, &mut census) else { return };
    for step in STEPS {
        let Some(Scene { made, asked, .. }) = Scene::at(step, &daemon) else {
            caller.leave_out(&format!("{step:?}"), "this host lets this caller freeze nothing");
            continue;
        };
        census.see();
        daemon.kill();
        if let Some(asked) = asked {
            asked.end_within(PATIENCE);
        }
        daemon.start(None);
        assert!(daemon.await_answer(), "{step:?}");
        // On disk is where a box outlives its daemon, if it was there.
        let listed = boxes(&daemon);
        match step {
            Step::LiesOnDisk => assert_eq!(listed, made.into_iter().collect::<Vec<_>>()),
            Step::IsWrittenToDisk | Step::GoesOnFromDisk => {
                assert!(listed.len() <= 1, "{step:?}: {listed:?}")
            }
            _ => assert!(listed.is_empty(), "{step:?}: {listed:?}"),
        }
        clear(&daemon, &[]);
        daemon.stop();
        census.expect_nothing(&format!("{step:?}, its daemon"));
        daemon.start(None);
        assert!(daemon.await_answer());
    }
    daemon.stop();
}
