//! Killing a machine, the machine that copies it, the warden or the daemon at each step of a machine's life: nothing is left, neighbours
//! go on, and so does whoever lives. Alone in its program, because it counts.
//!
//! The steps are those that somebody outside sees: a process or a client that is there. What a daemon does between two writes of its
//! own is `paused_crash.rs`.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::time::Instant;

use blastbox_tests::census::Census;
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::herd::{
    CREATE, GLANCE, answers, begin, beside, boxes, clear, eventually, fine, machines,
};
use blastbox_tests::machines::PATIENCE;
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

const STEPS: [Step; 11] = [
    Step::TemplateBoots,
    Step::TemplateWaits,
    Step::CopyBegins,
    Step::CommandRuns,
    Step::Paused,
    Step::IsWrittenToDisk,
    Step::LiesOnDisk,
    Step::GoesOnFromDisk,
    Step::IsKept,
    Step::IsForked,
    Step::Ends,
];

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
        let another = [&CREATE[..7], &["--memory", "288MiB"]].concat();
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

/// Waits for an answer. Without a template a box boots by itself, for seconds: also that one is killed, beside so many that stay.
fn hear(daemon: &Daemon<'_>, mut asked: Held, step: Step, stay: usize) -> blastbox_tests::Ended {
    while step == Step::TemplateBoots && !asked.is_over() {
        machines(daemon).iter().skip(stay).for_each(|pid| signal(*pid, Signal::KILL));
        std::thread::sleep(GLANCE);
    }
    asked.end_within(PATIENCE)
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
            if step == Step::CopyBegins {
                // A template is not to blame for a copy that was killed.
                let next = fine(&daemon, &CREATE);
                let receipt = fine(&daemon, &["kill", "--json", &next]);
                assert!(receipt.contains("it began as a copy"), "{what}: {receipt}");
            }
            let left = || beside(&census, &daemon);
            assert!(eventually(|| left().is_empty()), "{what}: left behind:\n  {}", left().join("\n  "));
            answers(&daemon, &neighbour, &what);
        }
    }
    fine(&daemon, &["kill", &neighbour]);
    daemon.stop();
    census.expect_nothing("all of them");
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
