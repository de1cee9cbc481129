//! What a daemon does when the host, a guest or a caller fails it: each outcome of the table in `docs/operate.md` but those of disks
//! (`daemon_disks.rs`).
#![expect(clippy::expect_used, clippy::panic, reason = "only tests; one that cannot work must fail at once")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use blastbox_tests::census::Census;
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::{Caller, Held, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(
    a_store_that_is_damaged_is_refused_at_the_start_and_left_as_it_is,
    without_descriptors_callers_get_clear_answers_and_the_daemon_goes_on,
    a_stopped_guest_is_ended_like_any_other,
    a_reader_that_hardly_reads_costs_a_bound_and_loses_nothing,
    a_command_that_is_read_late_loses_nothing_and_one_that_nobody_reads_goes_on,
    half_closed_connections_are_answered_or_closed_and_leave_nothing,
    whoever_follows_events_follows_the_next_daemon_too,
);

/// A request on the daemon's socket, of which the answer is to be read.
fn ask(daemon: &Daemon<'_>, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(daemon.socket()).expect("reach the daemon");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("bound the test");
    stream.write_all(request.as_bytes()).expect("send a request");
    stream
}

fn a_store_that_is_damaged_is_refused_at_the_start_and_left_as_it_is(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    daemon.stop();
    let store = daemon.state().join("boxes.db");
    let mut bytes = std::fs::read(&store).expect("read the store");
    bytes.iter_mut().skip(4096).step_by(2).for_each(|byte| *byte ^= 0xA5);
    std::fs::write(&store, &bytes).expect("damage the store");
    census.accept_files();
    daemon.start(None);
    let ended = daemon.end();
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(ended.err.contains("damaged") && ended.err.contains("move it aside"), "{}", ended.err);
    assert_eq!(std::fs::read(&store).expect("read the store"), bytes);
    std::fs::rename(&store, store.with_extension("aside")).expect("do what it says");
    census.expect_file("state/boxes.aside");
    daemon.start(None);
    assert!(daemon.await_answer());
    daemon.stop();
    census.expect_nothing("a damaged store");
}

fn without_descriptors_callers_get_clear_answers_and_the_daemon_goes_on(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    let script = format!(
        "ulimit -n 64 && exec {} serve --quiet --state-dir {} --socket {}",
        daemon.program().display(),
        daemon.state().display(),
        daemon.socket().display()
    );
    daemon.adopt(caller.program(Path::new("/bin/sh"), ["-c", &script]).start());
    assert!(daemon.await_answer());
    census.accept_files();
    let (mut made, mut refused) = (Vec::new(), None);
    while refused.is_none() && made.len() < 100 {
        let ended = daemon.client(&["create", "--memory", "16MiB"]).end();
        match ended.code {
            0 => made.push(ended.text().trim().to_owned()),
            _ => refused = Some(ended.err),
        }
    }
    let refused = refused.expect("descriptors without end");
    assert!(refused.contains("error: "), "{refused}");
    assert!(!made.is_empty(), "{refused}");
    for name in &made {
        daemon.ask(&["kill", name]);
    }
    let again = daemon.ask(&["create", "--memory", "16MiB"]);
    assert_eq!(daemon.ask(&["exec", &again, "--", "/bin/echo", "on"]), "on");
    daemon.stop();
    census.expect_nothing("no descriptors");
}

fn a_stopped_guest_is_ended_like_any_other(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    census.accept_files();
    let short = daemon.ask(&["create", "--memory", "64MiB", "--life", "2s"]);
    signal(daemon.agent().expect("an agent"), Signal::STOP);
    assert!(wait_until(|| !daemon.ask(&["ps"]).contains(&short)), "its time was over and it is there");
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sleep", "60"]);
    signal(daemon.agent().expect("an agent"), Signal::STOP);
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("a stopped guest");
}

/// Sends something, and sees that it was taken.
#[track_caller]
fn post(daemon: &Daemon<'_>, path: &str, body: &str) {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut answer = [0; 10];
    ask(daemon, &request).read_exact(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 2"), "{path}: {}", String::from_utf8_lossy(&answer));
}

/// The most memory that a process ever had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("look at the daemon");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

fn a_reader_that_hardly_reads_costs_a_bound_and_loses_nothing(caller: &Caller) {
    const LAST: u32 = 16_000_000;
    let expected: String = (1..=LAST).map(|number| format!("{number}\n")).collect();
    assert!(expected.len() > 120 << 20);
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    let made = daemon.ask(&["create", "--memory", "64MiB", "--output-limit", "1GiB"]);
    // Waits for its reader, so that nothing is printed before there is one.
    let body = format!(r#"{{"command": ["/bin/sh", "-c", "read go; seq 1 {LAST}"], "stdin": "stream"}}"#);
    post(&daemon, &format!("/v1/boxes/{made}/execs"), &body);
    let path = format!("/v1/boxes/{made}/execs/1");
    // Without pieces of its own in between: the end of the line is the end of the answer.
    let mut slow = ask(&daemon, &format!("GET {path}/output HTTP/1.0\r\nHost: b\r\n\r\n"));
    let mut byte = [0; 1];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        slow.read_exact(&mut byte).expect("the answer begins");
        head.extend(byte);
    }
    post(&daemon, &format!("{path}/stdin"), "go\n");
    let before = peak(daemon.id());
    let mut heard = Vec::with_capacity(expected.len());
    // Hardly anything, while everything that can be waits for it.
    for _ in 0..100 {
        slow.read_exact(&mut byte).expect("one byte");
        heard.extend(byte);
        std::thread::sleep(Duration::from_millis(50));
        // Somebody else is served meanwhile.
        assert!(daemon.ask(&["ps"]).contains(&made));
    }
    let grown = peak(daemon.id()).saturating_sub(before);
    assert!(grown < 32 << 10, "a slow reader costs {grown} KiB");
    slow.read_to_end(&mut heard).expect("the rest");
    assert_eq!(heard.len(), expected.len());
    assert!(heard == expected.as_bytes(), "it is not what was printed");
    drop(slow);
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("a slow reader");
}

fn a_command_that_is_read_late_loses_nothing_and_one_that_nobody_reads_goes_on(caller: &Caller) {
    const LAST: u32 = 1_200_000;
    let expected: String = (1..=LAST).map(|number| format!("{number}\n")).collect();
    assert!(expected.len() > 8 << 20);
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    let made = daemon.ask(&["create", "--memory", "64MiB", "--output-limit", "1GiB"]);
    let last = LAST.to_string();
    let begin = |hold: &str| {
        let body = format!(r#"{{"command": ["seq", "1", "{last}"], "hold": "{hold}"}}"#);
        post(&daemon, &format!("/v1/boxes/{made}/execs"), &body);
    };
    let running = || daemon.ask(&["ps"]).contains("executing");
    // Long enough to print all of it several times, if it did not wait.
    begin("10m");
    std::thread::sleep(Duration::from_secs(2));
    assert!(running(), "it has not waited for its reader");
    assert!(daemon.client(&["attach", "--no-stdin", &made, "1"]).end().text() == expected, "read late");
    // The command itself says that it will listen.
    assert!(daemon.client(&["exec", &made, "--", "seq", "1", &last]).end().text() == expected, "exec");
    // One that is meant to go on by itself, and one for which nobody came in time.
    for (hold, number) in [("0s", "3"), ("1s", "4")] {
        begin(hold);
        assert!(wait_until(|| !running()), "{hold}: it waits for nobody");
        let late = daemon.client(&["logs", &made, number]).end();
        assert!(expected.ends_with(&late.text()) && late.text().len() < expected.len(), "{hold}");
        assert!(late.err.contains("overwritten"), "{hold}: {}", late.err);
    }
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("late readers");
}

fn half_closed_connections_are_answered_or_closed_and_leave_nothing(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::shipped(caller);
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    daemon.ask(&["ps"]);
    let before = descriptors(daemon.id());
    let whole = "GET /healthz HTTP/1.1\r\nHost: b\r\n\r\n";
    for request in
        [whole, "GET /healthz HTT", "", "POST /v1/run HTTP/1.1\r\nHost: b\r\nContent-Length: 99\r\n\r\n{"]
    {
        let mut stream = ask(&daemon, request);
        stream.shutdown(Shutdown::Write).expect("close one half");
        let mut answer = Vec::new();
        // A reset is an end as well.
        stream.read_to_end(&mut answer).ok();
        let answered = String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 200");
        assert!(
            request != whole || answered || answer.is_empty(),
            "{request:?}: {}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert!(wait_until(|| descriptors(daemon.id()) <= before), "connections are left open");
    daemon.ask(&["ps"]);
    daemon.stop();
    census.expect_nothing("half-closed connections");
}

/// Somebody who follows, and the lines as they come, those about itself too.
fn follow(daemon: &Daemon<'_>, words: &[&str]) -> (Held, mpsc::Receiver<String>) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let null = File::options().read(true).write(true).open("/dev/null").expect("nothing to read");
    let both = writer.try_clone().expect("two ends");
    let streams: [OwnedFd; 3] = [null.into(), writer.into(), both.into()];
    let held = daemon.client(words).start_with(streams);
    let (to, lines) = mpsc::channel();
    // Ends with the one who follows.
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    (held, lines)
}

fn whoever_follows_events_follows_the_next_daemon_too(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    census.accept_files();
    let all: [(&[&str], &str); 2] =
        [(&["events", "--follow", "--json"], "box_created"), (&["net", "--follow"], "TIME")];
    let followers = all.map(|(words, first)| (follow(&daemon, words), first));
    let hear = |lines: &mpsc::Receiver<String>, what: &str| {
        let mut heard = Vec::new();
        // A bound against hangs only.
        while let Ok(line) = lines.recv_timeout(Duration::from_secs(60)) {
            let found = line.contains(what);
            heard.push(line);
            if found {
                return heard;
            }
        }
        panic!("{what} was not heard: {heard:?}");
    };
    let mut before = daemon.ask(&["create", "--memory", "64MiB"]);
    for ((_, lines), first) in &followers {
        hear(lines, first);
    }
    for kind in ["killed", "stopped"] {
        if kind == "killed" {
            daemon.kill()
        } else {
            daemon.stop()
        }
        for ((_, lines), _) in &followers {
            hear(lines, "it is waited for until Ctrl-C");
        }
        daemon.start(None);
        assert!(daemon.await_answer());
        for ((_, lines), _) in &followers {
            let heard = hear(lines, "the daemon is there again");
            assert!(heard.len() < 10, "{heard:?}");
        }
        // From the beginning of the next one: what it told before somebody listened is not missed.
        let made = daemon.ask(&["create", "--memory", "64MiB"]);
        let heard = hear(&followers[0].0.1, &made);
        let ended = heard.iter().any(|line| line.contains(&before) && line.contains("box_ended"));
        assert_eq!(ended, kind == "killed", "{heard:?}");
        before = made;
    }
    for ((held, _), _) in followers {
        held.signal(Signal::INT);
        held.end();
    }
    daemon.stop();
    census.expect_nothing("two that followed");
}
