//! Frames of a WebSocket (RFC 6455), both sides: what arrives is cut into messages, what is sent is framed. No
//! extensions.
//!
//! Trust: caller. Bytes of a message are handed on as they come, however long it says it is; only texts and control
//! frames are gathered, and those are short.

/// Longest text that is taken.
pub const MAX_TEXT: usize = 4096;
/// Longest control frame, by the standard.
const MAX_CONTROL: u64 = 125;

/// Whose frames are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client's: masked, every one.
    Client,
    /// A server's: never masked.
    Server,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// Bytes.
    Binary,
    /// The end.
    Close,
    /// A question whether anybody is there.
    Ping,
    /// The answer to it.
    Pong,
}

/// Something that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// Some bytes: a message, or a part of one.
    Bytes(Vec<u8>),
    /// A whole text.
    Text(String),
    /// To be answered with the same content.
    Ping(Vec<u8>),
    /// Somebody is there.
    Pong,
    /// There will be nothing more.
    Close,
}

/// What breaks the rules, with the code that closes the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Not what the standard says.
    Protocol,
    /// A text that is none.
    NotText,
    /// A text that is too long.
    TooLong,
}

impl Broken {
    /// The code of the standard.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Protocol => 1002,
            Self::NotText => 1007,
            Self::TooLong => 1009,
        }
    }
}

const CONTINUATION: u8 = 0;

const fn opcode(kind: Kind) -> u8 {
    match kind {
        Kind::Text => 1,
        Kind::Binary => 2,
        Kind::Close => 8,
        Kind::Ping => 9,
        Kind::Pong => 10,
    }
}

/// Frames a message. A client names its mask; a server has none.
pub fn encode(kind: Kind, payload: &[u8], mask: Option<[u8; 4]>, to: &mut Vec<u8>) {
    to.push(0x80 | opcode(kind));
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ 0..=125), _) => to.push(masked | short),
        (_, Ok(length)) => {
            to.push(masked | 126);
            to.extend_from_slice(&length.to_be_bytes());
        }
        (_, Err(_)) => {
            to.push(masked | 127);
            to.extend_from_slice(&u64::try_from(payload.len()).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    match mask {
        None => to.extend_from_slice(payload),
        Some(mask) => {
            to.extend_from_slice(&mask);
            to.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        }
    }
}

/// The content of a closing frame.
#[must_use]
pub fn closing(code: u16) -> [u8; 2] {
    code.to_be_bytes()
}

/// Cuts what arrives into messages.
#[derive(Debug)]
pub struct Cutter {
    from: Side,
    waiting: Vec<u8>,
    taken: usize,
    /// The frame that is being read.
    frame: Option<Open>,
    /// The message that is being read, where its frames are several.
    message: Option<Kind>,
    text: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    kind: Kind,
    last: bool,
    left: u64,
    mask: [u8; 4],
    at: usize,
}

impl Cutter {
    /// At the beginning of a line.
    #[must_use]
    pub fn new(from: Side) -> Self {
        Self { from, waiting: Vec::new(), taken: 0, frame: None, message: None, text: Vec::new() }
    }

    /// Takes what arrived.
    pub fn add(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.taken.min(self.waiting.len()));
        self.taken = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// The next message; `None`: more must arrive first.
    pub fn take(&mut self) -> Result<Option<Message>, Broken> {
        loop {
            let Some(mut frame) = self.frame else {
                if !self.begin()? {
                    return Ok(None);
                }
                continue;
            };
            let rest = self.waiting.get(self.taken..).unwrap_or_default();
            let now = usize::try_from(frame.left).unwrap_or(usize::MAX).min(rest.len());
            if now == 0 && frame.left > 0 {
                return Ok(None);
            }
            let masks = frame.mask.iter().cycle().skip(frame.at);
            let bytes: Vec<u8> = rest.iter().take(now).zip(masks).map(|(byte, mask)| byte ^ mask).collect();
            self.taken = self.taken.saturating_add(now);
            frame.left = frame.left.saturating_sub(u64::try_from(now).unwrap_or(u64::MAX));
            frame.at = frame.at.wrapping_add(now) % 4;
            self.frame = (frame.left > 0).then_some(frame);
            let over = frame.left == 0;
            match frame.kind {
                Kind::Binary => {
                    if over {
                        self.message = (!frame.last).then_some(Kind::Binary);
                    }
                    if !bytes.is_empty() {
                        return Ok(Some(Message::Bytes(bytes)));
                    }
                }
                Kind::Text => {
                    if self.text.len().saturating_add(bytes.len()) > MAX_TEXT {
                        return Err(Broken::TooLong);
                    }
                    self.text.extend_from_slice(&bytes);
                    if over {
                        self.message = (!frame.last).then_some(Kind::Text);
                        if frame.last {
                            let text = String::from_utf8(std::mem::take(&mut self.text));
                            return text.map(|text| Some(Message::Text(text))).map_err(|_| Broken::NotText);
                        }
                    }
                }
                Kind::Ping | Kind::Pong | Kind::Close => {
                    return Ok(Some(match frame.kind {
                        Kind::Ping => Message::Ping(bytes),
                        Kind::Pong => Message::Pong,
                        _ => Message::Close,
                    }));
                }
            }
        }
    }

    /// Begins the next frame, when its head is there.
    fn begin(&mut self) -> Result<bool, Broken> {
        let rest = self.waiting.get(self.taken..).unwrap_or_default();
        let Some((&[first, second], after)) = rest.split_first_chunk::<2>() else { return Ok(false) };
        let (last, code, masked) = (first & 0x80 != 0, first & 0x0f, second & 0x80 != 0);
        if first & 0x70 != 0 || masked != (self.from == Side::Client) {
            return Err(Broken::Protocol);
        }
        let (left, after) = match second & 0x7f {
            126 => match after.split_first_chunk::<2>() {
                Some((length, after)) => (u64::from(u16::from_be_bytes(*length)), after),
                None => return Ok(false),
            },
            127 => match after.split_first_chunk::<8>() {
                Some((length, after)) => (u64::from_be_bytes(*length), after),
                None => return Ok(false),
            },
            short => (u64::from(short), after),
        };
        let (mask, after) = match (masked, after.split_first_chunk::<4>()) {
            (false, _) => ([0; 4], after),
            (true, Some((mask, after))) => (*mask, after),
            (true, None) => return Ok(false),
        };
        let kind = match (code, self.message) {
            (CONTINUATION, Some(kind)) => kind,
            (1, None) => Kind::Text,
            (2, None) => Kind::Binary,
            (8, _) => Kind::Close,
            (9, _) => Kind::Ping,
            (10, _) => Kind::Pong,
            _ => return Err(Broken::Protocol),
        };
        let control = matches!(kind, Kind::Close | Kind::Ping | Kind::Pong);
        if control {
            // Gathered whole, so that it can be answered whole.
            if !last || left > MAX_CONTROL {
                return Err(Broken::Protocol);
            }
            if u64::try_from(after.len()).unwrap_or(u64::MAX) < left {
                return Ok(false);
            }
        }
        self.taken = self.waiting.len().saturating_sub(after.len());
        self.frame = Some(Open { kind, last, left, mask, at: 0 });
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
