//! Frames of a machine's network card: what of them is a packet, and packets as frames.
//!
//! Trust: guest. Every byte is chosen by an attacker who owns his own kernel. Nothing is learned from a frame but where the next
//! answer goes: nobody else is on this wire. There is no ARP and no neighbour discovery to answer; guests are told not to ask.

/// What stands before a packet: to whom, from whom, and what it is.
pub const HEAD: usize = 14;
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

/// What stands before a packet on its way to a card.
#[must_use]
pub fn head(packet: &[u8], to: Address) -> [u8; HEAD] {
    let kind = if packet.first().is_some_and(|byte| byte >> 4 == 6) { IP_V6 } else { IP_V4 };
    let mut head = [0; HEAD];
    for (place, byte) in head.iter_mut().zip(to.into_iter().chain(OURS).chain(kind)) {
        *place = byte;
    }
    head
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
            assert_eq!((&back[..6], &back[6..12], &back[12..]), (&THEIRS[..], &OURS[..], &kind[..]));
        }
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
