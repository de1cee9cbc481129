//! A stream of frames from a machine's network card: the same frames however it is cut, each a packet and where the answer goes,
//! or nothing; a length that no frame has ends it.
#![no_main]

use blastbox_egress::card::{self, BadLength, Frames, HEAD, LENGTH, LONGEST};
use blastbox_egress::link;
use libfuzzer_sys::fuzz_target;

fn cut(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<BadLength>) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for piece in stream.chunks(piece) {
        let room = frames.room();
        assert!(room.len() > LONGEST);
        room[..piece.len()].copy_from_slice(piece);
        frames.filled(piece.len());
        loop {
            match frames.take() {
                Ok(Some(frame)) => found.push(frame.to_vec()),
                Ok(None) => break,
                Err(bad) => return (found, Some(bad)),
            }
        }
    }
    (found, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (size, stream) = input;
    let (frames, bad) = cut(stream, usize::from(size).max(1));
    assert_eq!((frames.clone(), bad), cut(stream, LONGEST));
    for frame in frames {
        let Some((from, packet)) = card::open(&frame) else { continue };
        assert_eq!(packet.len() + HEAD, frame.len());
        let back = [&card::head(packet, from)[..], packet].concat();
        let (back, bad) = cut(&back, LENGTH);
        let [back] = back.as_slice() else { panic!("{bad:?}") };
        assert!(back.starts_with(&from) && card::open(back).is_some_and(|(_, same)| same == packet));
        link::read(packet).ok();
    }
});
