//! The agent of a machine dies at each step of its life: its box is lost, with a receipt that says so, and within seconds; the daemon,
//! the box's neighbour and what it was a copy of go on, and nothing is left. Alone in its program, because it counts.
//!
//! In a guest the agent is the first process, which nobody there can kill: an agent that was built for this dies by itself, as if it had
//! been killed, where the environment of a command says so, or the image, for what comes before any command (`make mortal`).
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::time::{Duration, Instant};

use blastbox_tests::census::Census;
use blastbox_tests::daemon::Daemon;
use blastbox_tests::herd::{CREATE, answers, begin, beside, boxes, clear, eventually, fine, machines};
use blastbox_tests::machines::{PATIENCE, Workshop};
use blastbox_tests::{Caller, text};
use serde_json::Value;

#[test]
fn an_agent_that_dies_at_each_step_loses_its_box_alone_as_root() {
    let test = "an_agent_that_dies_at_each_step_loses_its_box_alone_as_root";
    if let Some(caller) = Caller::root(test).and_then(Caller::with_mortal_agent) {
        at_each_step(&caller);
    }
}

#[test]
fn an_agent_that_dies_at_each_step_loses_its_box_alone_as_user() {
    let test = "an_agent_that_dies_at_each_step_loses_its_box_alone_as_user";
    if let Some(caller) = Caller::user(test).and_then(Caller::with_mortal_agent) {
        at_each_step(&caller);
    }
}

/// The variable that chooses a place is a word that only an agent with such places holds.
#[test]
fn a_shipped_agent_has_no_place_to_die_at() {
    let holds = |caller: &Caller| {
        let agent = caller.blastbox_path().with_file_name("blastbox-agent");
        let word = b"BLASTBOX_FAILPOINT";
        fs::read(agent).expect("read the agent").windows(word.len()).any(|piece| piece == word)
    };
    let Some(caller) = Caller::user("a_shipped_agent_has_no_place_to_die_at") else { return };
    assert!(!holds(&caller));
    if let Some(caller) = caller.with_mortal_agent() {
        assert!(holds(&caller), "and one that has them would be found");
    }
}

/// How long it may take until a box is lost whose agent has died, on a busy host with an emulated processor.
const BOUND: Duration = Duration::from_secs(60);

/// What is asked of a box whose agent dies while it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// A command, which is the one that chooses the place.
    Exec,
    /// One that prints for ever.
    Print,
    /// One that is given something to read.
    Read,
    /// A file goes in.
    Put,
    Snapshot,
    Fork,
    ToDisk,
    FromDisk,
}

/// Whose agent is dead afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Itself,
    /// A copy, whose original goes on.
    Copy,
    /// It lies on disk as it was.
    Nobody,
}

/// Places by their names in `crates/agent/src/failpoint.rs` and beside it. Those that no box of a daemon comes to are `without_a_daemon`'s.
const STEPS: [(&str, Deed, Lost); 15] = [
    ("exec-asked", Deed::Exec, Lost::Itself),
    ("exec-begun", Deed::Exec, Lost::Itself),
    ("exec-ended", Deed::Exec, Lost::Itself),
    ("output-flowing", Deed::Print, Lost::Itself),
    ("input-given", Deed::Read, Lost::Itself),
    ("file-asked", Deed::Put, Lost::Itself),
    ("file-given", Deed::Put, Lost::Itself),
    ("sleep-asked", Deed::Snapshot, Lost::Itself),
    ("frozen", Deed::Fork, Lost::Itself),
    ("asleep", Deed::ToDisk, Lost::Itself),
    ("morning", Deed::Snapshot, Lost::Itself),
    ("woken", Deed::Fork, Lost::Copy),
    ("risen", Deed::Fork, Lost::Copy),
    ("copy-greeted", Deed::Fork, Lost::Copy),
    ("woken", Deed::FromDisk, Lost::Nobody),
];

/// How a guest dies does not depend on who asked for its box: all of it once. What an ordinary user's daemon and warden do about it is of
/// another kind only where a box is lost, where a copy is, where one comes from its file, and where a box has no daemon.
const OF_WHOEVER_ASKS: [(&str, Deed); 4] =
    [("exec-begun", Deed::Exec), ("frozen", Deed::Fork), ("woken", Deed::Fork), ("woken", Deed::FromDisk)];

fn at_each_step(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(mut daemon) = begin(caller, &mut census) else { return };
    let neighbour = fine(&daemon, &CREATE);
    let file = caller.file("large", vec![7; 3 << 20]);
    census.expect_file("large");
    let is_chosen = |point, deed| caller.comes_first() || OF_WHOEVER_ASKS.contains(&(point, deed));
    for (point, deed, lost) in STEPS.into_iter().filter(|(point, deed, _)| is_chosen(*point, *deed)) {
        let what = format!("{point} while {deed:?}");
        let made = fine(&daemon, &CREATE);
        let (ended, begun) = die(&daemon, &made, point, deed, text(&file));
        census.see();
        match lost {
            Lost::Itself => {
                assert!(eventually(|| !boxes(&daemon).contains(&made)), "{what}: it lives on");
                // What was copied by then is a snapshot like any other.
                assert!(ended.code != 0 || point == "morning", "{what}: {}", ended.text());
                assert_lost(&daemon, &made, &what);
            }
            Lost::Copy => {
                assert_ne!(ended.code, 0, "{what}: {}", ended.text());
                answers(&daemon, &made, &what);
            }
            Lost::Nobody => {
                assert_ne!(ended.code, 0, "{what}: {}", ended.text());
                assert!(boxes(&daemon).contains(&made), "{what}: what lies on disk is kept");
            }
        }
        assert!(begun.elapsed() < BOUND, "{what}: {:?}", begun.elapsed());
        clear(&daemon, std::slice::from_ref(&neighbour));
        let left = || beside(&census, &daemon);
        assert!(eventually(|| left().is_empty()), "{what}: left behind:\n  {}", left().join("\n  "));
        answers(&daemon, &neighbour, &what);
    }
    without_a_daemon(caller, &daemon, &neighbour);
    fine(&daemon, &["kill", &neighbour]);
    daemon.stop();
    census.expect_nothing("all of them");
}

/// Has the agent of a box die. How whoever asked was answered, and when it was asked.
fn die(
    daemon: &Daemon<'_>,
    made: &str,
    point: &str,
    deed: Deed,
    file: &str,
) -> (blastbox_tests::Ended, Instant) {
    let chosen = format!("BLASTBOX_FAILPOINT={point}");
    let exec = ["exec", "--env", &chosen, made, "--"];
    let copy = format!("{made}:/tmp/large");
    let to_disk = ["pause", "--to-disk", made];
    // Where it dies later, something runs on.
    let runs_on = || fine(daemon, &["exec", "--detach", "--env", &chosen, made, "--", "sleep", "600"]);
    let asked = match deed {
        Deed::Exec => daemon.client(&[&exec[..], &["echo"]].concat()),
        Deed::Print => {
            daemon.client(&[&exec[..], &["dd", "if=/dev/zero", "bs=65536", "count=1000"]].concat())
        }
        Deed::Read => daemon.client(&["exec", "-i", "--env", &chosen, made, "--", "cat"]).input("something"),
        Deed::Put => {
            fine(daemon, &[&exec[..], &["echo"]].concat());
            daemon.client(&["cp", file, &copy])
        }
        Deed::Snapshot => {
            runs_on();
            daemon.client(&["snapshot", made])
        }
        Deed::Fork => {
            runs_on();
            daemon.client(&["fork", made])
        }
        Deed::ToDisk => {
            runs_on();
            daemon.client(&to_disk)
        }
        Deed::FromDisk => {
            runs_on();
            fine(daemon, &to_disk);
            daemon.client(&["resume", made])
        }
    };
    let begun = Instant::now();
    let ended = asked.start().end_within(PATIENCE);
    if deed == Deed::Print {
        assert!(ended.out.len() > 1 << 20, "{} bytes had come before", ended.out.len());
    }
    (ended, begun)
}

/// What is told of a box whose agent is dead: how it ended and why, in its receipt and in the ledger.
#[track_caller]
fn assert_lost(daemon: &Daemon<'_>, made: &str, what: &str) {
    let receipt: Value =
        serde_json::from_str(&fine(daemon, &["inspect", made, "--json"])).expect("a receipt");
    let word = |at: &str| receipt.pointer(at).and_then(Value::as_str);
    let told = (word("/outcome"), word("/reason/code"));
    assert_eq!(told, (Some("lost"), Some("agent_gone")), "{what}: {receipt}");
    let ledger = daemon.state().join("ledger").display().to_string();
    let shown = fine(daemon, &["audit", "show", &ledger, "--box", made, "--json"]);
    let ended = shown.lines().find(|line| line.contains("\"box_ended\"")).expect("its end is in the ledger");
    assert!(ended.contains("\"outcome\":\"lost\""), "{what}: {ended}");
}

/// A box that runs one command, and a copy of a template that dies before it has said hello, or when it has and nothing was asked of it.
fn without_a_daemon(caller: &Caller, daemon: &Daemon<'_>, neighbour: &str) {
    let store = caller.place().join("store");
    let words = ["run", "--json", "--store", text(&store)].into_iter().chain(CREATE[1..].iter().copied());
    let words = words.chain(["--env", "BLASTBOX_FAILPOINT=farewell-heard", "--", "sleep", "600"]);
    let boxed = caller.blastbox(words).start().end_within(PATIENCE).boxed();
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("lost", 125), "{:?}", boxed.receipt.reason);
    // Each needs an image and a template of its own.
    let points: &[&str] = if caller.comes_first() { &["risen", "begun"] } else { &[] };
    for &point in points {
        let add = |root: &std::path::Path| {
            fs::write(root.join("etc/blastbox-failpoint"), point).expect("choose a place");
        };
        let Some(workshop) = Workshop::named(caller, point, add) else { return };
        let boxed = workshop.with_templates(|| workshop.sh(&["--timeout", "200s"], "echo never"));
        let reason = boxed.receipt.reason.as_ref().map(|reason| reason.code.as_str().to_owned());
        assert_eq!((boxed.outcome(), reason.as_deref()), ("lost", Some("agent_gone")), "{point}");
        assert_eq!(boxed.stdout, "", "{point}");
        let how: Vec<&String> = boxed.receipt.boundaries.iter().flat_map(|line| &line.how).collect();
        assert!(how.iter().any(|how| how.contains("it began as a copy")), "{point}: {how:?}");
        assert_eq!(machines(daemon).len(), 1, "{point}: the neighbour's alone");
        answers(daemon, neighbour, point);
        fs::remove_dir_all(&workshop.store).expect("take the store away");
        fs::remove_dir_all(caller.place().join(format!("root-{point}"))).expect("take the image away");
    }
}
