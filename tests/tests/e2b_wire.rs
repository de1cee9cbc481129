//! Every endpoint of E2B's wire and every answer that is written of it (`tests/e2b/wire/answers.txt`), heard from a real daemon
//! without an SDK. That nothing is missing there, `every_endpoint_has_an_answer_that_a_test_hears` of the server holds against the
//! daemon's own table, and `every_documented_answer_is_heard_or_it_says_why_not` against what is documented (`documented.txt`).

use std::path::Path;

use blastbox_tests::suites::{CONFIG, Daemon, installed, pytest, suite};
use blastbox_tests::{Caller, both_ways};

both_ways!(
    every_answer_of_the_wire_is_heard,
    the_answers_of_a_daemon_that_is_full,
    the_answers_of_a_daemon_in_trouble,
);

fn every_answer_of_the_wire_is_heard(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let more = "[e2b.volumes]\ncount = 6\nsize = \"16MiB\"\n[e2b.secrets]\ncount = 3\n";
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}{more}"));
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    let modules =
        ["sandboxes", "templates", "volumes", "secrets", "envd", "process", "filesystem", "interpreter"];
    let modules = modules.map(|name| suite("wire").join(format!("test_{name}.py")));
    pytest(caller, &place, &modules, &daemon, &[("E2B_OTHER_KEY", Path::new(&other))]);
}

fn the_answers_of_a_daemon_that_is_full(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let config = "[host]\nboxes = 2\nmemory = \"200GiB\"\ncpus = \"100\"\npatience = \"1s\"\n[default_quota]\nboxes = 1\n[pool]\nmin = 0\nmax = 0\n";
    let daemon = Daemon::start_with(caller, config);
    let [other, third] =
        ["other", "third"].map(|name| Daemon::key(caller, &[name, "--tenant", name], "bbx_"));
    let more = [("E2B_OTHER_KEY", Path::new(&other)), ("E2B_THIRD_KEY", Path::new(&third))];
    pytest(caller, &place, &[suite("wire").join("test_full.py")], &daemon, &more);
}

/// Its doors are full, it cannot read its keys, its warden stands still.
fn the_answers_of_a_daemon_in_trouble(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let config = format!(
        "{CONFIG}[pool]\nmin = 0\nmax = 0\n[doors]\ntenant_connections = 4\n[e2b.secrets]\nenabled = false\n"
    );
    let daemon = Daemon::start_with(caller, &config);
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    let (state, id) = (caller.place().join("state"), daemon.id().to_string());
    let more = [
        ("E2B_OTHER_KEY", Path::new(&other)),
        ("E2B_CONNECTIONS", Path::new("4")),
        ("BLASTBOX_STATE", &state),
        ("BLASTBOX_DAEMON", Path::new(&id)),
    ];
    let modules = ["crowded", "trouble"].map(|name| suite("wire").join(format!("test_{name}.py")));
    pytest(caller, &place, &modules, &daemon, &more);
}
