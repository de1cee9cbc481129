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
            TapeEvent::Ended { .. } => assert_eq!(place, ring.end_place()),
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
        ring.ended = Some((ENDED, false));
        let after = after.min(ring.newest());
        let missed = ring.missed(after);
        let (dropped, printed, places) = replay(&ring, after);
        prop_assert_eq!(missed, dropped);
        let seen = usize::try_from(after.saturating_sub(1)).unwrap().min(all.len());
        let dropped = usize::try_from(dropped).unwrap();
        prop_assert_eq!(&printed[..], &all[seen + dropped..]);
        // Going on from any place that was told gives the rest and nothing twice.
        for place in places {
            let (again, rest, _) = replay(&ring, place);
            // What was overwritten is told between the start, which has place 1, and the first byte that is left.
            let still_to_tell = if place == 1 { dropped } else { 0 };
            prop_assert_eq!(usize::try_from(again).unwrap(), still_to_tell);
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
