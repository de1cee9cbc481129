//! The same for a box that was taken over from a daemon that is gone.

use super::*;

/// A box that was taken over, with these commands.
pub(super) async fn adopted(commands: &[u32]) -> (Rig, oneshot::Receiver<Vec<Stood>>) {
    let (mut rig, mut driver) = parked(Duration::from_secs(60), 1_000_000);
    let (mark, _) = StdStream::pair().unwrap();
    let stood = driver.take_over(mark.into(), 5, commands);
    tokio::spawn(driver.run());
    let resync = HostFrame::Resync { token: 5 }.encode();
    let mut said = vec![0; 1 + resync.len()];
    rig.agent.set_nonblocking(true).unwrap();
    let mut there = 0;
    while there < said.len() {
        // The driver runs when this one waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        there += rig.agent.read(&mut said[there..]).unwrap_or(0);
    }
    rig.agent.set_nonblocking(false).unwrap();
    assert_eq!(said[1..], resync, "first a byte that carries a descriptor");
    (rig, stood)
}

fn stands(exec: u32, printed: u64, ended: bool) -> StandingExec {
    let pid = if ended { 0 } else { 40 + exec };
    StandingExec { exec, pid, ended, printed, unread: 0, takes_input: !ended }
}

#[tokio::test]
async fn what_is_found_before_the_agent_stands_is_where_output_goes_on() {
    let (mut rig, stood) = adopted(&[1, 2, 3, 4]).await;
    // Said to the process before, which may have acted on some of it: what is not known is nobody's.
    let usage = Usage::default();
    rig.say(&AgentFrame::Output { exec: 1, stream: 1, bytes: b"tail" });
    rig.say(&AgentFrame::Output { exec: 9, stream: 1, bytes: b"of one that has ended" });
    rig.say(&AgentFrame::Exited { exec: 9, exit: Exit::Code(0), usage });
    rig.say(&AgentFrame::Pong { token: 3 });
    // How it stood for one that was killed while it took it over.
    rig.say(&AgentFrame::Standing { token: 4, printed: 1, execs: vec![stands(1, 1, false)] });
    rig.say(&AgentFrame::StdinTaken { exec: 1, bytes: 77 });
    rig.say(&AgentFrame::Output { exec: 2, stream: 2, bytes: b"end" });
    rig.say(&AgentFrame::Exited { exec: 2, exit: Exit::Code(5), usage });
    let execs = vec![stands(1, 104, false), stands(2, 13, true), stands(3, 7, true), stands(8, 1, false)];
    rig.say(&AgentFrame::Standing { token: 5, printed: 200, execs });
    rig.live.ready().await.unwrap();
    let stood = stood.await.unwrap();
    let found: Vec<_> = stood.iter().map(|one| (one.exec, one.from, one.takes_input)).collect();
    assert_eq!(found, [(1, 100, true), (2, 10, false), (3, 7, false), (8, 1, true), (4, 0, false)]);
    let mut ends = Vec::new();
    for one in stood {
        let exec = rig.live.found(one);
        loop {
            match exec.next().await {
                ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
                ExecEvent::Output { bytes, .. } => {
                    ends.push((exec.number(), String::from_utf8(bytes).unwrap()));
                    if exec.number() == 1 {
                        break;
                    }
                }
                ExecEvent::Ended(end) => {
                    let exited = matches!(end, ExecEnd::Exited { exit: Exit::Code(5), .. });
                    ends.push((exec.number(), if exited { "5".into() } else { "lost".into() }));
                    break;
                }
            }
            if exec.number() == 8 {
                break;
            }
        }
    }
    let expected = [(1, "tail"), (2, "end"), (2, "5"), (3, "lost"), (4, "lost")];
    assert_eq!(ends, expected.map(|(exec, word)| (exec, word.to_owned())));
}

#[tokio::test]
async fn an_agent_that_stands_wrongly_loses_its_box() {
    for (printed, unread) in [(3, 0), (100, STDIN_WINDOW + 1)] {
        let (mut rig, stood) = adopted(&[1]).await;
        rig.say(&AgentFrame::Output { exec: 1, stream: 1, bytes: b"four" });
        let execs = vec![StandingExec { unread, ..stands(1, printed, false) }];
        rig.say(&AgentFrame::Standing { token: 5, printed, execs });
        assert!(rig.live.ready().await.is_err());
        assert!(stood.await.is_err());
    }
    let mut rig = calm();
    rig.hello();
    rig.live.ready().await.unwrap();
    rig.say(&AgentFrame::Standing { token: 5, printed: 0, execs: Vec::new() });
    rig.live.stopped().await;
}

#[tokio::test]
async fn frames_stay_on_the_channel_until_they_are_whole_and_were_acted_upon() {
    let (mut rig, stood) = adopted(&[1]).await;
    rig.say(&AgentFrame::Standing { token: 5, printed: 0, execs: vec![stands(1, 0, false)] });
    rig.live.ready().await.unwrap();
    let exec = rig.live.found(stood.await.unwrap().remove(0));
    assert_eq!(exec.next().await, ExecEvent::Started { pid: 41 });
    let frame = AgentFrame::Output { exec: 1, stream: 1, bytes: &[b'x'; 60_000] }.encode();
    for cut in [1, 4, 5, 9, 30_000, frame.len() - 1] {
        rig.agent.write_all(&frame[..cut]).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        rig.agent.write_all(&frame[cut..]).unwrap();
        let mut got = 0;
        while got < 60_000 {
            let ExecEvent::Output { bytes, .. } = exec.next().await else { panic!() };
            got += bytes.len();
        }
    }
}
