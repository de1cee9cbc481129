//! A driver against an agent that is played by the test, honestly and otherwise. No warden, no box.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use blastbox_isolation::Choice;
use blastbox_policy::Refusal;
use blastbox_wire::agent::{
    AgentFrame, BootFacts, Exit, Io, Oddity, Stage, StandingExec, Usage, User, VERSION,
};
use blastbox_wire::limits::{MAX_OUTPUT_CHUNK, OUTPUT_WINDOW, STDIN_WINDOW};
use blastbox_wire::plan::Plan;
use blastbox_wire::warden::{Answer, Spent};
use tokio::sync::Semaphore;

use super::*;
use crate::engine::{Seat, connect};
use crate::link::Link;
use crate::live::{Command, Exec, LiveBox};
use crate::outlet::{ExecEvent, Outlet};
use crate::tools::Offer;

mod adopted;
mod calls;
mod met;
mod pause;
mod rest;

struct Rig {
    live: LiveBox,
    /// The agent's end.
    agent: StdStream,
    link: Arc<Link>,
    id: BoxId,
}

fn rig(timeout: Duration, output: u64) -> Rig {
    let (rig, driver) = parked(timeout, output);
    tokio::spawn(driver.run());
    rig
}

/// A box whose driver does not run yet.
fn parked(timeout: Duration, output: u64) -> (Rig, Driver) {
    let link = Link::unmanned();
    let (ours, agent) = StdStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let id = BoxId::from_random([3; 20]);
    let choice = Choice { considered: Vec::new(), chosen: Err(Refusal::TooFewBoundaries { effective: 0 }) };
    let (live, driver) = connect(Seat {
        id: id.clone(),
        choice,
        house: House::new(Arc::clone(&link)),
        agent: UnixStream::from_std(ours).unwrap(),
        words: link.expect(id.clone()),
        asked: Instant::now(),
        timeout,
        output,
        making: None,
        again: None,
        birth: None,
    });
    (Rig { live, agent, link, id }, driver)
}

fn calm() -> Rig {
    rig(Duration::from_secs(60), 1 << 30)
}

impl Rig {
    fn say(&mut self, frame: &AgentFrame<'_>) {
        self.agent.write_all(&frame.encode()).unwrap();
    }

    fn hello(&mut self) {
        let facts = BootFacts { pid: 1, uid: 0, capabilities: 0, sees_denials: true, kernel: "6.1".into() };
        self.say(&AgentFrame::Hello { version: VERSION, facts });
    }

    async fn exec(&self) -> Exec {
        let (environment, directory) = (Vec::new(), b"/".to_vec());
        let command = Command {
            arguments: vec![b"x".to_vec()],
            environment,
            directory,
            io: Io::PipesWithStdin,
            user: User::Payload,
        };
        let exec = self.live.exec(command).await;
        // The driver takes the order before the agent speaks of it.
        tokio::time::sleep(Duration::from_millis(20)).await;
        exec
    }

    /// The next frame that the host sent, by its kind.
    fn hear(&mut self) -> u8 {
        let mut head = [0_u8; 5];
        self.agent.read_exact(&mut head).unwrap();
        let [kind, a, b, c, d] = head;
        let mut body = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        self.agent.read_exact(&mut body).unwrap();
        kind
    }

    /// The warden says that it is gone.
    async fn gone(self, spent: Spent) -> Ended {
        self.link.hand_out(Answer::Ended { box_id: self.id.clone(), spent });
        self.live.end().await
    }
}

async fn last(exec: &Exec) -> (Vec<u8>, ExecEnd) {
    let mut printed = Vec::new();
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Output { bytes, .. } => printed.extend(bytes),
            ExecEvent::Ended(end) => return (printed, end),
        }
    }
}

fn output(bytes: &[u8]) -> AgentFrame<'_> {
    AgentFrame::Output { exec: 1, stream: 1, bytes }
}

/// The channel is known to be writable, then its other end goes: a write fails, and that there is an end to read is not
/// known before somebody asks the kernel. A driver that only tries again never lets anybody ask.
#[test]
fn a_channel_that_breaks_before_the_first_write_does_not_keep_the_driver_awake() {
    let (to, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
            driver.agent.writable().await.unwrap();
            rig.agent = StdStream::pair().unwrap().0;
            driver.send(&HostFrame::Shutdown);
            tokio::spawn(driver.run());
            tokio::time::sleep(Duration::from_millis(20)).await;
            to.send(rig.gone(Spent::default()).await.ending).unwrap();
        });
    });
    let ending = ended.recv_timeout(Duration::from_secs(20)).expect("the driver sleeps when nothing happens");
    assert_eq!(ending, Some(Ending::Lost(Loss::AgentGone)));
}

/// Half a frame stays on the channel of a box that is left to somebody else, and the kernel rings for it until it is taken.
#[test]
fn half_a_frame_and_then_nobody_does_not_keep_the_driver_awake() {
    let (to, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
            driver.bequeath();
            tokio::spawn(driver.run());
            rig.hello();
            let frame = AgentFrame::Pong { token: 7 }.encode();
            rig.agent.write_all(frame.get(..7).unwrap()).unwrap();
            rig.live.ready().await.unwrap();
            rig.agent = StdStream::pair().unwrap().0;
            // It ends by itself, without anybody asking for that.
            rig.live.stopped().await;
            to.send(rig.gone(Spent::default()).await.ending).unwrap();
        });
    });
    let ending = ended.recv_timeout(Duration::from_secs(20)).expect("a channel that ended is seen to have");
    assert_eq!(ending, Some(Ending::Lost(Loss::AgentGone)));
}

/// Whoever has taken a worker over may talk without end. Others have their turn all the same, and its box ends in time.
#[test]
fn an_agent_that_never_stops_talking_keeps_nobody_else_from_the_thread() {
    for vigil in [None, Some(Vigil::hopeful())] {
        let (to, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut rig, mut driver) = parked(Duration::from_secs(1), 1 << 30);
                driver.vigil = vigil;
                tokio::spawn(driver.run());
                rig.hello();
                rig.live.ready().await.unwrap();
                let word = AgentFrame::Denied { number: 41, count: 1, pid: 7, arguments: [0; 3] }.encode();
                // Word by word, so that the runtime takes each for the last one, and by several, so that there is always a next one.
                for _ in 0..4 {
                    let (mut flood, word) = (rig.agent.try_clone().unwrap(), word.clone());
                    std::thread::spawn(move || while flood.write_all(&word).is_ok() {});
                }
                // From here on somebody stays awake for it, where anybody does.
                let exec = rig.exec().await;
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                rig.live.stopped().await;
                drop(exec);
                to.send(rig.gone(Spent::default()).await.ending).unwrap();
            });
        });
        let ending = ended.recv_timeout(Duration::from_secs(20)).expect("others have their turn");
        assert_eq!(ending, Some(Ending::TimedOut));
    }
}

/// Whether the warden or the agent's channel is first to tell that it went.
#[tokio::test]
async fn an_agent_that_goes_after_its_last_command_was_not_lost() {
    for channel_first in [true, false] {
        let mut rig = calm();
        let (environment, directory) = (Vec::new(), b"/".to_vec());
        let command = Command {
            arguments: vec![b"x".to_vec()],
            environment,
            directory,
            io: Io::Pipes,
            user: User::Payload,
        };
        let exec = rig.live.exec_last(command, Vec::new()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!((rig.hear(), rig.hear()), (130, 144));
        rig.hello();
        rig.say(&AgentFrame::Started { exec: 1, pid: 2 });
        rig.say(&output(b"hi"));
        rig.say(&AgentFrame::Exited { exec: 1, exit: Exit::Code(0), usage: Usage::default() });
        if channel_first {
            rig.agent = StdStream::pair().unwrap().0;
        }
        let (printed, end) = last(&exec).await;
        assert!(matches!(end, ExecEnd::Exited { exit: Exit::Code(0), .. }), "{end:?}");
        assert_eq!(printed, b"hi");
        assert_eq!(rig.gone(Spent::default()).await.ending, None);
    }
}

#[tokio::test]
async fn an_agent_that_goes_before_its_last_command_is_over_was_lost() {
    let mut rig = calm();
    let (environment, directory) = (Vec::new(), b"/".to_vec());
    let command = Command {
        arguments: vec![b"x".to_vec()],
        environment,
        directory,
        io: Io::Pipes,
        user: User::Payload,
    };
    let exec = rig.live.exec_last(command, Vec::new()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.hello();
    rig.say(&AgentFrame::Started { exec: 1, pid: 2 });
    rig.agent = StdStream::pair().unwrap().0;
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(Ending::Lost(Loss::AgentGone)));
    assert_eq!(rig.gone(Spent::default()).await.ending, Some(Ending::Lost(Loss::AgentGone)));
}

#[tokio::test]
async fn an_honest_command_is_heard_to_its_end() {
    let mut rig = calm();
    let exec = rig.exec().await;
    assert_eq!(rig.hear(), 130);
    rig.hello();
    rig.say(&AgentFrame::Started { exec: 1, pid: 2 });
    rig.say(&output(b"hi"));
    rig.say(&AgentFrame::Denied { number: 165, count: 2, pid: 2, arguments: [1, 2, 3] });
    let (oddity, path) = (Oddity::Outside, &b"/etc/\x1b"[..]);
    rig.say(&AgentFrame::Wrote { oddity, number: 257, count: 3, pid: 2, path });
    rig.say(&AgentFrame::Exited { exec: 1, exit: Exit::Code(3), usage: Usage::default() });
    let (printed, end) = last(&exec).await;
    assert_eq!(printed, b"hi");
    assert_eq!(end, ExecEnd::Exited { exit: Exit::Code(3), usage: Usage::default() });
    rig.live.ready().await.unwrap();
    let ended = rig.gone(Spent { cpu_micros: 7, ..Spent::default() }).await;
    assert_eq!((ended.spent.cpu_micros, ended.tally.output.stdout_bytes), (7, 2));
    assert_eq!(ended.tally.denied_calls()[0].count, 2);
    let wrote = &ended.tally.unexpected_writes()[0];
    assert_eq!((wrote.path.as_str(), wrote.reason.as_str(), wrote.count), ("/etc/\\u{1b}", "outside", 3));
}

#[tokio::test]
async fn each_lie_of_the_agent_ends_its_box_with_blame_on_the_guest() {
    let hello_of = |version| AgentFrame::Hello {
        version,
        facts: BootFacts { pid: 1, uid: 0, capabilities: 0, sees_denials: true, kernel: String::new() },
    };
    let lies: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("a frame before the hello", vec![AgentFrame::Started { exec: 1, pid: 2 }.encode()]),
        ("two hellos", vec![hello_of(1).encode(), hello_of(1).encode()]),
        ("a version of the future", vec![hello_of(999).encode()]),
        ("an unknown kind", vec![vec![99, 0, 0, 0, 0]]),
        ("a lying length", vec![vec![4, 0xff, 0xff, 0xff, 0xff]]),
        (
            "a command that is not there",
            vec![hello_of(1).encode(), AgentFrame::Started { exec: 9, pid: 2 }.encode()],
        ),
        (
            "input that was not sent",
            vec![hello_of(1).encode(), AgentFrame::StdinTaken { exec: 1, bytes: 1 }.encode()],
        ),
        ("an answer to nothing", vec![hello_of(1).encode(), AgentFrame::Pong { token: 1 }.encode()]),
        (
            "two starts",
            vec![
                hello_of(1).encode(),
                AgentFrame::Started { exec: 1, pid: 2 }.encode(),
                AgentFrame::Started { exec: 1, pid: 2 }.encode(),
            ],
        ),
        (
            "two ends",
            vec![
                hello_of(1).encode(),
                AgentFrame::NotStarted { exec: 1, stage: Stage::Find, errno: 2 }.encode(),
                AgentFrame::NotStarted { exec: 1, stage: Stage::Find, errno: 2 }.encode(),
            ],
        ),
    ];
    for (what, frames) in lies {
        let mut rig = calm();
        let _exec = rig.exec().await;
        for frame in frames {
            rig.agent.write_all(&frame).unwrap();
        }
        rig.live.stopped().await;
        let ended = rig.gone(Spent::default()).await;
        assert!(matches!(ended.ending, Some(Ending::Lost(Loss::GuestLied(_)))), "{what}: {:?}", ended.ending);
    }
}

#[tokio::test]
async fn a_sign_of_life_is_the_number_that_was_asked_for_and_no_other() {
    for (change, alive) in [(0, true), (1, false)] {
        let mut rig = calm();
        rig.hello();
        let mut agent = rig.agent.try_clone().unwrap();
        let answering = tokio::task::spawn_blocking(move || {
            let mut head = [0_u8; 5];
            agent.read_exact(&mut head).unwrap();
            let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize];
            agent.read_exact(&mut body).unwrap();
            let asked = [&head[..], &body].concat();
            let Some((HostFrame::Ping { token }, _)) = HostFrame::parse(&asked).unwrap() else {
                panic!("not a ping: {asked:?}")
            };
            agent.write_all(&AgentFrame::Pong { token: token ^ change }.encode()).unwrap();
        });
        assert_eq!(rig.live.answers().await, alive);
        answering.await.unwrap();
        assert_eq!(rig.live.is_stopped(), !alive);
    }
}

#[tokio::test]
async fn output_over_the_window_is_a_lie_and_output_within_it_is_not() {
    let mut rig = calm();
    let exec = rig.exec().await;
    rig.hello();
    let chunk = vec![b'x'; MAX_OUTPUT_CHUNK];
    let mut agent = rig.agent.try_clone().unwrap();
    // Nobody takes anything, so nothing is credited.
    let sent = tokio::task::spawn_blocking(move || {
        for _ in 0..17 {
            agent.write_all(&output(&chunk).encode()).ok();
        }
    });
    rig.live.stopped().await;
    sent.await.unwrap();
    let (printed, end) = last(&exec).await;
    assert_eq!(printed.len(), OUTPUT_WINDOW as usize);
    assert!(matches!(end, ExecEnd::BoxEnded(Ending::Lost(Loss::GuestLied(_)))));
}

#[tokio::test]
async fn output_that_is_taken_is_credited() {
    let mut rig = calm();
    let exec = rig.exec().await;
    assert_eq!(rig.hear(), 130);
    rig.hello();
    for _ in 0..2 {
        rig.say(&output(&vec![b'x'; MAX_OUTPUT_CHUNK]));
        while !matches!(exec.next().await, ExecEvent::Output { .. }) {}
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(rig.hear(), 135);
}

#[tokio::test]
async fn the_cap_on_output_delivers_what_is_within_and_ends_the_box() {
    let mut rig = rig(Duration::from_secs(60), 10);
    let exec = rig.exec().await;
    rig.hello();
    rig.say(&output(b"12345"));
    rig.say(&AgentFrame::Output { exec: 1, stream: 2, bytes: b"67890x" });
    let (printed, end) = last(&exec).await;
    assert_eq!((printed.as_slice(), end), (&b"1234567890"[..], ExecEnd::BoxEnded(Ending::OutputSpent)));
    let ended = rig.gone(Spent::default()).await;
    assert!(ended.tally.output.truncated);
    assert_eq!(ended.ending, Some(Ending::OutputSpent));
}

#[tokio::test]
async fn a_box_that_never_speaks_ends_with_its_time() {
    let rig = rig(Duration::from_millis(50), 10);
    let exec = rig.exec().await;
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(Ending::TimedOut));
}

#[tokio::test]
async fn the_last_words_of_a_dead_agent_are_heard() {
    let mut rig = calm();
    let exec = rig.exec().await;
    rig.hello();
    rig.say(&output(b"bye"));
    rig.say(&AgentFrame::Exited { exec: 1, exit: Exit::Code(0), usage: Usage::default() });
    // The warden is faster than the event loop.
    rig.link.hand_out(Answer::Ended { box_id: rig.id.clone(), spent: Spent::default() });
    let (printed, end) = last(&exec).await;
    assert_eq!(printed, b"bye");
    assert!(matches!(end, ExecEnd::Exited { exit: Exit::Code(0), .. }));
}

#[tokio::test]
async fn an_agent_that_goes_away_loses_its_box() {
    let mut rig = calm();
    let exec = rig.exec().await;
    rig.hello();
    rig.agent.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(Ending::Lost(Loss::AgentGone)));
}

#[tokio::test]
async fn a_launch_that_failed_is_told_to_whoever_waits() {
    let mut rig = calm();
    let exec = rig.exec().await;
    rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "mount".into(), errno: 1 });
    let failed = Ending::LaunchFailed { tried: "mount".into(), errno: 1 };
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(failed.clone()));
    assert!(matches!(rig.live.ready().await, Err(crate::CreateError::NotReady(ending)) if ending == failed));
    assert_eq!(rig.live.end().await.ending, Some(failed));
}

#[tokio::test]
async fn a_channel_that_closes_before_its_first_word_waits_for_what_the_warden_knows() {
    let rig = calm();
    let exec = rig.exec().await;
    rig.agent.shutdown(std::net::Shutdown::Both).unwrap();
    // The process is gone before the warden has buried it.
    tokio::time::sleep(Duration::from_millis(20)).await;
    rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "mount".into(), errno: 1 });
    let failed = Ending::LaunchFailed { tried: "mount".into(), errno: 1 };
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(failed));
}

#[tokio::test]
async fn an_agent_that_dies_before_its_first_word_is_lost() {
    let rig = calm();
    let exec = rig.exec().await;
    rig.agent.shutdown(std::net::Shutdown::Both).unwrap();
    let ended = rig.gone(Spent::default()).await;
    assert_eq!(ended.ending, Some(Ending::Lost(Loss::AgentGone)));
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(Ending::Lost(Loss::AgentGone)));
}

#[tokio::test]
async fn input_waits_for_room_and_goes_on_when_the_agent_takes_it() {
    let mut rig = calm();
    let mut exec = rig.exec().await;
    rig.hello();
    let stdin = exec.stdin().unwrap();
    let window = STDIN_WINDOW as usize;
    // Read along, so that only the window holds it up.
    let mut agent = rig.agent.try_clone().unwrap();
    std::thread::spawn(move || io::copy(&mut agent, &mut io::sink()).ok());
    stdin.write(&vec![0; window]).await.unwrap();
    let more = tokio::time::timeout(Duration::from_millis(50), stdin.write(b"x")).await;
    assert!(more.is_err(), "the window is full");
    rig.say(&AgentFrame::StdinTaken { exec: 1, bytes: 5 });
    stdin.write(b"x").await.unwrap();
    rig.say(&AgentFrame::Exited { exec: 1, exit: Exit::Code(0), usage: Usage::default() });
    last(&exec).await;
    assert_eq!(stdin.write(b"x").await, Err(crate::Over));
}

#[tokio::test]
async fn a_dead_warden_is_an_end_and_the_sweep_is_the_last_of_it() {
    let rig = calm();
    let exec = rig.exec().await;
    // The line has no warden: what it does for its orphans is said here by hand.
    rig.link.orphan_for_test();
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(Ending::Lost(Loss::WardenGone)));
    assert_eq!(rig.live.end().await.ending, Some(Ending::Lost(Loss::WardenGone)));
}

#[tokio::test(start_paused = true)]
async fn a_warden_that_never_confirms_is_not_waited_for_for_ever() {
    let rig = calm();
    let ended = rig.live.end().await;
    assert_eq!(ended.ending, Some(Ending::Lost(Loss::NotReleased)));
}

/// A plan that nobody will carry out.
fn plan(id: &BoxId) -> Box<Plan> {
    let policy = blastbox_policy::Profile::Default.draft().unwrap();
    let policy =
        blastbox_policy::Gap::ALL.iter().fold(policy, |draft, gap| draft.accept(*gap)).seal().unwrap();
    let facts = blastbox_isolation::Facts::look();
    let image = blastbox_images::Image::host();
    let request =
        blastbox_isolation::Request { box_id: id.clone(), image: &image, workspace: None, volumes: &[] };
    Box::new(blastbox_isolation::tiers::jail::lower(&policy, &facts, &request).unwrap().plan)
}

#[tokio::test]
async fn a_command_that_was_ordered_before_the_launch_failed_and_not_looked_at_yet_is_ended_too() {
    let (rig, driver) = parked(Duration::from_secs(60), 1 << 30);
    rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "mount".into(), errno: 1 });
    let exec = rig.exec().await;
    tokio::spawn(driver.run());
    let ended = tokio::time::timeout(Duration::from_secs(30), exec.next()).await.unwrap();
    let failed = Ending::LaunchFailed { tried: "mount".into(), errno: 1 };
    assert_eq!(ended, ExecEvent::Ended(ExecEnd::BoxEnded(failed)));
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_failed_in_passing_is_made_again_and_hears_everything_that_was_said() {
    let (mut rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
    driver.again = Some(Launch { plan: plan(&rig.id), directories: Vec::new() });
    driver.send(&HostFrame::Ping { token: 7 });
    tokio::spawn(driver.run());
    let exec = rig.exec().await;
    for _ in 1..crate::state::TRIES {
        rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "fork".to_owned(), errno: 12 });
        let again = async {
            loop {
                let asked = rig.link.asked.lock().unwrap().pop();
                match asked {
                    Some((Ask::Launch(_), mut fds)) => return StdStream::from(fds.remove(0)),
                    Some(_) | None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        rig.agent = tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
        let mut said = vec![0; HostFrame::Ping { token: 7 }.encode().len()];
        rig.agent.read_exact(&mut said).unwrap();
        assert_eq!(said, HostFrame::Ping { token: 7 }.encode());
    }
    rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "fork".to_owned(), errno: 12 });
    let ended = exec.next().await;
    let expected = Ending::LaunchFailed { tried: "fork".to_owned(), errno: 12 };
    assert_eq!(ended, ExecEvent::Ended(ExecEnd::BoxEnded(expected)));
}

#[tokio::test]
async fn a_box_that_waits_to_be_tried_again_ends_at_once_when_it_is_told_to() {
    let (rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
    driver.again = Some(Launch { plan: plan(&rig.id), directories: Vec::new() });
    driver.log.failures = 1;
    tokio::spawn(driver.run());
    rig.link.hand_out(Answer::Failed { box_id: rig.id.clone(), tried: "fork".to_owned(), errno: 11 });
    let ended = rig.live.end().await;
    assert!(!matches!(ended.ending, Some(Ending::Lost(_))), "{:?}", ended.ending);
}

#[tokio::test(start_paused = true)]
async fn the_warden_is_told_every_deadline_and_its_clock_ends_a_box_as_timed_out() {
    let mut rig = calm();
    rig.hello();
    let told = |rig: &Rig| -> Vec<u64> {
        let asked = std::mem::take(&mut *rig.link.asked.lock().unwrap());
        asked
            .iter()
            .filter_map(|(ask, _)| if let Ask::Until { millis, .. } = ask { Some(*millis) } else { None })
            .collect()
    };
    rig.live.ready().await.unwrap();
    assert_eq!(told(&rig), [65_000]);
    rig.live.live_until(Instant::now() + Duration::from_secs(10));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let moved = told(&rig);
    assert!(matches!(moved.as_slice(), [14_900..=15_000]), "{moved:?}");
    // This process was stopped for so long that the warden has ended the box before the driver came to it.
    rig.link.hand_out(Answer::Ended { box_id: rig.id.clone(), spent: Spent::default() });
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(rig.live.end().await.ending, Some(Ending::TimedOut));
}

#[tokio::test]
async fn two_copies_in_a_row_that_never_spoke_spoil_their_template_and_one_does_not() {
    let (source, template) = crate::copies::Source::test();
    // Somebody may have killed the first, and the third.
    for (spoke, spoilt) in [(false, false), (true, false), (false, false), (false, true)] {
        let (mut rig, mut driver) = parked(Duration::from_secs(60), 1 << 30);
        let from = source.clone();
        let (control, _theirs) = StdStream::pair().unwrap();
        let (birth, _) = crate::copies::bear(from, &rig.id, control.as_fd()).unwrap();
        driver.birth = Some(birth);
        tokio::spawn(driver.run());
        if spoke {
            rig.hello();
            rig.live.ready().await.unwrap();
        }
        rig.link.hand_out(Answer::Ended { box_id: rig.id.clone(), spent: Spent::default() });
        rig.live.end().await;
        assert_eq!(template.is_spoilt(), spoilt);
    }
}

/// Its neighbour under the same clock has spoken, and lives as long as it may.
#[tokio::test(start_paused = true)]
async fn a_guest_that_never_speaks_is_lost_long_before_its_life_is_over_and_its_neighbour_is_not() {
    let life = Duration::from_secs(3600);
    let mut neighbour = rig(life, 1 << 30);
    neighbour.hello();
    neighbour.live.ready().await.unwrap();
    let mute = rig(life, 1 << 30);
    // Somebody has asked it for something already: that is no answer.
    let exec = mute.exec().await;
    tokio::time::advance(SILENCE).await;
    let lost = Ending::Lost(Loss::NeverSpoke(SILENCE));
    assert_eq!(last(&exec).await.1, ExecEnd::BoxEnded(lost.clone()));
    let ended = mute.gone(Spent::default()).await;
    assert_eq!(ended.ending, Some(lost.clone()));
    let reason = crate::outcome::outcome(&lost, &Spent::default()).reason.unwrap();
    assert_eq!(reason.code, "agent_silent");
    assert!(reason.message.contains("in 240 s"), "{}", reason.message);
    assert!(!neighbour.live.is_stopped());
}
