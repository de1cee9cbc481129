//! Commands on a terminal.

use blastbox_wire::agent::{Exit, HostFrame, Io};

use crate::rig::{Agent, Said, command};

const TERMINAL: Io = Io::Terminal { rows: 24, columns: 80 };

/// Reads output until this text has come.
fn until(agent: &mut Agent, text: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(text) {
        match agent.next() {
            Said::Output(1, 1, bytes) => heard.push_str(&String::from_utf8(bytes).unwrap()),
            Said::StdinTaken(1, _) | Said::Started(1, _) => {}
            other => panic!("{other:?} after {heard:?}"),
        }
    }
    heard
}

#[test]
fn a_terminal_has_the_size_that_was_asked_for() {
    let mut agent = Agent::begun();
    let size = agent.run(command(1, Io::Terminal { rows: 33, columns: 99 }, &["stty", "size"])).unwrap();
    assert_eq!((size.output.as_str(), size.exit), ("33 99\r\n", Exit::Code(0)));
}

#[test]
fn a_resize_is_seen_and_signalled() {
    let mut agent = Agent::begun();
    let script = "trap 'stty size; exit 6' WINCH; echo ready; while :; do sleep 0.02; done";
    agent.exec(1, TERMINAL, &["sh", "-c", script]);
    until(&mut agent, "ready");
    agent.say(&HostFrame::Resize { exec: 1, rows: 50, columns: 132 });
    until(&mut agent, "50 132");
    assert_eq!(agent.finish(1).exit, Exit::Code(6));
}

#[test]
fn a_resize_of_a_command_without_a_terminal_means_nothing() {
    let mut agent = Agent::begun();
    agent.exec(1, Io::PipesWithStdin, &["cat"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    agent.say(&HostFrame::Resize { exec: 1, rows: 1, columns: 1 });
    agent.say(&HostFrame::StdinEnd { exec: 1 });
    assert_eq!(agent.finish(1).exit, Exit::Code(0));
}

#[test]
fn input_is_echoed_and_its_end_is_typed() {
    let mut agent = Agent::begun();
    agent.exec(1, TERMINAL, &["cat"]);
    agent.say(&HostFrame::Stdin { exec: 1, bytes: b"hello\n".to_vec() });
    let heard = until(&mut agent, "hello\r\nhello\r\n");
    assert_eq!(heard, "hello\r\nhello\r\n");
    agent.say(&HostFrame::StdinEnd { exec: 1 });
    assert_eq!(agent.finish(1).exit, Exit::Code(0));
}

#[test]
fn the_terminal_is_the_sessions_own() {
    let mut agent = Agent::begun();
    let script = "test -t 0 && test -t 1 && test -t 2 && echo spoken >/dev/tty && ps -o tty= -p $$";
    let spoken = agent.run(command(1, TERMINAL, &["sh", "-c", script])).unwrap();
    assert!(spoken.output.starts_with("spoken\r\npts/"), "{spoken:?}");
    agent.exec(1, TERMINAL, &["sleep", "1000"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    // Control-C, as typed.
    agent.say(&HostFrame::Stdin { exec: 1, bytes: vec![3] });
    assert_eq!(agent.finish(1).exit, Exit::Signal(2));
}

#[test]
fn the_last_words_on_a_terminal_are_heard() {
    let mut agent = Agent::begun();
    for _ in 0..20 {
        let spoken = agent.run(command(1, TERMINAL, &["seq", "2000"])).unwrap();
        assert!(spoken.output.ends_with("1999\r\n2000\r\n"), "{}", spoken.output.len());
        assert_eq!(spoken.output.lines().count(), 2000);
    }
}
