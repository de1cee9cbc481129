//! The guest `python-data` of the tier `wasm`: numpy, pandas and scipy are in its image, and nothing of its image is chance.
//!
//! It is made on request (`make wasm DATA=yes`); without it these tests are skipped with that reason.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::path::PathBuf;

use blastbox_tests::{Boxed, Caller, Served, both_ways};

both_ways!(
    packages_are_there_and_come_to_what_they_should,
    numbers_differ_between_guests_of_one_image,
    a_deterministic_run_is_the_same_again_with_packages_too,
    memory_is_counted_above_the_image,
    a_guest_begins_with_its_image_whoever_was_there_before,
    where_it_was_not_made_it_says_how_it_is,
);

fn shelf(caller: &Caller) -> PathBuf {
    caller.blastbox_path().with_file_name("wasm")
}

fn is_made(caller: &Caller) -> bool {
    let made = shelf(caller).join("python-data.guest").is_file();
    if !made {
        caller.skip("the guest python-data is not made: `make wasm DATA=yes` makes it");
    }
    made
}

fn run(caller: &Caller, options: &[&str], code: &str) -> Boxed {
    let words = ["run", "--json", "--tier", "wasm", "--lang", "python-data"];
    caller.blastbox(words.iter().chain(options)).input(code).end().boxed()
}

fn packages_are_there_and_come_to_what_they_should(caller: &Caller) {
    if !is_made(caller) {
        return;
    }
    // Loaded, and still to be imported by whoever wants their names.
    let code = "import sys
print([name in sys.modules for name in ('numpy', 'pandas', 'scipy.stats')], sorted(name for name in dir() if name[0] != '_'))
import io, numpy, pandas
from scipy import stats
frame = pandas.read_csv(io.StringIO('city,n\\nOslo,1\\nRome,5\\nOslo,3\\n'))
print(frame.groupby('city').n.sum().to_dict(), frame.n.mean())
print(numpy.linalg.det(numpy.array([[2.0, 1.0], [1.0, 3.0]])).round(6))
print(round(stats.linregress([1, 2, 3], [2, 4, 6]).slope, 6))
frame.to_csv('out.csv')
print(open('/workspace/out.csv').read().split())";
    let expected = "[True, True, True] ['sys']\n{'Oslo': 4, 'Rome': 5} 3.0\n5.0\n2.0\n[',city,n', '0,Oslo,1', '1,Rome,5', '2,Oslo,3']\n";
    assert_eq!(run(caller, &[], code).fine().stdout, expected);
    let failed = run(caller, &[], "import pandas\npandas.DataFrame({'a': [1]}).b");
    assert_eq!(failed.receipt.exit_code, 1);
    assert!(failed.stderr.contains("AttributeError"), "{}", failed.stderr);
}

fn numbers_differ_between_guests_of_one_image(caller: &Caller) {
    if !is_made(caller) {
        return;
    }
    let code = "import random, uuid, tempfile, numpy, scipy.stats
print(random.random(), numpy.random.rand(), numpy.random.randn(), numpy.random.default_rng().random(), scipy.stats.norm.rvs(), uuid.uuid4(), tempfile.mktemp())";
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", "--tier", "wasm", "--memory", "512MiB"]);
    // The first is begun when it is asked for, others before.
    let mut all: Vec<String> = Vec::new();
    for _ in 0..4 {
        let said = daemon.ask(["exec", &id, "--", "python-data", "-c", code]);
        all.extend(said.split(' ').map(str::to_owned));
    }
    all.push(run(caller, &[], "import numpy\nprint(numpy.random.rand())").fine().stdout.trim().to_owned());
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), count), (29, 29), "{all:?}");
}

fn a_deterministic_run_is_the_same_again_with_packages_too(caller: &Caller) {
    if !is_made(caller) {
        return;
    }
    let policy = "threat = \"high\"\naccept = [\"shared-uid\", \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\"]\n[kernel]\ntier = \"wasm\"\ndeterministic = true\n";
    let path = caller.file("policy.toml", policy);
    let options = ["--policy", path.to_str().unwrap()];
    let code = "import numpy, pandas, random, time
print(numpy.random.rand(3).tobytes().hex(), numpy.random.default_rng().bytes(8).hex(), random.random(), time.time())
print(pandas.Series(numpy.random.randn(50)).describe().to_json(), pandas.Timestamp.now(), id([]), hash('a'))";
    let once = || caller.run(&options, &["python-data", "-c", code]).fine().stdout;
    let first = once();
    assert!(first.contains("2025-01-01"), "{first}");
    assert_eq!(once(), first);
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create", options[0], options[1]]);
    let exec = || daemon.ask(["exec", &id, "--", "python-data", "-c", code]);
    // From one that was begun when it was asked for, and from others that waited.
    let first = exec();
    assert_eq!([exec(), exec()], [first.clone(), first]);
}

fn memory_is_counted_above_the_image(caller: &Caller) {
    if !is_made(caller) {
        return;
    }
    // The image alone has more than is left of 128 MiB when the worker has taken its part.
    let code = "import numpy
kept = numpy.ones(4 << 20, dtype='u1')
print(kept.sum())
try: numpy.ones(1 << 30, dtype='u1')
except MemoryError: print('refused')";
    let boxed = run(caller, &["--memory", "128MiB"], code).fine();
    assert_eq!(boxed.stdout, "4194304\nrefused\n");
    assert_eq!(boxed.receipt.usage.oom_kills, 0);
}

fn a_guest_begins_with_its_image_whoever_was_there_before(caller: &Caller) {
    let (shelf, mut left_out) = (shelf(caller), Vec::new());
    for guest in ["js", "python", "python-data"] {
        if !shelf.join(format!("{guest}.guest")).is_file() {
            left_out.push(guest);
            continue;
        }
        let words = ["follow", shelf.to_str().unwrap(), guest];
        let ended = caller.program(&shelf.join("blastbox-wasm-compile"), words).end();
        assert_eq!(ended.code, 0, "{guest}: {}", ended.err);
        let said = ended.text();
        let said = said.trim().strip_prefix("pages written ").unwrap();
        let (written, late) = said.split_once(", become a guest's own only then ").unwrap();
        let [written, late] = [written, late].map(|count| count.parse::<usize>().unwrap());
        // Each of the sixteen has written, or nothing was shown.
        assert!(written >= 16, "{guest}: {said}");
        // What they write to was theirs before: a page that was not costs an interrupt of every processor at work for the box.
        assert!(late * 10 <= written, "{guest}: {said}");
    }
    if !left_out.is_empty() {
        caller.leave_out(&left_out.join(", "), "not built: `make wasm` or `make wasm DATA=yes` makes it");
    }
}

fn where_it_was_not_made_it_says_how_it_is(caller: &Caller) {
    let elsewhere = caller.run(&["--tier", "jail"], &["true"]);
    assert_eq!(elsewhere.outcome(), "exited", "{}", elsewhere.stderr);
    let refused = caller.blastbox(["run", "--tier", "jail", "--lang", "python-data"]).input("1").end();
    assert!(refused.err.contains("in the tier wasm it is a guest"), "{}", refused.err);
    if shelf(caller).join("python-data.guest").is_file() {
        return caller.leave_out("what is said where it was not made", "here it is made");
    }
    if !shelf(caller).join("blastbox-wasm").is_file() {
        return caller.skip("the tier wasm is not built: `make wasm` builds it");
    }
    let boxed = run(caller, &[], "print(1)");
    assert_eq!(boxed.receipt.exit_code, 126);
    assert!(boxed.stderr.contains("make wasm DATA=yes"), "{}", boxed.stderr);
}
