//! What a daemon and its clerk say to each other, over a sequenced socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest message: a command with all its words.
pub(super) const LONGEST: usize = 128 * 1024;
/// What a message is about.
const ORDER: u8 = b'o';
const ALL: u8 = b'a';
const WISH: u8 = b'w';
/// Between words. None can be in one: such a command is refused when its file is read.
const BORDER: char = '\0';

/// What the daemon says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A secret has this command.
    Order { name: String, argv: Vec<String> },
    /// There are no other commands, and never will be.
    ThatIsAll,
    /// The command of this secret is to be run.
    Wish { name: String },
}

pub(super) fn order(name: &str, argv: &[String]) -> Vec<u8> {
    let words: Vec<&str> = std::iter::once(name).chain(argv.iter().map(String::as_str)).collect();
    [&[ORDER], words.join(&BORDER.to_string()).as_bytes()].concat()
}

pub(super) fn that_is_all() -> Vec<u8> {
    vec![ALL]
}

pub(super) fn wish(name: &str) -> Vec<u8> {
    [&[WISH], name.as_bytes()].concat()
}

/// `None`: it is neither.
pub(super) fn read(message: &[u8]) -> Option<Said> {
    let (kind, text) = message.split_first()?;
    let mut words = std::str::from_utf8(text).ok()?.split(BORDER).map(str::to_owned);
    let name = words.next()?;
    match *kind {
        ORDER => Some(Said::Order { name, argv: words.collect() }),
        ALL => text.is_empty().then_some(Said::ThatIsAll),
        WISH => words.next().is_none().then_some(Said::Wish { name }),
        _ => None,
    }
}

pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Whether whoever sends something waits until there is room for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room {
    /// It waits.
    Awaited,
    /// It is an error: a clerk that stands still must not stop whoever asks it.
    Wanted,
}

pub(super) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], room: Room) -> io::Result<()> {
    if bytes.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command has more than 128 KiB"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = match room {
        Room::Awaited => SendFlags::NOSIGNAL,
        Room::Wanted => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    };
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// One message with its descriptors. `None`: the daemon is gone.
pub(super) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut off"));
    }
    Ok((got.bytes > 0).then_some((got.bytes, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let argv = ["/bin/mint".to_owned(), String::new(), "two words".to_owned()];
        let heard = read(&order("s", &argv));
        assert_eq!(heard, Some(Said::Order { name: "s".to_owned(), argv: argv.to_vec() }));
        assert_eq!((read(&that_is_all()), read(b"ax")), (Some(Said::ThatIsAll), None));
        assert_eq!(read(&wish("s")), Some(Said::Wish { name: "s".to_owned() }));
        // A wish brings no words of its own.
        assert_eq!(read(b"ws\0/bin/sh"), None);
        assert_eq!((read(b""), read(b"x"), read(b"o\xff")), (None, None, None));
    }
}
