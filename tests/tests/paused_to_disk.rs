//! Boxes that are paused to disk, for real: nothing of them is left but a file, and everything that ran goes on from it, also with the
//! next daemon; what is not what was written is refused by name, and a box that cannot be written goes on.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use blastbox_tests::daemon::signal;
use blastbox_tests::herd::CREATE;
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, Served, both_ways, text, wait_slowly, whoever_asks};
use rustix::process::Signal;
use serde_json::{Value, json};

both_ways!(a_box_goes_on_from_disk_also_with_the_next_daemon_and_only_from_what_was_written);
whoever_asks!(
    a_box_on_disk_holds_no_room_and_one_that_cannot_be_written_goes_on,
    what_goes_on_from_disk_has_the_time_of_now_and_chance_of_its_own,
    a_deadline_that_is_set_while_a_box_goes_on_is_the_one_that_holds,
);

/// Keeps a number in its memory, and says it again and again.
const COUNT: &str = "n=0; while :; do n=$((n + 1)); echo $n > /tmp/new; cat /tmp/new > /tmp/count; echo said $n; sleep 0.5; done";
/// Boxes that wait would each cost a copy.
const NO_STOCK: &str = "[pool]\nmax = 0\n";

#[track_caller]
fn fine<'w>(served: &Served<'_>, words: impl IntoIterator<Item = &'w str>) -> String {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    ended.text().trim_end().to_owned()
}

/// A verb that must be refused, with this in its words.
#[track_caller]
fn refused<'w>(served: &Served<'_>, words: impl IntoIterator<Item = &'w str>, why: &str) {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert!(ended.code == 125 && ended.err.contains(why), "{why}: {} {}", ended.code, ended.err);
}

fn create(served: &Served<'_>) -> String {
    fine(served, CREATE)
}

fn count(served: &Served<'_>, id: &str) -> Option<u64> {
    served.sh(id, "cat /tmp/count").trim().parse().ok()
}

/// What the command in a box has said last. It costs the box nothing, as a look at its file does.
fn said(served: &Served<'_>, id: &str, exec: &str) -> Option<u64> {
    let all = served.blastbox(["logs", id, exec]).end().text();
    // The last line may not be whole yet.
    let (whole, _) = all.rsplit_once('\n')?;
    whole.lines().next_back()?.strip_prefix("said ")?.parse().ok()
}

/// The number of its command, and how far it has counted.
fn start_counting(served: &Served<'_>, id: &str) -> (String, u64) {
    let exec = fine(served, ["exec", "--detach", id, "--", "sh", "-c", COUNT]);
    let mut far = 0;
    assert!(wait_slowly(|| {
        far = said(served, id, &exec).unwrap_or(0);
        far > 1
    }));
    (exec, far)
}

/// It has what it had, and goes on: what was counted before it slept lies in its files, and does not tell that.
#[track_caller]
fn counts_on(served: &Served<'_>, id: &str, exec: &str, from: u64) {
    let mut found = None;
    assert!(
        wait_slowly(|| {
            found = count(served, id);
            found >= Some(from)
        }),
        "{found:?}"
    );
    assert!(wait_slowly(|| said(served, id, exec) > found), "it stands still at {found:?}");
    assert!(wait_slowly(|| count(served, id) > found), "what it keeps stands still at {found:?}");
}

fn file_of(caller: &Caller, id: &str) -> PathBuf {
    let name = format!("{}.snapshot", id.replace("bx_", "sn_"));
    caller.place().join("state/snapshots").join(name)
}

fn ledger(state: &Path) -> String {
    let files = fs::read_dir(state.join("ledger")).expect("a ledger");
    files.filter_map(|file| fs::read_to_string(file.expect("an entry").path()).ok()).collect()
}

fn a_box_goes_on_from_disk_also_with_the_next_daemon_and_only_from_what_was_written(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", NO_STOCK);
    let options = ["--store", workshop.store.as_str(), "--config", text(&config)];
    let served = Served::start(caller, &options);
    let id = create(&served);
    let (exec, before) = start_counting(&served, &id);
    let other = fine(&served, ["snapshot", &id]);
    let another = fs::read(file_of(caller, &other)).expect("read it");
    assert_eq!(fine(&served, ["pause", "--to-disk", &id]), format!("{id} paused, on disk"));
    // It is a box, and neither runs nor is it a snapshot.
    assert!(served.ask(["ps"]).contains("paused, on disk"));
    refused(&served, ["exec", &id, "--", "true"], "paused");
    refused(&served, ["pause", &id], "paused");
    let name = id.replace("bx_", "sn_");
    assert!(!served.ask(["snapshot", "ls"]).contains(&name));
    refused(&served, ["create", "--snapshot", &name], "no such snapshot");
    refused(&served, ["snapshot", "rm", &name], "no such snapshot");
    signal(served.id(), Signal::KILL);
    drop(served);
    // Nobody holds its image now, and it is not taken away all the same.
    let state = caller.place().join("state").display().to_string();
    let store = ["--store", workshop.store.as_str(), "--state-dir", &state];
    let kept = caller.blastbox(["image", "rm", "tools"].into_iter().chain(store)).end();
    assert!(kept.code != 0 && kept.err.contains("image_in_use") && kept.err.contains(&id), "{}", kept.err);
    assert_eq!(caller.blastbox(["image", "prune"].into_iter().chain(store)).end().code, 0);

    let served = Served::start(caller, &options);
    assert!(served.ask(["inspect", &id]).contains("paused, on disk"));
    let file = file_of(caller, &id);
    let whole = fs::read(&file).expect("read it");
    let altered = |at: usize| {
        let mut bytes = whole.clone();
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
        bytes
    };
    let middle = whole.len() / 2;
    let half = whole.get(..middle).expect("half of it").to_vec();
    for (bytes, why) in [
        (half, "cut short"),
        (altered(middle), "was altered"),
        (altered(30), "was altered"),
        (another, "another machine"),
    ] {
        fs::write(&file, bytes).expect("change it");
        refused(&served, ["resume", &id], why);
        assert!(served.ask(["ps"]).contains("paused, on disk"), "{why}");
    }
    fs::write(&file, &whole).expect("put it back");
    assert!(fine(&served, ["resume", &id]).starts_with(&id));
    assert!(!file.exists());
    counts_on(&served, &id, &exec, before);
    assert_eq!(served.sh(&id, "uname -n"), id.replace('_', "-"));
    // The command is the one that it was, and its number nobody else's.
    assert!(wait_slowly(|| served.ask(["logs", &id, &exec]).contains("said")));
    let next: u32 = fine(&served, ["exec", "--detach", &id, "--", "true"]).parse().expect("a number");
    assert!(next > exec.parse().expect("a number"));
    // Once more, from the machine as it is now.
    served.sh(&id, "echo later > /tmp/later");
    fine(&served, ["pause", "--to-disk", &id]);
    fine(&served, ["resume", &id]);
    assert_eq!(served.sh(&id, "cat /tmp/later"), "later");
    fine(&served, ["pause", "--to-disk", &id]);
    // What lies on disk can be killed there.
    served.ask(["kill", &id]);
    assert!(!file.exists());
    refused(&served, ["resume", &id], "gone");
    let told = ledger(&caller.place().join("state"));
    assert_eq!(told.matches("\"box_on_disk\"").count(), 3, "each time");
    assert_eq!(served.stop().code, 0);
}

fn a_box_on_disk_holds_no_room_and_one_that_cannot_be_written_goes_on(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", format!("{NO_STOCK}[default_quota]\nboxes = 1\n"));
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&config)]);
    let id = create(&served);
    let (exec, before) = start_counting(&served, &id);
    // What is in the way is found when all of it was written: the box goes on.
    let file = file_of(caller, &id);
    fs::create_dir_all(file.join("in the way")).expect("a directory in the way");
    caller.own(file.parent().expect("a place for snapshots"));
    refused(&served, ["pause", "--to-disk", &id], "could not be written");
    counts_on(&served, &id, &exec, before);
    fs::remove_dir_all(&file).expect("make way");
    // What it had is free for others.
    fine(&served, ["pause", "--to-disk", &id]);
    let second = create(&served);
    refused(&served, ["resume", &id], "quota of boxes");
    let told = ledger(&caller.place().join("state"));
    assert_eq!(told.matches("\"box_refused\"").count(), 1, "that it did not go on is told");
    served.ask(["kill", &second]);
    fine(&served, ["resume", &id]);
    counts_on(&served, &id, &exec, before);
    // What is no machine says so, and goes on.
    served.ask(["kill", &id]);
    let jail = fine(&served, ["create", "--tier", "jail"]);
    refused(&served, ["pause", "--to-disk", &jail], "--tier microvm");
    assert_eq!(served.sh(&jail, "echo here"), "here");
    assert_eq!(served.stop().code, 0);
}

fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    i64::try_from(now.as_secs()).expect("a time")
}

/// The same file twice, as after a disk was put back: a machine that took its chance from there would say the same again.
fn what_goes_on_from_disk_has_the_time_of_now_and_chance_of_its_own(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::with_python(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", NO_STOCK);
    let options = ["--store", workshop.store.as_str(), "--config", text(&config)];
    let served = Served::start(caller, &options);
    let id = create(&served);
    // What runs already asks for it once somebody says so, and not before.
    let script = "until [ -e /tmp/go ]; do sleep 0.3; done; head -c 16 /dev/urandom | hexdump -e '16/1 \"%02x\"' > /tmp/chance; date +%s > /tmp/time";
    fine(&served, ["exec", "--detach", &id, "--", "sh", "-c", script]);
    fine(&served, ["pause", "--to-disk", &id]);
    signal(served.id(), Signal::KILL);
    drop(served);
    let (state, second) = (caller.place().join("state"), caller.place().join("second"));
    let copied = caller.program(Path::new("/bin/cp"), ["-a", text(&state), text(&second)]).end();
    assert_eq!(copied.code, 0, "{}", copied.err);
    let once = || {
        let served = Served::start(caller, &options);
        fine(&served, ["resume", &id]);
        let before = seconds();
        served.sh(&id, "touch /tmp/go");
        let mut said = String::new();
        assert!(wait_slowly(|| {
            said = served.sh(&id, "cat /tmp/chance /tmp/time 2>/dev/null; true");
            said.len() > 40
        }));
        let after = seconds();
        // Of the kernel, of a Python that is started now, and where that one puts its words.
        let own = served.sh(
            &id,
            "head -c 16 /dev/urandom | hexdump -e '16/1 \"%02x\" \" \"'
            PYTHONHOME=/usr python3 -S -c 'import random; print(random.random(), hash(\"word\"))'",
        );
        let own_time: i64 = served.sh(&id, "date +%s").parse().expect("a time");
        signal(served.id(), Signal::KILL);
        let (chance, time) = said.split_at(32);
        let time: i64 = time.trim().parse().expect("a time");
        // A clock that went on from the file would be behind by all that passed meanwhile.
        assert!((before - 1..=after + 1).contains(&time), "{before} {time} {after}");
        assert!((after - 1..=seconds() + 1).contains(&own_time), "{after} {own_time}");
        let own: Vec<String> = own.split_whitespace().map(str::to_owned).collect();
        assert_eq!(own.len(), 3, "{own:?}");
        (chance.to_owned(), own)
    };
    let first = once();
    fs::remove_dir_all(&state).expect("take it away");
    fs::rename(&second, &state).expect("put it back");
    let again = once();
    assert_ne!(first.0, again.0, "of what ran already");
    let differ = first.1.iter().zip(&again.1).all(|(one, other)| one != other);
    assert!(differ, "of what was started then: {:?} {:?}", first.1, again.1);
}

fn ends_at(card: &Value) -> String {
    card.get("ends_at").and_then(Value::as_str).expect("a time").to_owned()
}

fn a_deadline_that_is_set_while_a_box_goes_on_is_the_one_that_holds(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", NO_STOCK);
    let served = Served::start(caller, &["--store", workshop.store.as_str(), "--config", text(&config)]);
    let id = fine(&served, CREATE.into_iter().chain(["--life", "1h"]));
    fine(&served, ["pause", "--to-disk", &id]);
    let mut resumed = served.blastbox(["resume", &id]).start();
    let set = |seconds: u32| {
        let life = json!({ "life": format!("{seconds}s") });
        let (status, card) = served.request("POST", &format!("/v1/boxes/{id}/deadline"), &life);
        assert_eq!(status, 200, "{card}");
        ends_at(&card)
    };
    let mut life = 7200;
    let mut said = set(life);
    while !resumed.is_over() {
        life += 1;
        said = set(life);
    }
    let ended = resumed.end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let (_, card) = served.request("GET", &format!("/v1/boxes/{id}"), &Value::Null);
    let holds = ends_at(&card);
    // So long from a moment between what was said last and now.
    assert!(said <= holds && holds <= set(life), "{said} {holds}");
    assert_eq!(served.stop().code, 0);
}
