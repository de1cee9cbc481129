//! Several readers of one tape, slow, late and patient ones.

use super::*;

const ENDED: ExecEnded = ExecEnded::Exited { code: 0 };

#[tokio::test]
async fn several_readers_hear_the_same_also_those_that_come_late() {
    let tape = Arc::new(Tape::default());
    let mut early = tape.reader(None);
    tape.started(7);
    tape.write(Stream::Stdout, b"one ".to_vec());
    assert_eq!(early.next().await, Some((1, TapeEvent::Started { pid: 7 })));
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"one "[..].into() };
    assert_eq!(early.next().await, Some((5, heard)));
    tape.write(Stream::Stdout, b"two".to_vec());
    tape.end(ENDED, false);
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"two"[..].into() };
    assert_eq!(early.next().await, Some((8, heard)));
    assert_eq!(early.next().await, Some((9, TapeEvent::Ended { ended: ENDED, timed_out: false })));
    assert_eq!(early.next().await, None);
    let mut late = tape.reader(Some(3));
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"e two"[..].into() };
    assert_eq!(late.next().await, Some((8, heard)));
    assert_eq!(tape.reader(Some(u64::MAX)).next().await, None, "a place of the future is the end");
}

#[tokio::test]
async fn a_command_that_never_started_has_an_end_and_nothing_else() {
    let tape = Arc::new(Tape::default());
    tape.end(ENDED, false);
    let mut reader = tape.reader(None);
    assert_eq!(reader.next().await, Some((2, TapeEvent::Ended { ended: ENDED, timed_out: false })));
    assert_eq!(reader.next().await, None);
}

#[tokio::test]
async fn a_slow_reader_loses_the_oldest_and_is_told_how_much() {
    let tape = Arc::new(Tape::default());
    let mut slow = tape.reader(None);
    tape.started(7);
    for _ in 0..40 {
        tape.room(64 * 1024).await;
        tape.write(Stream::Stdout, vec![b'x'; 64 * 1024]);
    }
    assert!(tape.cost() <= RING);
    assert_eq!(slow.next().await, Some((1, TapeEvent::Started { pid: 7 })));
    let Some((_, TapeEvent::Dropped { bytes })) = slow.next().await else { panic!("nothing was dropped") };
    assert_eq!(bytes, 25 * 64 * 1024);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_holds_back_is_waited_for_until_it_goes_away() {
    let tape = Arc::new(Tape::default());
    let mut reader = tape.reader(None).hold_back();
    let wait = std::time::Duration::from_secs(1);
    while tokio::time::timeout(wait, tape.room(64 * 1024)).await.is_ok() {
        tape.write(Stream::Stdout, vec![b'x'; 64 * 1024]);
    }
    reader.next().await.unwrap();
    assert!(tokio::time::timeout(wait, tape.room(64 * 1024)).await.is_ok(), "one was read, one has room");
    tape.write(Stream::Stdout, vec![b'x'; 64 * 1024]);
    assert!(tokio::time::timeout(wait, tape.room(64 * 1024)).await.is_err());
    drop(reader);
    assert!(tokio::time::timeout(wait, tape.room(64 * 1024)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_tape_that_expects_a_reader_loses_nothing_until_it_has_come_or_is_let_go() {
    let wait = std::time::Duration::from_secs(1);
    let fill = async |tape: &Tape| {
        let mut pieces = 0;
        while pieces < 40 && tokio::time::timeout(wait, tape.room(64 * 1024)).await.is_ok() {
            tape.write(Stream::Stdout, vec![b'x'; 64 * 1024]);
            pieces += 1;
        }
        pieces
    };
    let tape = Arc::new(Tape::expectant());
    assert_eq!(fill(&tape).await, 15, "more would overwrite something");
    // The first reader takes the place over, and gives it back when it goes.
    let mut first = tape.reader(None).hold_back();
    assert_eq!((fill(&tape).await, first.missed()), (0, 0));
    assert!(matches!(first.next().await, Some((_, TapeEvent::Output { .. }))));
    assert_eq!(fill(&tape).await, 1);
    drop(first);
    assert_eq!(fill(&tape).await, 40);
    // Nobody came, or one who minds no loss.
    for let_go in [Tape::let_go as fn(&Tape), |_| {}] {
        let tape = Arc::new(Tape::expectant());
        assert_eq!(fill(&tape).await, 15);
        let_go(&tape);
        let reader = tape.reader(None).let_pass();
        assert_eq!(fill(&tape).await, 40);
        assert!(reader.missed() > 0);
    }
}

#[tokio::test]
async fn a_tape_that_was_begun_late_says_how_much_came_before_it() {
    let tape = Arc::new(Tape::begun_at(100));
    let mut reader = tape.reader(None);
    assert_eq!(reader.next().await, Some((101, TapeEvent::Dropped { bytes: 100 })));
    tape.started(7);
    tape.write(Stream::Stdout, b"on".to_vec());
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"on"[..].into() };
    assert_eq!(reader.next().await, Some((103, heard.clone())));
    // Whoever comes back to where it was misses nothing, or exactly what it had not read.
    assert_eq!(tape.reader(Some(101)).next().await, Some((103, heard)));
    let mut behind = tape.reader(Some(91));
    assert_eq!(behind.next().await, Some((101, TapeEvent::Dropped { bytes: 10 })));
    // One that printed nothing more ends all the same.
    let silent = Arc::new(Tape::begun_at(5));
    silent.end(ENDED, false);
    let mut reader = silent.reader(None);
    assert_eq!(reader.next().await, Some((6, TapeEvent::Dropped { bytes: 5 })));
    assert_eq!(reader.next().await, Some((7, TapeEvent::Ended { ended: ENDED, timed_out: false })));
}
