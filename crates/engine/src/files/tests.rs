//! Files of a box whose agent is played by the test, honestly and otherwise. No warden, no box.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_isolation::Choice;
use blastbox_policy::Refusal;
use blastbox_wire::BoxId;
use blastbox_wire::agent::{
    AgentFrame, BootFacts, Change, ChangeKind, EntryKind, FileAsk, FileEnd, FileSay, HostFrame, VERSION,
};
use blastbox_wire::limits::{FILE_WINDOW, MAX_LEFT_OUT};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::engine::{House, Seat, connect};
use crate::link::Link;
use crate::outcome::{Ending, Loss};

struct Rig {
    live: LiveBox,
    agent: StdStream,
}

fn rig() -> Rig {
    let link = Link::unmanned();
    let (ours, mut agent) = StdStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    agent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let id = BoxId::from_random([4; 20]);
    let choice = Choice { considered: Vec::new(), chosen: Err(Refusal::TooFewBoundaries { effective: 0 }) };
    let (live, driver) = connect(Seat {
        id: id.clone(),
        choice,
        house: House::new(Arc::clone(&link)),
        agent: UnixStream::from_std(ours).unwrap(),
        words: link.expect(id),
        asked: Instant::now(),
        timeout: Duration::from_secs(60),
        output: 1 << 30,
        making: None,
        again: None,
        birth: None,
    });
    tokio::spawn(driver.run());
    let facts = BootFacts { pid: 1, uid: 0, capabilities: 0, sees_denials: true, kernel: "6.1".into() };
    agent.write_all(&AgentFrame::Hello { version: VERSION, facts }.encode()).unwrap();
    Rig { live, agent }
}

/// The agent's hand: plays on a thread of its own, as a real one would.
fn play(agent: &StdStream, script: impl FnOnce(&mut Hand) + Send + 'static) -> std::thread::JoinHandle<()> {
    let mut hand = Hand { agent: agent.try_clone().unwrap(), heard: Vec::new() };
    std::thread::spawn(move || script(&mut hand))
}

struct Hand {
    agent: StdStream,
    heard: Vec<u8>,
}

impl Hand {
    fn hear(&mut self) -> (u32, FileAsk) {
        loop {
            if let Some((frame, taken)) = HostFrame::parse(&self.heard).unwrap() {
                self.heard.drain(..taken);
                let HostFrame::File { op, ask } = frame else { panic!("{frame:?}") };
                return (op, ask);
            }
            let mut bytes = [0; 65_536];
            let got = self.agent.read(&mut bytes).unwrap();
            assert!(got > 0, "the host has gone");
            self.heard.extend_from_slice(&bytes[..got]);
        }
    }
    fn say(&mut self, op: u32, say: FileSay<'_>) {
        self.agent.write_all(&AgentFrame::File { op, say }.encode()).unwrap();
    }
    fn finish(&mut self, op: u32, amount: u64) {
        self.say(
            op,
            FileSay::Done { end: FileEnd::Finished { amount, skipped: 0, coverage: Coverage::Whole } },
        );
    }
}

fn entry(path: &[u8], size: u64) -> Entry {
    Entry {
        path: path.to_vec(),
        kind: EntryKind::File,
        size,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        modified_nanos: 0,
        link: None,
    }
}

async fn all(mut download: Download) -> Result<u64, FileError> {
    let mut got = 0;
    while let Some(bytes) = download.next().await? {
        got += bytes.len() as u64;
    }
    assert_eq!(download.summary().await?.amount, got);
    Ok(got)
}

#[tokio::test]
async fn a_long_file_is_read_with_credit() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, ask) = hand.hear();
        let FileAsk::Begin { window, act: FileAct::Read { .. } } = ask else { panic!("{ask:?}") };
        let (mut window, size) = (u64::from(window), 5_000_000_u64);
        hand.say(op, FileSay::Begun { entry: entry(b"/lie/about/the/path", size) });
        let mut left = size;
        while left > 0 {
            while window < 50_000 {
                let (_, FileAsk::Credit { bytes }) = hand.hear() else { panic!("no credit") };
                window += u64::from(bytes);
            }
            let now = left.min(50_000);
            hand.say(op, FileSay::Chunk { bytes: &vec![7; usize::try_from(now).unwrap()] });
            (left, window) = (left - now, window - now);
        }
        hand.finish(op, size);
    });
    let download = rig.live.files().read(b"/file", Slice::WHOLE).await.unwrap();
    assert_eq!(download.entry().map(|entry| entry.path.as_slice()), Some(&b"/file"[..]));
    assert_eq!(all(download).await, Ok(5_000_000));
    agent.join().unwrap();
}

#[tokio::test]
async fn a_long_file_is_written_as_fast_as_it_is_taken() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, ask) = hand.hear();
        assert!(matches!(ask, FileAsk::Begin { act: FileAct::Write { .. }, .. }));
        let mut got = 0;
        loop {
            match hand.hear().1 {
                FileAsk::Data { bytes } => {
                    got += bytes.len() as u64;
                    hand.say(op, FileSay::Taken { bytes: u32::try_from(bytes.len()).unwrap() });
                }
                FileAsk::DataEnd => break hand.finish(op, got),
                other => panic!("{other:?}"),
            }
        }
    });
    let mut upload = rig.live.files().write(b"x", 0o644, Writing::Replace, Parents::Make).await.unwrap();
    upload.write(&vec![1; 3_000_000]).await.unwrap();
    assert_eq!(upload.finish().await.unwrap().amount, 3_000_000);
    agent.join().unwrap();
}

#[tokio::test]
async fn an_upload_that_fails_says_why_and_not_that_it_is_over() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Done { end: FileEnd::Failed { fault: Fault::NoSpace, errno: 28 } });
    });
    let mut upload = rig.live.files().write(b"x", 0o644, Writing::New, Parents::Make).await.unwrap();
    let full = loop {
        match upload.write(&[1; 65_536]).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full, FileError::Failed { fault: Fault::NoSpace, errno: 28 });
    assert_eq!(upload.finish().await.unwrap_err().fault(), Some(Fault::NoSpace));
    agent.join().unwrap();
}

#[tokio::test]
async fn whoever_lets_go_stops_the_agent() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Begun { entry: entry(b"f", u64::MAX) });
        // In either order: the bell and the next question go different ways.
        let (first, second) = (hand.hear(), hand.hear());
        let next = if first == (op, FileAsk::Stop) { second.0 } else { first.0 };
        assert!(next != op);
        // What was on its way is no lie.
        hand.say(op, FileSay::Chunk { bytes: b"late" });
        hand.say(op, FileSay::Done { end: FileEnd::Failed { fault: Fault::Stopped, errno: 125 } });
        hand.say(next, FileSay::Entries { entries: vec![entry(b"f", 1)] });
        hand.finish(next, 1);
    });
    drop(rig.live.files().read(b"f", Slice::WHOLE).await.unwrap());
    assert_eq!(rig.live.files().stat(b"/f", Links::Keep).await.unwrap().path, b"/f");
    agent.join().unwrap();
}

#[tokio::test]
async fn changes_are_told_until_the_directory_is_gone() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Begun { entry: entry(b"d", 0) });
        let change = |kind, path: &[u8]| Change { kind, cookie: 0, path: path.to_vec() };
        hand.say(op, FileSay::Changes { changes: vec![change(ChangeKind::Created, b"a/b")] });
        hand.say(op, FileSay::Changes { changes: vec![change(ChangeKind::Lost, b"")] });
        hand.finish(op, 2);
    });
    let mut watching = rig.live.files().watch(b"d", Depth::All).await.unwrap();
    assert_eq!(watching.next().await.unwrap().unwrap()[0].path, b"a/b");
    assert_eq!(watching.next().await.unwrap().unwrap()[0].kind, ChangeKind::Lost);
    assert_eq!(watching.next().await.unwrap(), None);
    agent.join().unwrap();
}

/// A script of the agent after it has heard the question.
type Lie = fn(&mut Hand, u32);

#[tokio::test]
async fn a_lie_about_a_file_ends_the_box() {
    let about_reads: [(&str, Lie); 7] = [
        ("another operation", |hand, op| hand.say(op + 7, FileSay::Begun { entry: entry(b"f", 1) })),
        ("bytes before the beginning", |hand, op| hand.say(op, FileSay::Chunk { bytes: b"x" })),
        ("more than announced", |hand, op| {
            hand.say(op, FileSay::Begun { entry: entry(b"f", 3) });
            hand.say(op, FileSay::Chunk { bytes: b"four" });
        }),
        ("an empty piece", |hand, op| {
            hand.say(op, FileSay::Begun { entry: entry(b"f", 3) });
            hand.say(op, FileSay::Chunk { bytes: b"" });
        }),
        ("more than the window", |hand, op| {
            hand.say(op, FileSay::Begun { entry: entry(b"f", u64::MAX) });
            for _ in 0..=FILE_WINDOW / 65_536 {
                hand.say(op, FileSay::Chunk { bytes: &[0; 65_536] });
            }
        }),
        ("an end that does not add up", |hand, op| {
            hand.say(op, FileSay::Begun { entry: entry(b"f", 3) });
            hand.finish(op, 3);
        }),
        ("entries of a file", |hand, op| hand.say(op, FileSay::Entries { entries: vec![entry(b"f", 1)] })),
    ];
    for (what, lie) in about_reads {
        let rig = rig();
        let agent = play(&rig.agent, move |hand| {
            let (op, _) = hand.hear();
            lie(hand, op);
        });
        let outcome = match rig.live.files().read(b"f", Slice::WHOLE).await {
            Ok(download) => {
                // Not consumed until it is over: only then is the window one.
                timeout(Duration::from_secs(10), rig.live.stopped()).await.unwrap();
                all(download).await.map(drop)
            }
            Err(error) => Err(error),
        };
        assert!(
            matches!(&outcome, Err(FileError::BoxEnded(Ending::Lost(Loss::GuestLied(_))))),
            "{what}: {outcome:?}"
        );
        agent.join().unwrap();
    }
}

#[tokio::test]
async fn a_list_that_leads_elsewhere_ends_the_box() {
    let lies: [&[u8]; 6] = [b"../up", b"/etc/passwd", b"a/../../b", b"", b"a//b", b"a\0b"];
    for path in lies {
        let rig = rig();
        let agent = play(&rig.agent, move |hand| {
            let (op, _) = hand.hear();
            hand.say(op, FileSay::Entries { entries: vec![entry(path, 1)] });
        });
        let listing = rig.live.files().list(b"d", 1, 100).await.unwrap();
        let error = listing.collect().await.unwrap_err();
        assert!(matches!(error, FileError::BoxEnded(Ending::Lost(Loss::GuestLied(_)))), "{path:?} {error:?}");
        agent.join().unwrap();
    }
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Entries { entries: vec![entry(b"a", 1), entry(b"line\nbreak", 1)] });
        hand.finish(op, 2);
    });
    let (entries, summary) = rig.live.files().list(b"d", 1, 2).await.unwrap().collect().await.unwrap();
    assert_eq!((entries.len(), summary.amount), (2, 2));
    agent.join().unwrap();
}

#[tokio::test]
async fn what_an_archive_leaves_out_is_told_behind_it_and_is_bounded() {
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Chunk { bytes: b"archive" });
        hand.say(op, FileSay::Entries { entries: vec![entry(b"d/secret", 1)] });
        let end = FileEnd::Finished { amount: 7, skipped: 5, coverage: Coverage::Whole };
        hand.say(op, FileSay::Done { end });
    });
    let mut download = rig.live.files().tar_out(b"d").await.unwrap();
    assert_eq!(download.next().await.unwrap().unwrap(), b"archive");
    assert_eq!(download.next().await.unwrap(), None);
    assert_eq!(download.left_out(), [entry(b"d/secret", 1)]);
    assert_eq!(download.summary().await.unwrap().skipped, 5);
    agent.join().unwrap();
    let lies: [(&str, Lie); 3] = [
        ("more names than are taken", |hand, op| {
            hand.say(op, FileSay::Entries { entries: vec![entry(b"a", 1); MAX_LEFT_OUT + 1] });
        }),
        ("a name that leads elsewhere", |hand, op| {
            hand.say(op, FileSay::Entries { entries: vec![entry(b"../a", 1)] });
        }),
        ("bytes behind the end", |hand, op| {
            hand.say(op, FileSay::Entries { entries: vec![entry(b"a", 1)] });
            hand.say(op, FileSay::Chunk { bytes: b"more" });
        }),
    ];
    for (what, lie) in lies {
        let rig = self::rig();
        let agent = play(&rig.agent, move |hand| {
            let (op, _) = hand.hear();
            lie(hand, op);
        });
        let error = all(rig.live.files().tar_out(b"d").await.unwrap()).await.unwrap_err();
        assert!(matches!(error, FileError::BoxEnded(Ending::Lost(Loss::GuestLied(_)))), "{what}: {error:?}");
        agent.join().unwrap();
    }
}

#[tokio::test]
async fn lies_about_uploads_and_lists_end_the_box() {
    let lies: [(&str, Lie); 3] = [
        ("done before all was sent", |hand, op| hand.finish(op, 0)),
        ("more taken than was sent", |hand, op| hand.say(op, FileSay::Taken { bytes: 1 })),
        ("a beginning", |hand, op| hand.say(op, FileSay::Begun { entry: entry(b"f", 1) })),
    ];
    for (what, lie) in lies {
        let rig = rig();
        let agent = play(&rig.agent, move |hand| {
            let (op, _) = hand.hear();
            lie(hand, op);
        });
        let upload = rig.live.files().write(b"f", 0o644, Writing::New, Parents::Make).await.unwrap();
        timeout(Duration::from_secs(10), rig.live.stopped()).await.unwrap();
        let error = upload.finish().await.unwrap_err();
        assert!(matches!(error, FileError::BoxEnded(Ending::Lost(Loss::GuestLied(_)))), "{what} {error:?}");
        agent.join().unwrap();
    }
    let rig = rig();
    let agent = play(&rig.agent, |hand| {
        let (op, _) = hand.hear();
        hand.say(op, FileSay::Entries { entries: vec![entry(b"a", 1), entry(b"b", 1)] });
    });
    let error = rig.live.files().list(b"d", 1, 1).await.unwrap().collect().await.unwrap_err();
    assert!(matches!(error, FileError::BoxEnded(_)), "more than was asked for: {error:?}");
    agent.join().unwrap();
}

#[tokio::test]
async fn too_long_a_path_never_reaches_the_agent() {
    let rig = rig();
    let long = vec![b'x'; MAX_PATH + 1];
    let files = rig.live.files();
    let refused = FileError::Failed { fault: Fault::NameTooLong, errno: 36 };
    assert_eq!(files.stat(&long, Links::Keep).await, Err(refused.clone()));
    assert_eq!(files.rename(b"a", &long, Target::Replace, Parents::Make).await, Err(refused));
}

#[tokio::test]
async fn the_end_of_the_box_is_the_end_of_its_operations() {
    let Rig { live, agent } = rig();
    let hand = play(&agent, |hand| {
        hand.hear();
    });
    let mut upload = live.files().write(b"f", 0o644, Writing::New, Parents::Make).await.unwrap();
    // The driver lives on this thread: nothing may wait here for its words.
    while !hand.is_finished() {
        sleep(Duration::from_millis(1)).await;
    }
    agent.shutdown(std::net::Shutdown::Both).unwrap();
    drop(agent);
    timeout(Duration::from_secs(10), live.stopped()).await.unwrap();
    let ended = upload.write(&[0; 100]).await.unwrap_err();
    assert_eq!(ended, FileError::BoxEnded(Ending::Lost(Loss::AgentGone)));
    let late = live.files().stat(b"f", Links::Keep).await.unwrap_err();
    assert!(matches!(late, FileError::BoxEnded(_)));
}
