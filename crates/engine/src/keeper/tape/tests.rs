//! The tape as properties: replay is exact from every place, and costs stay bounded.

use proptest::prelude::*;

use super::*;

fn piece() -> impl Strategy<Value = (Stream, Vec<u8>)> {
    (prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)], prop::collection::vec(any::<u8>(), 0..300))
}

/// Reads from a place to the end: what was dropped, what was printed to each stream, and the places.
fn replay(ring: &Ring, mut place: u64) -> (u64, Vec<(Stream, u8)>, Vec<u64>) {
    let (mut dropped, mut printed, mut places) = (0, Vec::new(), Vec::new());
    while let Some((next, event)) = ring.after(place) {
        assert!(next > place, "places only grow");
        place = next;
        places.push(place);
        match event {
            TapeEvent::Started { pid } => assert_eq!((pid, place), (7, 1)),
            TapeEvent::Output { stream, bytes } => {
                printed.extend(bytes.into_iter().map(|byte| (stream, byte)))
            }
            TapeEvent::Dropped { bytes } => dropped += bytes,
            TapeEvent::Ended(_) => assert_eq!(place, ring.end_place()),
        }
    }
    (dropped, printed, places)
}

const ENDED: ExecEnded = ExecEnded::Exited { code: 0 };

proptest! {
    #[test]
    fn replay_is_exact_from_every_place(
        pieces in prop::collection::vec(piece(), 0..60),
        room in 1_usize..12_000,
        after in 0_u64..10_000,
    ) {
        let mut ring = Ring::new(room);
        ring.started = Some(7);
        let mut all = Vec::new();
        for (stream, bytes) in &pieces {
            ring.push(*stream, bytes.clone());
            all.extend(bytes.iter().map(|byte| (*stream, *byte)));
            let largest = ring.pieces.back().map_or(0, |piece| piece.bytes.len() + PIECE);
            prop_assert!(ring.cost <= room.max(largest));
            let cost: usize = ring.pieces.iter().map(|piece| piece.bytes.len() + PIECE).sum();
            prop_assert_eq!(ring.cost, cost);
        }
        ring.ended = Some(ENDED);
        let after = after.min(ring.newest());
        let (dropped, printed, places) = replay(&ring, after);
        let seen = usize::try_from(after.saturating_sub(1)).unwrap().min(all.len());
        let dropped = usize::try_from(dropped).unwrap();
        prop_assert_eq!(&printed[..], &all[seen + dropped..]);
        // Going on from any place that was told gives the rest and nothing twice.
        for place in places {
            let (again, rest, _) = replay(&ring, place);
            prop_assert_eq!(again, 0);
            prop_assert!(all.ends_with(&rest));
        }
    }

    #[test]
    fn what_a_reader_holds_back_is_not_overwritten(pieces in prop::collection::vec(piece(), 1..60)) {
        let mut ring = Ring::new(2_000);
        ring.started = Some(7);
        let hold = ring.hold(0);
        let (mut all, mut read, mut place) = (Vec::new(), Vec::new(), 0);
        for (stream, bytes) in pieces {
            while !ring.has_room(bytes.len()) {
                let (next, event) = ring.after(place).unwrap();
                place = next;
                ring.holds.insert(hold, place);
                match event {
                    TapeEvent::Output { bytes, .. } => read.extend(bytes),
                    TapeEvent::Started { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            all.extend_from_slice(&bytes);
            ring.push(stream, bytes);
        }
        let (dropped, rest, _) = replay(&ring, place);
        read.extend(rest.into_iter().map(|(_, byte)| byte));
        prop_assert_eq!(dropped, 0);
        prop_assert_eq!(read, all);
    }
}

#[tokio::test]
async fn several_readers_hear_the_same_also_those_that_come_late() {
    let tape = Arc::new(Tape::default());
    let mut early = tape.reader(None);
    tape.started(7);
    tape.write(Stream::Stdout, b"one ".to_vec());
    assert_eq!(early.next().await, Some((1, TapeEvent::Started { pid: 7 })));
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"one ".to_vec() };
    assert_eq!(early.next().await, Some((5, heard)));
    tape.write(Stream::Stdout, b"two".to_vec());
    tape.end(ENDED);
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"two".to_vec() };
    assert_eq!(early.next().await, Some((8, heard)));
    assert_eq!(early.next().await, Some((9, TapeEvent::Ended(ENDED))));
    assert_eq!(early.next().await, None);
    let mut late = tape.reader(Some(3));
    let heard = TapeEvent::Output { stream: Stream::Stdout, bytes: b"e two".to_vec() };
    assert_eq!(late.next().await, Some((8, heard)));
    assert_eq!(tape.reader(Some(u64::MAX)).next().await, None, "a place of the future is the end");
}

#[tokio::test]
async fn a_command_that_never_started_has_an_end_and_nothing_else() {
    let tape = Arc::new(Tape::default());
    tape.end(ENDED);
    let mut reader = tape.reader(None);
    assert_eq!(reader.next().await, Some((2, TapeEvent::Ended(ENDED))));
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
