//! `blastbox exec -t` and `blastbox attach` on a real terminal, with a real daemon.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use blastbox_tests::{Caller, Served, Terminal, both_ways};

both_ways!(
    a_terminal_is_used_left_and_found_again,
    a_command_without_a_terminal_is_looked_at,
    a_command_whose_time_is_over_ends_as_such_and_a_box_that_is_ended_by_request_too,
);

fn a_terminal_is_used_left_and_found_again(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let socket = daemon.socket().display().to_string();
    let script = "stty size; while read line; do echo \"got $line\"; stty size; done; echo over; exit 5";
    let words = ["exec", "-t", "--socket", &socket, &id, "--", "/bin/sh", "-c", script];
    let Some(mut first) = Terminal::start(caller, 31, 71, &words) else {
        return caller.skip("there is no setsid to give it a terminal");
    };
    first.expect("31 71");
    first.type_in("one\r");
    first.expect("got one");
    // A resize travels beside what is typed, so it is asked for until it has arrived.
    first.resize(41, 81);
    for _ in 0..1000 {
        first.type_in("size\r");
        first.expect("got size\r\n");
        if first.line() == "41 81" {
            break;
        }
    }
    first.type_in("size\r");
    first.expect("41 81");
    let attach = ["attach", "--socket", &socket, &id];
    let mut second = Terminal::start(caller, 52, 92, &attach).expect("a second terminal, like the first");
    second.expect("got one");
    second.type_in("two\r");
    second.expect("got two");
    first.expect("got two");
    second.type_in("\u{10}\u{11}");
    let (code, shown) = second.end();
    assert!(code == 0 && shown.contains("the command goes on"), "{code} {shown:?}");
    first.type_in("three\r");
    first.expect("got three");
    first.type_in("\u{4}");
    first.expect("over");
    assert_eq!(first.end().0, 5);
    assert_eq!(daemon.stop().code, 0);
}

fn a_command_without_a_terminal_is_looked_at(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let number =
        daemon.ask(["exec", "--detach", &id, "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7"]);
    let ended = daemon.blastbox(["attach", "--no-stdin", &id, &number]).end();
    assert_eq!((ended.code, ended.text().as_str(), ended.err.as_str()), (7, "out\n", "err\n"));
    let none = daemon.blastbox(["attach", &id, "99"]).end();
    assert!(none.code == 125 && none.err.contains("no command 99"), "{}", none.err);
    assert_eq!(daemon.stop().code, 0);
}

fn a_command_whose_time_is_over_ends_as_such_and_a_box_that_is_ended_by_request_too(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let sleeps = ["exec", "--timeout", "1s", &id, "--", "/bin/sleep", "600"];
    let ended = daemon.blastbox(sleeps).end();
    assert_eq!((ended.code, ended.err.lines().count()), (124, 1), "{}", ended.err);
    assert!(ended.err.contains("timed_out: the time of the command was over"), "{}", ended.err);
    // Whoever only looks hears the same, and so does whoever has JSON.
    let number = daemon.ask(["exec", "--detach", "--timeout", "1s", &id, "--", "/bin/sleep", "600"]);
    let looked = daemon.blastbox(["attach", "--no-stdin", &id, &number]).end();
    assert!(looked.code == 124 && looked.err.contains("timed_out"), "{} {}", looked.code, looked.err);
    let json = daemon.blastbox(["exec", "--json", "--timeout", "1s", &id, "--", "/bin/sleep", "600"]).end();
    assert!(json.code == 124 && json.text().contains("\"timed_out\":true"), "{}", json.text());
    // A signal of its own is none of that.
    let own = daemon.blastbox(["exec", "--timeout", "60s", &id, "--", "/bin/sh", "-c", "kill -9 $$"]).end();
    assert_eq!((own.code, own.err.as_str()), (137, ""));
    let said = daemon.ask(["kill", &id]);
    assert!(
        said.contains("ended by request in ") && said.contains("the owner of the box ended it"),
        "{said}"
    );
    assert!(!said.contains("signal") && !said.contains("before"), "{said}");
    assert_eq!(daemon.stop().code, 0);
}
