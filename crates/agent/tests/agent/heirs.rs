//! Another host comes after the first, which was killed in the middle of something.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use blastbox_sys::channel;
use blastbox_wire::agent::{Exit, HostFrame, Io, StandingExec};
use blastbox_wire::limits::OUTPUT_WINDOW;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::rig::{Agent, Said, command};

/// One byte that carries a descriptor, as another host begins.
fn knock(agent: &Agent) {
    let (any, _) = channel::pair().unwrap();
    let any = [any.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&any)));
    assert_eq!(sendmsg(&agent.stream, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL), Ok(1));
}

fn standing(agent: &mut Agent) -> (u64, Vec<StandingExec>, Vec<u8>) {
    let mut before = Vec::new();
    loop {
        match agent.next() {
            Said::Standing(5, printed, execs) => return (printed, execs, before),
            Said::Output(_, _, bytes) => before.extend(bytes),
            Said::Started(..) | Said::StdinTaken(..) | Said::Exited(..) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn half_a_frame_of_the_host_before_was_never_said_wherever_it_was_cut() {
    let frame = HostFrame::Exec(command(9, Io::Pipes, &["/bin/echo", "half"])).encode();
    for cut in [0, 1, 4, 5, 6, frame.len() / 2, frame.len() - 1] {
        let mut agent = Agent::heritable();
        // What was said whole counts, right before the cut too.
        let ping = HostFrame::Ping { token: 7 }.encode();
        agent.stream.write_all(&[&ping, &frame[..cut]].concat()).unwrap();
        knock(&agent);
        agent.say(&HostFrame::Resync { token: 5 });
        assert_eq!(agent.next(), Said::Pong(7), "{cut}");
        assert_eq!(agent.next(), Said::Standing(5, 0, Vec::new()), "{cut}");
        assert_eq!(agent.run(command(1, Io::Pipes, &["/bin/echo", "on"])).unwrap().output, "on\n");
        // Nothing of the half frame is ever started: the next thing that is heard is the answer to this.
        agent.say(&HostFrame::Ping { token: 8 });
        assert_eq!(agent.next(), Said::Pong(8), "{cut}");
    }
}

#[test]
fn every_command_stands_with_what_it_has_printed_and_prints_a_whole_window_again() {
    let mut agent = Agent::heritable();
    agent.exec(1, Io::PipesWithStdin, &["/bin/sh", "-c", "head -c 3000000 /dev/zero; read go; exit 3"]);
    let Said::Started(1, pid) = agent.next() else { panic!() };
    // Its window is spent; nobody reads a part of that.
    let mut first = 0;
    while first < 100_000 {
        let Said::Output(1, 1, bytes) = agent.next() else { panic!() };
        first += bytes.len();
    }
    agent.exec(2, Io::Pipes, &["/bin/true"]);
    loop {
        match agent.next() {
            Said::Exited(2, ..) => break,
            Said::Output(1, 1, bytes) => first += bytes.len(),
            Said::Started(2, _) => {}
            other => panic!("{other:?}"),
        }
    }
    knock(&agent);
    agent.say(&HostFrame::Resync { token: 5 });
    let (printed, execs, rest) = standing(&mut agent);
    let one = execs.iter().find(|exec| exec.exec == 1).copied().unwrap();
    assert_eq!(printed, one.printed);
    assert_eq!((one.pid, one.ended, one.unread, one.takes_input), (pid, false, 0, true));
    assert!(one.printed <= u64::from(OUTPUT_WINDOW), "{one:?}");
    assert!(rest.len() as u64 + first as u64 <= one.printed);
    assert!(execs.iter().any(|exec| exec.exec == 2 && exec.ended), "{execs:?}");
    // A whole window, without any credit.
    let mut more = 0;
    while more < OUTPUT_WINDOW as usize {
        let Said::Output(1, 1, bytes) = agent.next() else { panic!() };
        more += bytes.len();
    }
    assert_eq!(more, OUTPUT_WINDOW as usize);
    agent.say(&HostFrame::Credit { exec: 1, bytes: 4_000_000 });
    agent.say(&HostFrame::Stdin { exec: 1, bytes: b"go\n".to_vec() });
    assert_eq!(agent.finish(1).exit, Exit::Code(3));
}
