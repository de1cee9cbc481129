//! Boxes that run, copied with everything that runs in them, for real: forks and snapshots of virtual machines go on where they
//! were, and are not alike in what must be their own; what was altered, cut short or is another's is refused by name.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

use blastbox_tests::daemon::signal;
use blastbox_tests::herd::CREATE;
use blastbox_tests::herd::expect_different;
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, Served, both_ways, text, wait_slowly, wait_until, whoever_asks};
use rustix::process::Signal;

both_ways!(what_runs_in_a_box_goes_on_in_its_forks_and_each_is_its_own);
whoever_asks!(
    what_a_copy_owes_its_commands_and_its_caller,
    a_snapshot_outlives_its_daemon_and_is_refused_by_name_where_it_is_not_whole,
);

/// Draws a word, keeps it and a number in its memory, and says both again and again.
const COUNT: &str = "w=$(head -c 8 /dev/urandom | hexdump -e '8/1 \"%02x\"'); n=0
    while :; do n=$((n + 1)); echo $w $n > /tmp/new; cat /tmp/new > /tmp/count; echo $w $n; sleep 0.5; done";
/// Boxes that wait would each cost a copy.
const NO_STOCK: &str = "[pool]\nmax = 0\n";
/// What no two boxes may have in common, a word each.
const SELF: &str = "
    head -c 16 /dev/urandom | hexdump -e '16/1 \"%02x\" \"\n\"'
    while read range _ _ _ _ name; do [ \"$name\" = '[stack]' ] && echo $range; done < /proc/self/maps
    uname -n
    cat /etc/machine-id";

fn create(served: &Served<'_>, more: &[&str]) -> String {
    fine(served, CREATE.iter().chain(more).copied())
}

/// A verb that must do what it is told, in the time that machines take.
#[track_caller]
fn fine<'w>(served: &Served<'_>, words: impl IntoIterator<Item = &'w str>) -> String {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    ended.text().trim_end().to_owned()
}

/// The word and the number that the command in a box keeps.
fn count(served: &Served<'_>, id: &str) -> Option<(String, u64)> {
    let said = served.sh(id, "cat /tmp/count");
    let (word, number) = said.split_once(' ')?;
    Some((word.to_owned(), number.parse().ok()?))
}

/// The same, waited for: the command empties its file before it writes the next number.
#[track_caller]
fn counted(served: &Served<'_>, id: &str) -> (String, u64) {
    let mut found = None;
    wait_slowly(|| {
        found = count(served, id);
        found.is_some()
    });
    found.expect("it counts")
}

/// What the command in a box has said last. It costs the box nothing, as a look at its file does.
fn said(served: &Served<'_>, id: &str, exec: &str) -> Option<(String, u64)> {
    let all = served.blastbox(["logs", id, exec]).end().text();
    // The last line may not be whole yet.
    let (whole, _) = all.rsplit_once('\n')?;
    let (word, number) = whole.lines().next_back()?.split_once(' ')?;
    Some((word.to_owned(), number.parse().ok()?))
}

/// It says so, and keeps so.
#[track_caller]
fn counts_on(served: &Served<'_>, id: &str, exec: &str, word: &str, from: u64) {
    assert!(
        wait_slowly(|| said(served, id, exec).is_some_and(|(own, number)| own == word && number > from)),
        "{id}: {:?} after {from}",
        said(served, id, exec)
    );
    let (own, number) = counted(served, id);
    assert!(own == word && number > from, "{id}: {own} {number}, {word} {from}");
}

/// Its number, the word that it keeps, and how far it has counted.
fn start_counting(served: &Served<'_>, id: &str) -> (String, String, u64) {
    let exec = fine(served, ["exec", "--detach", id, "--", "sh", "-c", COUNT]);
    assert!(wait_slowly(|| said(served, id, &exec).is_some_and(|(_, number)| number > 1)));
    let (word, number) = counted(served, id);
    (exec, word, number)
}

fn what_runs_in_a_box_goes_on_in_its_forks_and_each_is_its_own(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::with_number(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", NO_STOCK);
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&config)]);
    let id = create(&served, &[]);
    served.sh(&id, "echo kept > /tmp/kept");
    let (exec, word, before) = start_counting(&served, &id);
    let forks = fine(&served, ["fork", &id, "--count", "2"]);
    let [one, two] = forks.lines().collect::<Vec<_>>().try_into().expect("two forks");
    let again = fine(&served, ["fork", one]);
    for fork in [&id, one, two, &again] {
        counts_on(&served, fork, &exec, &word, before);
        assert_eq!(served.sh(fork, "cat /tmp/kept; echo $(uname -n) > /tmp/kept"), "kept");
    }
    // What one writes the others do not read.
    for fork in [&id, one, two, &again] {
        assert_eq!(served.sh(fork, "cat /tmp/kept"), fork.replace('_', "-"));
    }
    expect_different(&[&id, one, two, &again].map(|id| served.sh(id, SELF)));
    // The command is one of the fork's own, with what it prints from then on (`counts_on`), and can be ended there alone.
    let shown = served.ask(["inspect", one, "--json"]);
    assert!(shown.contains("\"ended\": null"), "{shown}");
    served.ask(["kill", one]);
    let (_, now) = counted(&served, two);
    counts_on(&served, two, &exec, &word, now);
    // What is no machine cannot be copied, and says so.
    let jail = fine(&served, ["create", "--tier", "jail"]);
    for verb in ["snapshot", "fork"] {
        let refused = served.blastbox([verb, &jail]).end();
        assert!(refused.code == 125 && refused.err.contains("--tier microvm"), "{}", refused.err);
    }
    assert_eq!(served.stop().code, 0);
}

/// How often boxes were copied, says the ledger.
fn copied(caller: &Caller) -> usize {
    let files = fs::read_dir(caller.place().join("state/ledger")).expect("a ledger");
    let text = files.filter_map(|file| fs::read_to_string(file.expect("an entry").path()).ok());
    text.map(|text| text.matches("box_copied").count()).sum()
}

/// Whether this command of a box was ended because its time was over.
fn timed_out(served: &Served<'_>, id: &str, exec: &str) -> bool {
    let shown: serde_json::Value =
        serde_json::from_str(&served.ask(["inspect", id, "--json"])).expect("a box");
    let execs = shown.get("execs").and_then(serde_json::Value::as_array).expect("its commands");
    execs.iter().any(|card| {
        let number = card.get("exec").and_then(serde_json::Value::as_u64);
        number == exec.parse().ok() && card.get("timed_out") == Some(&serde_json::Value::Bool(true))
    })
}

fn what_a_copy_owes_its_commands_and_its_caller(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let config = caller.file("daemon.toml", NO_STOCK);
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&config)]);
    let id = create(&served, &[]);
    // Killed by its own time, in the box and in what is a copy of it.
    let exec = fine(&served, ["exec", "--detach", "--timeout", "10s", &id, "--", "sleep", "86400"]);
    let fork = fine(&served, ["fork", &id]);
    // Also what ends while the copy is still being written: one after the other does, and nothing runs on in the copy.
    for seconds in 1..=6 {
        let time = format!("{seconds}s");
        fine(&served, ["exec", "--detach", "--timeout", &time, &fork, "--", "sleep", "86400"]);
    }
    let late = fine(&served, ["fork", &fork]);
    let idle = || served.ask(["inspect", &late, "--json"]).contains("\"phase\": \"ready\"");
    assert!(wait_slowly(idle), "{}", served.ask(["inspect", &late, "--json"]));
    fine(&served, ["kill", &late]);
    for id in [&id, &fork] {
        assert!(
            wait_slowly(|| timed_out(&served, id, &exec)),
            "{exec}: {}",
            served.ask(["inspect", id, "--json"])
        );
    }
    // Whoever asked goes away in the middle of it: by the time that the next one is through, nothing is there of what it wanted.
    let before = copied(caller);
    let asking = served.blastbox(["fork", &id, "--count", "2"]).start();
    assert!(wait_until(|| copied(caller) > before));
    signal(asking.id(), Signal::KILL);
    drop(asking);
    let next = loop {
        let ended = served.blastbox(["fork", &id]).start().end_within(PATIENCE);
        if ended.code == 0 {
            break ended.text().trim_end().to_owned();
        }
        assert!(ended.err.contains("copied already"), "{}", ended.err);
    };
    let mut known = [id, fork, next];
    known.sort();
    let there = || {
        let listed = served.ask(["ps", "--json"]);
        let mut ids: Vec<String> =
            listed.split('"').filter(|word| word.starts_with("bx_")).map(ToOwned::to_owned).collect();
        ids.sort();
        ids.dedup();
        ids
    };
    assert!(wait_slowly(|| there() == known), "{:?} {known:?}", there());
    assert_eq!(served.stop().code, 0);
}

/// Seconds since 1970, as the host counts them.
fn now_here() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs()
}

fn snapshots(caller: &Caller) -> Vec<PathBuf> {
    let list = fs::read_dir(caller.place().join("state/snapshots")).expect("a place for snapshots");
    list.map(|entry| entry.expect("an entry").path()).collect()
}

fn a_snapshot_outlives_its_daemon_and_is_refused_by_name_where_it_is_not_whole(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|door| door.local_addr()).expect("a free port").to_string();
    let config = caller.file("daemon.toml", format!("{NO_STOCK}[snapshots]\ncount = 1\n"));
    let options = ["--store", workshop.store.as_str(), "--config", text(&config), "--listen", port.as_str()];
    let state = caller.place().join("state");
    let key =
        caller.blastbox(["key", "create", "other", "--tenant", "other", "--state-dir", text(&state)]).end();
    let said = key.text();
    let key = said.split_whitespace().find(|word| word.starts_with("bbx_")).expect("a key");
    let served = Served::start(caller, &options);
    let id = create(&served, &[]);
    let (exec, word, before) = start_counting(&served, &id);
    let snapshot = fine(&served, ["snapshot", &id]);
    let (_, now) = counted(&served, &id);
    counts_on(&served, &id, &exec, &word, now);
    // What a tenant may keep is bounded.
    let more = served.blastbox(["snapshot", &id]).start().end_within(PATIENCE);
    assert!(more.code == 125 && more.err.contains("quota of snapshots"), "{}", more.err);
    // Whoever is killed leaves the snapshot and nothing else.
    signal(served.id(), Signal::KILL);
    drop(served);
    let [file] = snapshots(caller).try_into().expect("one file");
    let whole = fs::read(&file).expect("read it");

    let served = Served::start(caller, &options);
    assert!(served.ask(["snapshot", "ls"]).contains(&snapshot));
    let asked = now_here();
    let restored = fine(&served, ["restore", &snapshot, "--label", "from=snapshot"]);
    // The clock is that of the moment, and not of the one when it was copied.
    let told = served.sh(&restored, "date +%s");
    let time: u64 = told.trim().parse().expect("a time");
    assert!((asked.saturating_sub(1)..=now_here() + 1).contains(&time), "{asked} {time} {}", now_here());
    counts_on(&served, &restored, &exec, &word, before.saturating_sub(1));
    assert_eq!(served.sh(&restored, "uname -n"), restored.replace('_', "-"));
    served.ask(["kill", &restored]);
    // Another tenant's is not there.
    let answer = ask(&port, key, "POST", "/v1/boxes", &format!("{{\"snapshot\":\"{snapshot}\"}}"));
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("not_found"), "{answer}");
    let answer = ask(&port, key, "DELETE", &format!("/v1/snapshots/{snapshot}"), "");
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    let answer = ask(&port, key, "GET", "/v1/snapshots", "");
    assert!(answer.contains("{\"snapshots\":[]}"), "{answer}");
    // What is not what was written is refused by name.
    let middle = whole.len() / 2;
    let altered = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        bytes
    };
    for (bytes, code) in [
        (altered(&|bytes| bytes.truncate(middle)), "cut short"),
        (altered(&|bytes| bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1)), "was altered"),
        (altered(&|bytes| bytes.iter_mut().skip(30).take(1).for_each(|byte| *byte ^= 1)), "was altered"),
    ] {
        fs::write(&file, bytes).expect("change it");
        let refused = served.blastbox(["create", "--snapshot", &snapshot]).start().end_within(PATIENCE);
        assert!(refused.code == 125 && refused.err.contains(code), "{code}: {}", refused.err);
    }
    // Under another name it is another one's.
    fs::write(&file, &whole).expect("put it back");
    let other = "sn_aaaaaaaaaaaaaaaaaaaa";
    let copy = file.with_file_name(format!("{other}.snapshot"));
    fs::copy(&file, &copy).expect("copy it");
    caller.own(&copy);
    let refused = served.blastbox(["create", "--snapshot", other]).start().end_within(PATIENCE);
    assert!(refused.code == 125 && refused.err.contains("another machine"), "{}", refused.err);
    let refused = served.blastbox(["create", "--snapshot", &snapshot, "--memory", "1GiB"]).end();
    assert!(refused.code != 0 && refused.err.contains("--memory"), "{}", refused.err);
    fs::write(&copy, altered_head(&whole)).expect("change it");
    operator_sees_and_removes_all(&served, &port, key, other);
    served.ask(["snapshot", "rm", &snapshot, other]);
    assert!(snapshots(caller).is_empty());
    assert_eq!(served.stop().code, 0);
}

/// A file whose note is not what was written.
fn altered_head(whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes.iter_mut().skip(30).take(1).for_each(|byte| *byte ^= 1);
    bytes
}

/// Whoever sits at the socket sees what all tenants keep, and can take it away; nobody else does.
fn operator_sees_and_removes_all(served: &Served<'_>, port: &str, key: &str, unreadable: &str) {
    let id = |answer: &str| {
        let found = answer.split('"').skip_while(|word| *word != "id").nth(2);
        found.expect(answer).to_owned()
    };
    let new = r#"{"tier":"microvm","accept":["emulated-cpu"],"image":"tools","limits":{"memory":"256MiB"}}"#;
    let made = id(&ask(port, key, "POST", "/v1/boxes", new));
    let theirs = id(&ask(port, key, "POST", &format!("/v1/boxes/{made}/snapshot"), ""));
    ask(port, key, "DELETE", &format!("/v1/boxes/{made}"), "");
    let refused = ask(port, key, "GET", "/v1/snapshots?all=true", "");
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("local_only"), "{refused}");
    assert!(!served.ask(["snapshot", "ls"]).contains(&theirs));
    let all = served.ask(["snapshot", "ls", "--all"]);
    let line = |name: &str| all.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line(&theirs).contains("other"), "{all}");
    assert!(line(unreadable).contains("snapshot_altered"), "{all}");
    served.ask(["snapshot", "rm", &theirs]);
    let gone = ask(port, key, "GET", "/v1/snapshots", "");
    assert!(gone.contains("{\"snapshots\":[]}"), "{gone}");
}

/// A request with a key, and the whole answer.
fn ask(address: &str, key: &str, method: &str, path: &str, body: &str) -> String {
    let mut line = TcpStream::connect(address).expect("reach the daemon");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: blastbox\r\nauthorization: Bearer {key}\r\n");
    write!(
        line,
        "{head}content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .expect("ask");
    let mut answer = String::new();
    line.read_to_string(&mut answer).expect("an answer");
    answer
}
