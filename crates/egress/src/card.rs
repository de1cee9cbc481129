//! Frames of a machine's network card: where one ends, what of it is a packet, and packets as frames.
//!
//! Trust: guest. Every byte is chosen by an attacker who owns his own kernel, every length by one who owns QEMU. Nothing is learned from a frame but where the next
//! answer goes: nobody else is on this wire. There is no ARP and no neighbour discovery to answer; guests are told not to ask.

use blastbox_wire::egress::LINK_MTU;

/// What stands before a packet: to whom, from whom, and what it is.
pub const HEAD: usize = 14;
/// What stands before a frame: how long it is.
pub const LENGTH: usize = 4;
/// The longest frame. Nobody's card is set to more.
pub const LONGEST: usize = LINK_MTU as usize + HEAD;
/// Bytes of a stream that are held at a time: some of the longest frames.
const HELD: usize = 4 * (LENGTH + LONGEST);
/// The address of a card.
pub type Address = [u8; 6];

/// The gateway's own. No card has it: those of guests are drawn at random.
const OURS: Address = [0x02, b'b', b'l', b'a', b's', b't'];
const IP_V4: [u8; 2] = [0x08, 0x00];
const IP_V6: [u8; 2] = [0x86, 0xdd];

/// The sender's address and the packet in a frame; `None`: it carries something else.
#[must_use]
pub fn open(frame: &[u8]) -> Option<(Address, &[u8])> {
    let (&[_, _, _, _, _, _, a, b, c, d, e, f, high, low], packet) = frame.split_first_chunk::<HEAD>()?;
    let fits = match packet.first()? >> 4 {
        4 => [high, low] == IP_V4,
        6 => [high, low] == IP_V6,
        _ => false,
    };
    // One that names a group is nobody's to answer to.
    (fits && a & 1 == 0).then_some(([a, b, c, d, e, f], packet))
}

/// What stands before a packet on its way to a card: the length of the frame, and its head.
#[must_use]
pub fn head(packet: &[u8], to: Address) -> [u8; LENGTH + HEAD] {
    let kind = if packet.first().is_some_and(|byte| byte >> 4 == 6) { IP_V6 } else { IP_V4 };
    // No packet is that long; a machine that is told so ends the wire.
    let length = u32::try_from(packet.len().saturating_add(HEAD)).unwrap_or(u32::MAX).to_be_bytes();
    let mut head = [0; LENGTH + HEAD];
    for (place, byte) in head.iter_mut().zip(length.into_iter().chain(to).chain(OURS).chain(kind)) {
        *place = byte;
    }
    head
}

/// A length that no frame has. Nothing behind it can be told from a frame, so the wire ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a machine's card sent a frame of {0} bytes")]
pub struct BadLength(pub u32);

/// The frames in a stream, each behind its length: QEMU's own form for sockets without borders.
#[derive(Debug)]
pub struct Frames {
    held: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { held: vec![0; HELD].into_boxed_slice(), begin: 0, end: 0 }
    }
}

impl Frames {
    /// Where the next bytes of the stream go. Never empty when [`Self::take`] has said that there is no whole frame.
    pub fn room(&mut self) -> &mut [u8] {
        self.held.copy_within(self.begin..self.end, 0);
        self.end = self.end.saturating_sub(self.begin);
        self.begin = 0;
        self.held.get_mut(self.end..).unwrap_or_default()
    }

    /// So many bytes were put there.
    pub fn filled(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(self.held.len());
    }

    /// The next frame, if all of it is there.
    pub fn take(&mut self) -> Result<Option<&[u8]>, BadLength> {
        let held = self.held.get(self.begin..self.end).unwrap_or_default();
        let Some((length, rest)) = held.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let said = u32::from_be_bytes(*length);
        let length = usize::try_from(said).unwrap_or(usize::MAX);
        // Before anything is waited for: a length that does not fit would be waited for in vain.
        if length == 0 || length > LONGEST {
            return Err(BadLength(said));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.begin = self.begin.saturating_add(LENGTH).saturating_add(length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: Address = [0x52, 1, 2, 3, 4, 5];

    #[test]
    fn a_packet_comes_out_of_its_frame_and_goes_back_to_whom_it_came_from() {
        for (first, kind) in [(0x45, IP_V4), (0x60, IP_V6)] {
            let frame = [&[0xff; 6][..], &THEIRS, &kind, &[first, 7]].concat();
            assert_eq!(open(&frame), Some((THEIRS, &[first, 7][..])));
            let back = head(&[first, 7], THEIRS);
            assert_eq!(back[..LENGTH], [0, 0, 0, 16]);
            let back = &back[LENGTH..];
            assert_eq!((&back[..6], &back[6..12], &back[12..]), (&THEIRS[..], &OURS[..], &kind[..]));
        }
    }

    /// All frames of a stream that comes in such pieces.
    fn cut(stream: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, BadLength> {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for piece in stream.chunks(piece) {
            let room = frames.room();
            assert!(room.len() > LONGEST);
            room[..piece.len()].copy_from_slice(piece);
            frames.filled(piece.len());
            while let Some(frame) = frames.take()? {
                found.push(frame.to_vec());
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_are_the_same_however_their_stream_is_cut() {
        let frames = [vec![7; 1], vec![8; LONGEST], vec![9; 60], vec![10; LONGEST]];
        let behind =
            |frame: &Vec<u8>| [&u32::try_from(frame.len()).unwrap().to_be_bytes(), &frame[..]].concat();
        let stream = frames.iter().flat_map(behind).collect::<Vec<u8>>();
        for piece in [1, 3, 4, 5, 1000, LONGEST, LONGEST + LENGTH] {
            assert_eq!(cut(&stream, piece).unwrap(), frames, "{piece}");
            assert_eq!(cut(&stream[..stream.len() - 1], piece).unwrap(), frames[..3], "{piece}");
        }
    }

    #[test]
    fn a_length_that_no_frame_has_ends_the_wire_before_its_frame_is_waited_for() {
        let longest = u32::try_from(LONGEST).unwrap();
        for bad in [0, longest + 1, u32::MAX] {
            for piece in [1, 4] {
                assert_eq!(cut(&bad.to_be_bytes(), piece), Err(BadLength(bad)));
            }
        }
        assert_eq!(cut(&longest.to_be_bytes(), 4), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_packet_or_lies_about_its_kind_is_left_out() {
        let frame =
            |from: Address, kind: [u8; 2], packet: &[u8]| [&[0; 6][..], &from, &kind, packet].concat();
        for bad in [
            frame(THEIRS, [0x08, 0x06], &[0x45]),
            frame(THEIRS, IP_V6, &[0x45]),
            frame(THEIRS, IP_V4, &[0x60]),
            frame(THEIRS, IP_V4, &[]),
            frame([0x01, 0, 0, 0, 0, 0], IP_V4, &[0x45]),
            frame([0xff; 6], IP_V4, &[0x45]),
        ] {
            assert_eq!(open(&bad), None, "{bad:?}");
        }
        for length in 0..HEAD {
            assert_eq!(open(&[0; HEAD][..length]), None);
        }
    }
}
