//! How the agent ends, and that it takes everything with it.

use std::io::Write;
use std::net::Shutdown;

use blastbox_wire::agent::{Exit, HostFrame, Io, OnDenied, VERSION};
use blastbox_wire::limits::STDIN_WINDOW;

use crate::rig::{Agent, Said, command, eventually, is_alive};

/// Starts a command with a child of its own and one that has left its session. Returns all three.
fn family(agent: &mut Agent) -> Vec<u32> {
    let script = "sleep 1000 & setsid sh -c 'echo $$; exec sleep 1000' & wait";
    agent.exec(1, Io::Pipes, &["sh", "-c", &format!("echo $$; {script}")]);
    let Said::Started(1, pid) = agent.next() else { panic!() };
    let mut heard = String::new();
    while heard.lines().count() < 2 {
        let Said::Output(1, 1, bytes) = agent.next() else { panic!() };
        heard.push_str(&String::from_utf8(bytes).unwrap());
    }
    let family: Vec<u32> = heard.lines().map(|line| line.parse().unwrap()).collect();
    assert!(family.contains(&pid));
    assert!(family.iter().all(|&pid| is_alive(pid)));
    family
}

fn all_gone(family: &[u32]) {
    eventually("the family is gone", || !family.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn a_shutdown_ends_everything() {
    let mut agent = Agent::begun();
    let family = family(&mut agent);
    agent.say(&HostFrame::Shutdown);
    assert_eq!(agent.ended().code(), Some(0));
    all_gone(&family);
}

#[test]
fn after_a_farewell_the_agent_ends_with_its_last_command_and_says_everything_before() {
    let mut agent = Agent::begun();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!; read line; echo $line; exit 7";
    agent.exec(1, Io::PipesWithStdin, &["/bin/sh", "-c", script]);
    agent.say(&HostFrame::Farewell);
    let Said::Started(1, _) = agent.next() else { panic!() };
    let Said::Output(1, 1, left) = agent.next() else { panic!() };
    let left: u32 = String::from_utf8(left).unwrap().trim().parse().unwrap();
    // A farewell ends nothing that runs.
    assert!(is_alive(left));
    agent.say(&HostFrame::Stdin { exec: 1, bytes: b"last words\n".to_vec() });
    let finished = agent.finish(1);
    assert_eq!((finished.output.as_str(), finished.exit), ("last words\n", Exit::Code(7)));
    assert_eq!(agent.ended().code(), Some(0));
    all_gone(&[left]);
}

#[test]
fn a_command_after_the_farewell_is_a_breach() {
    let mut agent = Agent::begun();
    let family = family(&mut agent);
    agent.say(&HostFrame::Farewell);
    agent.exec(9, Io::Pipes, &["/bin/true"]);
    assert_eq!(agent.ended().code(), Some(1));
    all_gone(&family);
}

#[test]
fn a_host_that_goes_takes_everything_with_it() {
    let mut agent = Agent::begun();
    let family = family(&mut agent);
    agent.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(agent.ended().code(), Some(3));
    all_gone(&family);
}

#[test]
fn garbage_ends_everything() {
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[130, 0, 0, 0, 1, 0], &[137, 0xff, 0xff, 0xff, 0xff]] {
        let mut agent = Agent::begun();
        let family = family(&mut agent);
        agent.stream.write_all(garbage).unwrap();
        assert_eq!(agent.ended().code(), Some(1));
        all_gone(&family);
        assert!(matches!(agent.try_next(), Ok(Some(Said::Fault(_)) | None)));
    }
}

#[test]
fn a_host_that_breaks_the_protocol_is_not_served() {
    let begin = HostFrame::Begin { version: VERSION, on_denied: OnDenied::Record, heritable: false };
    let early = HostFrame::Exec(command(1, Io::Pipes, &["true"]));
    let over = |length| HostFrame::Stdin { exec: 1, bytes: vec![0; length] };
    let mut agent = Agent::start(None);
    agent.say(&early);
    assert_eq!(agent.ended().code(), Some(1));

    let mut agent = Agent::begun();
    agent.say(&begin);
    assert_eq!(agent.ended().code(), Some(1));

    let mut agent = Agent::begun();
    agent.exec(1, Io::PipesWithStdin, &["sleep", "1000"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    // Sixteen pages fit the pipe and are taken; the rest stays owed.
    for _ in 0..(STDIN_WINDOW / 65_536) + 2 {
        let frame = over(65_536).encode();
        if agent.stream.write_all(&frame).is_err() {
            break;
        }
    }
    assert_eq!(agent.ended().code(), Some(1));
}

#[test]
fn a_begin_of_another_version_is_welcome_and_a_ping_needs_none() {
    let mut agent = Agent::start(None);
    let Said::Hello(_) = agent.next() else { panic!() };
    agent.say(&HostFrame::Ping { token: 9 });
    assert_eq!(agent.next(), Said::Pong(9));
    agent.say(&HostFrame::Begin { version: 999, on_denied: OnDenied::Kill, heritable: false });
    assert_eq!(agent.shell("echo served").output, "served\n");
}

#[test]
fn the_signals_of_others_do_not_disturb_the_agent() {
    let mut agent = Agent::begun();
    let me = rustix::process::Pid::from_child(&agent.child);
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT, rustix::process::Signal::HUP]
    {
        rustix::process::kill_process(me, signal).unwrap();
    }
    assert_eq!(agent.shell("echo still").output, "still\n");
}

#[test]
fn a_frame_in_single_bytes_is_a_frame() {
    let mut agent = Agent::begun();
    let ping = HostFrame::Ping { token: 3 };
    for byte in ping.encode() {
        agent.stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(agent.next(), Said::Pong(3));
}
