//! The network of a guest whose box has one: a card at whose other end is the box's gateway, and nobody else.

use std::io;
use std::os::fd::OwnedFd;

use blastbox_sys::tun::{self, Interface};
use blastbox_wire::egress::{BOX_V4, BOX_V6, LINK_MTU, MAX_AUTHORITY};
use rustix::rand::{GetRandomFlags, getrandom};

use super::drivers::CARD;
use super::sleep::read_whole;

/// Gives the card an address of its own and the box's two, and brings it up. Where others are copies of this guest, only in the
/// copy, after it has randomness of its own.
pub(super) fn bring_up() -> io::Result<()> {
    let mut address = [0_u8; 6];
    // So few come whole or not at all.
    getrandom(&mut address, GetRandomFlags::empty())?;
    if let Some(first) = address.first_mut() {
        // Nobody's in particular, and one card's.
        *first = (*first & 0xfc) | 0x02;
    }
    let card = Interface { name: CARD, mtu: LINK_MTU, v4: BOX_V4, v6: BOX_V6 };
    tun::bring_up(&card, Some(address))
}

/// The same in a copy of a guest whose card is up already: nobody at its other end knows the connections of the one that it was
/// copied from, and answers what is sent on them with their end.
pub(super) fn renew() -> io::Result<()> {
    tun::take_down(CARD)?;
    bring_up()
}

/// Hears whom programs of the box believe besides.
pub(super) fn hear_authority(port: &OwnedFd) -> io::Result<String> {
    let mut length = [0_u8; 4];
    read_whole(port, &mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 || length > MAX_AUTHORITY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    read_whole(port, &mut text)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use blastbox_wire::agent::introduce;

    use super::*;

    #[test]
    fn an_authority_is_heard_whole_and_nothing_of_what_follows() {
        let (mut host, guest) = UnixStream::pair().unwrap();
        let guest = OwnedFd::from(guest);
        host.write_all(&[&introduce("a certificate")[..], b"frame"].concat()).unwrap();
        assert_eq!(hear_authority(&guest).unwrap(), "a certificate");
        let mut next = [0_u8; 5];
        rustix::io::read(&guest, &mut next).unwrap();
        assert_eq!(&next, b"frame");
        for bad in ["".to_owned(), "x".repeat(MAX_AUTHORITY + 1)] {
            host.write_all(&introduce(&bad)[..4]).unwrap();
            assert!(hear_authority(&guest).is_err());
        }
    }
}
