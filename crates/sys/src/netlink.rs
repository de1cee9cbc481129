//! Messages to the kernel's tables of routes and packet rules: built, sent, and each one answered.

use std::io;
use std::time::Duration;

use rustix::net::netlink::NETFILTER;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// An answer is written before the question's call returns; this is for a kernel that keeps none of its word.
const PATIENCE: Duration = Duration::from_secs(1);
const HEAD: usize = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// Made anew, and only if it is not there.
pub(crate) const CREATE: u16 = 0x400 | 0x200;
/// Made behind those that are there.
pub(crate) const APPEND: u16 = 0x400 | 0x800;
/// Of an attribute that holds others.
const NESTED: u16 = 1 << 15;

/// Which of the kernel's tables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    /// Links, addresses, routes.
    Routes,
    /// Packet rules.
    Packets,
}

/// One message; also a list of attributes in one.
#[derive(Debug, Default, Clone)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// A message of this kind that is to be answered, with the structure that belongs to it.
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        Self::with(kind, flags | ACKNOWLEDGE, body)
    }

    /// One that has no answer.
    pub(crate) fn silent(kind: u16, body: &[u8]) -> Self {
        Self::with(kind, 0, body)
    }

    fn with(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut message = Self(vec![0; 4]);
        message.0.extend(kind.to_ne_bytes());
        message.0.extend((flags | REQUEST).to_ne_bytes());
        message.0.extend([0; 8]);
        message.0.extend(body);
        message.align();
        message
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// The same with one more attribute.
    #[must_use]
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        // Everything that is written here is far below 64 KiB.
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.align();
        self
    }

    #[must_use]
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// A number as packet rules have it: in the order of the net.
    #[must_use]
    pub(crate) fn big(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// One that holds others.
    #[must_use]
    pub(crate) fn list(self, kind: u16, inner: Self) -> Self {
        self.attribute(kind | NESTED, &inner.0)
    }

    fn finished(mut self, number: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        for (at, bytes) in [(0, length.to_ne_bytes()), (8, number.to_ne_bytes())] {
            if let Some(place) = self.0.get_mut(at..at + 4) {
                place.copy_from_slice(&bytes);
            }
        }
        self.0
    }

    fn wants_answer(&self) -> bool {
        let flags = self.0.get(6..8).and_then(|bytes| bytes.try_into().ok());
        flags.is_some_and(|flags| u16::from_ne_bytes(flags) & ACKNOWLEDGE != 0)
    }
}

/// Says all of it at once, in the current network namespace, and hears what became of it. The first refusal is the error.
pub(crate) fn tell(table: Table, messages: Vec<Message>) -> io::Result<()> {
    let protocol = match table {
        Table::Routes => None,
        Table::Packets => Some(NETFILTER),
    };
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let mut open = messages.iter().filter(|message| message.wants_answer()).count();
    let bytes: Vec<u8> = (1..).zip(messages).flat_map(|(number, message)| message.finished(number)).collect();
    send(&socket, &bytes, SendFlags::empty())?;
    let mut buffer = vec![0_u8; 16 * 1024];
    while open > 0 {
        let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while let Some((kind, code, next)) = answer(rest) {
            match (kind, code) {
                (ERROR, 0) => open = open.saturating_sub(1),
                (ERROR, code) => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                _ => {}
            }
            rest = rest.get(next..).unwrap_or_default();
        }
    }
    Ok(())
}

/// Kind, code and length of the first answer.
fn answer(bytes: &[u8]) -> Option<(u16, i32, usize)> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = usize::try_from(word(0)?).ok()?.next_multiple_of(4);
    let kind = u16::try_from(word(4)? & 0xffff).ok()?;
    (length >= HEAD).then_some((kind, word(HEAD)?.cast_signed(), length))
}
