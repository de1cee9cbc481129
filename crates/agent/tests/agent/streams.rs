//! Output and input: everything arrives, in bounded memory, and nobody holds up anybody else.

use std::time::Duration;

use blastbox_wire::agent::{Exit, HostFrame, Io};
use blastbox_wire::limits::{MAX_STDIN_CHUNK, OUTPUT_WINDOW, STDIN_WINDOW};

use crate::rig::{Agent, Said, command};

#[test]
fn a_ping_is_answered() {
    let mut agent = Agent::begun();
    agent.say(&HostFrame::Ping { token: 42 });
    assert_eq!(agent.next(), Said::Pong(42));
}

#[test]
fn input_larger_than_its_window_comes_back_whole() {
    let mut agent = Agent::begun();
    agent.exec(1, Io::PipesWithStdin, &["cat"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    let sent: Vec<u8> = (0..1024 * 1024_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    let (mut rest, mut window, mut back) = (&sent[..], STDIN_WINDOW as usize, Vec::new());
    let mut turns = 0;
    loop {
        while window > 0 && !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(window).min(MAX_STDIN_CHUNK));
            agent.say(&HostFrame::Stdin { exec: 1, bytes: piece.to_vec() });
            (rest, window) = (later, window - piece.len());
            if rest.is_empty() {
                agent.say(&HostFrame::StdinEnd { exec: 1 });
            }
        }
        match agent.next() {
            Said::StdinTaken(1, bytes) => window += bytes as usize,
            Said::Output(1, 1, bytes) => {
                // A slow reader.
                turns += 1;
                if turns % 8 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                agent.say(&HostFrame::Credit { exec: 1, bytes: u32::try_from(bytes.len()).unwrap() });
                back.extend(bytes);
            }
            Said::Exited(1, exit, _) => {
                assert_eq!(exit, Exit::Code(0));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(window, STDIN_WINDOW as usize);
    assert!(back == sent);
}

#[test]
fn input_to_a_command_that_does_not_read_is_taken_when_it_ends() {
    let mut agent = Agent::begun();
    agent.exec(1, Io::PipesWithStdin, &["sh", "-c", "exec 0<&-; echo closed; sleep 0.2"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    let Said::Output(1, 1, _) = agent.next() else { panic!() };
    agent.say(&HostFrame::Stdin { exec: 1, bytes: vec![b'x'; 1000] });
    assert_eq!(agent.next(), Said::StdinTaken(1, 1000));
    assert_eq!(agent.finish(1).exit, Exit::Code(0));
    agent.say(&HostFrame::Stdin { exec: 1, bytes: vec![b'x'; 1000] });
    agent.say(&HostFrame::Ping { token: 1 });
    assert_eq!(agent.next(), Said::Pong(1));
}

#[test]
fn a_command_without_credit_waits_and_its_neighbour_does_not() {
    let mut agent = Agent::begun();
    let mut loud = command(1, Io::Pipes, &["head", "-c", "3000000", "/dev/zero"]);
    loud.window = 100_000;
    agent.say(&HostFrame::Exec(loud));
    let Said::Started(1, _) = agent.next() else { panic!() };
    let mut heard = 0;
    while heard < 100_000 {
        let Said::Output(1, 1, bytes) = agent.next() else { panic!() };
        heard += bytes.len();
    }
    assert_eq!(heard, 100_000);
    for number in 2..12 {
        let spec = command(number, Io::Pipes, &["head", "-c", "500000", "/dev/zero"]);
        assert_eq!(agent.run(spec).unwrap().output.len(), 500_000);
    }
    agent.say(&HostFrame::Credit { exec: 1, bytes: u32::MAX });
    agent.say(&HostFrame::Credit { exec: 1, bytes: u32::MAX });
    assert_eq!(agent.finish(1).output.len() + heard, 3_000_000);
}

#[test]
fn a_command_that_ended_without_credit_is_reported_once_its_output_is_taken() {
    let mut agent = Agent::begun();
    let mut spec = command(1, Io::Pipes, &["sh", "-c", "echo 0123456789; echo error >&2"]);
    spec.window = 4;
    agent.say(&HostFrame::Exec(spec));
    let Said::Started(1, _) = agent.next() else { panic!() };
    let Said::Output(1, 1, first) = agent.next() else { panic!() };
    assert_eq!(first, b"0123");
    std::thread::sleep(Duration::from_millis(50));
    agent.say(&HostFrame::Ping { token: 1 });
    assert_eq!(agent.next(), Said::Pong(1));
    agent.say(&HostFrame::Credit { exec: 1, bytes: 100 });
    let rest = agent.finish(1);
    assert_eq!(
        (rest.output.as_str(), rest.error.as_str(), rest.exit),
        ("456789\n", "error\n", Exit::Code(0))
    );
}

#[test]
fn an_end_without_output_needs_no_credit() {
    let mut agent = Agent::begun();
    let mut spec = command(1, Io::Pipes, &["true"]);
    spec.window = 0;
    assert_eq!(agent.run(spec).unwrap().exit, Exit::Code(0));
}

#[test]
fn much_output_arrives_in_full_and_in_order() {
    let mut agent = Agent::begun();
    let much = 50 * 1024 * 1024;
    agent.exec(1, Io::Pipes, &["sh", "-c", "yes 0123456789abcde | head -c 52428800"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    let (mut heard, mut line) = (0_usize, b"0123456789abcde\n".iter().cycle());
    loop {
        match agent.next() {
            Said::Output(1, 1, bytes) => {
                assert!(bytes.iter().all(|byte| Some(byte) == line.next()));
                heard += bytes.len();
                agent.say(&HostFrame::Credit { exec: 1, bytes: u32::try_from(bytes.len()).unwrap() });
            }
            Said::Exited(1, Exit::Code(0), _) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, much);
}

#[test]
fn a_host_that_does_not_read_does_not_make_the_agent_large() {
    let mut agent = Agent::begun();
    for number in 0..8 {
        let mut spec = command(number, Io::Pipes, &["cat", "/dev/zero"]);
        spec.window = u32::MAX;
        agent.say(&HostFrame::Exec(spec));
    }
    std::thread::sleep(Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kilobytes: u32 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 2048, "{kilobytes} kB");
}

#[test]
fn a_process_left_behind_loses_its_reader_and_does_not_hold_up_the_end() {
    let mut agent = Agent::begun();
    let script = "(while echo noise; do :; done) & echo begun; sleep 0.05; exit 4";
    let finished = agent.shell(script);
    assert_eq!(finished.exit, Exit::Code(4));
    assert!(finished.output.contains("begun\n"));
    assert!(finished.output.len() < 100 * OUTPUT_WINDOW as usize);
    agent.say(&HostFrame::Ping { token: 5 });
    assert_eq!(agent.next(), Said::Pong(5));
}
