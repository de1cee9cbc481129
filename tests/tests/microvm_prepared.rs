//! Pools of virtual machines that are prepared, for real: one machine runs what its kind begins, and those that wait are copies of it, each
//! its own; where no copy can be made each begins it by itself, and says so.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::time::{Duration, Instant};

use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, Served, text, whoever_asks};

// Members that an ordinary user's daemon prepares: network_copies.rs.
whoever_asks!(members_of_a_pool_are_copies_of_a_machine_that_was_prepared_once_and_each_is_its_own);

/// Draws a word and leaves it, and something that counts in its memory.
const PREWARM: &str = "head -c 8 /dev/urandom | hexdump -e '8/1 \\\"%02x\\\"' > /tmp/word; echo 0 > /tmp/count; \
    (n=0; while :; do n=$((n + 1)); echo $n > /tmp/new; cat /tmp/new > /tmp/count; sleep 1; done) > /dev/null 2>&1 < /dev/null &";
const ASK: [&str; 8] =
    ["create", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools", "--memory=256MiB"];
/// What no two boxes may have in common, a word each.
const SELF: &str = "
    head -c 16 /dev/urandom | hexdump -e '16/1 \"%02x\" \"\n\"'
    while read range _ _ _ _ name; do [ \"$name\" = '[stack]' ] && echo $range; done < /proc/self/maps
    uname -n";

fn config(prewarm: &str, more: &str) -> String {
    format!(
        "{more}[pool]\nmax = 2\nttl = \"1h\"\n[[pool.warm]]\ntier = \"microvm\"\naccept = [\"emulated-cpu\"]\nimage = \"tools\"\n\
         limits = {{ memory = \"256MiB\" }}\nprewarm = [\"sh\", \"-c\", \"{prewarm}\"]\n"
    )
}

/// Whether it comes to be so, in the time that machines take.
fn eventually(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    false
}

fn waits(served: &Served<'_>, boxes: usize) {
    let there = || served.ask(["metrics"]).contains(&format!("blastbox_pool_boxes {boxes}\n"));
    assert!(eventually(there), "{}", served.ask(["metrics"]));
}

/// How often this stands in the ledger.
fn recorded(caller: &Caller, word: &str) -> usize {
    let files = fs::read_dir(caller.place().join("state/ledger")).expect("a ledger");
    let texts = files.filter_map(|file| fs::read_to_string(file.expect("an entry").path()).ok());
    texts.map(|text| text.matches(word).count()).sum()
}

#[track_caller]
fn create(served: &Served<'_>) -> String {
    let ended = served.blastbox(ASK).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    ended.text().trim_end().to_owned()
}

/// How a box began, says its receipt.
fn began(served: &Served<'_>, id: &str) -> String {
    let (status, receipt) = served.request("DELETE", &format!("/v1/boxes/{id}"), &serde_json::Value::Null);
    assert_eq!(status, 200, "{receipt}");
    receipt.to_string()
}

fn members_of_a_pool_are_copies_of_a_machine_that_was_prepared_once_and_each_is_its_own(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let file =
        caller.file("daemon.toml", config(PREWARM, "").replace("[[pool.warm]]", "[[pool.warm]]\nmin = 2"));
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&file)]);
    waits(&served, 2);
    assert_eq!((recorded(caller, "\"box_copied\""), recorded(caller, "\"box_begun_from\"")), (1, 2));
    assert_eq!(recorded(caller, "\"command_asked\""), 1, "the command of the pool ran once");
    let boxes = [create(&served), create(&served)];
    let hits = served.ask(["metrics"]);
    assert!(hits.contains("blastbox_pool_hits_total 2\n"), "{hits}");
    // What was drawn and begun once is in each of them, and goes on there.
    let words = boxes.each_ref().map(|id| served.sh(id, "cat /tmp/word"));
    assert!(words[0].len() == 16 && words[0] == words[1], "{words:?}");
    for id in &boxes {
        let count = || served.sh(id, "cat /tmp/count").parse::<u64>().unwrap_or(0);
        let before = count();
        assert!(eventually(|| count() > before), "{id}");
        served.sh(id, "echo $(uname -n) > /tmp/word");
    }
    // All else is its own.
    let said = boxes.each_ref().map(|id| served.sh(id, SELF));
    let lines = said.each_ref().map(|said| said.lines().collect::<Vec<_>>());
    assert_eq!((lines[0].len(), lines[1].len()), (3, 3), "{said:?}");
    assert!(lines[0].iter().zip(&lines[1]).all(|(one, other)| one != other), "{said:?}");
    for id in &boxes {
        assert_eq!(served.sh(id, "cat /tmp/word"), id.replace('_', "-"));
        let how = began(&served, id);
        assert!(how.contains("a machine that was prepared once"), "{how}");
    }
    // Others have taken their places, and nothing was begun anew for them.
    waits(&served, 2);
    assert_eq!(recorded(caller, "\"box_copied\""), 1);
    assert_eq!(served.stop().code, 0);
    begins_by_itself_where_no_copy_can_be_made(caller, &workshop);
}

/// The host is given for one machine: the one that would take over from it has no room.
fn begins_by_itself_where_no_copy_can_be_made(caller: &Caller, workshop: &Workshop<'_>) {
    let before = recorded(caller, "\"box_copied\"");
    let file = caller.file("small.toml", config(PREWARM, "[host]\nmemory = \"300MiB\"\n"));
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&file)]);
    waits(&served, 1);
    let id = create(&served);
    assert_eq!(served.sh(&id, "cat /tmp/word").len(), 16);
    let how = began(&served, &id);
    assert!(how.contains("begun in it by itself") && how.contains("no room for it now"), "{how}");
    assert_eq!(recorded(caller, "\"box_copied\""), before);
    assert_eq!(served.stop().code, 0);
}
