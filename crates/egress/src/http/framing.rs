//! A strict reader of HTTP/1 message borders that stands before hyper.
//!
//! Trust: guest. Every byte is chosen by an attacker.
//!
//! Why a second reader: hyper follows the standard's advice to be liberal (both lengths given: one is dropped; two
//! equal lengths: one is dropped; a bare line feed ends a line). Upstream sees only what hyper wrote anew, so this is
//! not what keeps requests from being smuggled; it is what refuses them, with a reason, before anything is sent. A
//! message that passes here has one meaning for every reader.

/// Longest request line and headers together.
pub const LONGEST_HEAD: usize = 64 * 1024;
/// Most header lines.
pub const MOST_HEADERS: usize = 100;
/// Longest line that announces a chunk, extensions included.
const LONGEST_CHUNK_LINE: usize = 256;

/// What makes a message ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not `METHOD target HTTP/1.x`.
    #[error("the request line is malformed")]
    RequestLine,
    /// A tunnel inside a flow that already has its destination.
    #[error("CONNECT has no meaning here")]
    Connect,
    /// `\n` without `\r`, or `\r` without `\n`.
    #[error("a line does not end in CR LF")]
    BareLineEnd,
    /// A header continued on the next line.
    #[error("a header is folded over two lines")]
    Folded,
    /// No colon, a name that is no token, a space before the colon, a NUL in the value.
    #[error("a header line is malformed")]
    HeaderLine,
    /// `Content-Length` and `Transfer-Encoding`.
    #[error("the message gives two lengths")]
    TwoLengths,
    /// Not plain decimal digits, or twice.
    #[error("Content-Length is malformed or given twice")]
    Length,
    /// Anything but `chunked`, once.
    #[error("Transfer-Encoding is not exactly chunked")]
    Encoding,
    /// None or several.
    #[error("the request has not exactly one Host")]
    Host,
    /// More than is read.
    #[error("the headers are larger than {LONGEST_HEAD} bytes or more than {MOST_HEADERS}")]
    TooLarge,
    /// A chunk whose length or end cannot be read.
    #[error("a chunk is malformed")]
    Chunk,
}

/// Where in the stream of requests the next byte stands.
#[derive(Debug)]
pub struct Framing {
    state: State,
    line: Vec<u8>,
    head: Head,
    /// Bytes of this head so far.
    size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    RequestLine,
    Header,
    Body(u64),
    ChunkLine,
    Chunk(u64),
    /// CR LF after a chunk.
    ChunkEnd,
    Trailer,
}

#[derive(Debug, Default)]
struct Head {
    headers: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self { state: State::RequestLine, line: Vec::new(), head: Head::default(), size: 0 }
    }
}

impl Framing {
    /// Whether the next byte begins a request.
    pub fn between_requests(&self) -> bool {
        self.state == State::RequestLine && self.line.is_empty()
    }

    /// Looks at the next bytes. After a violation the connection must not be read any more.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Body(left) => self.skip(bytes, left, State::Body, State::RequestLine),
                State::Chunk(left) => self.skip(bytes, left, State::Chunk, State::ChunkEnd),
                State::RequestLine | State::Header | State::ChunkLine | State::ChunkEnd | State::Trailer => {
                    self.take_line(bytes)?
                }
            };
        }
        Ok(())
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], left: u64, more: fn(u64) -> State, after: State) -> &'b [u8] {
        let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left.saturating_sub(u64::try_from(here).unwrap_or(u64::MAX));
        self.state = if left == 0 { after } else { more(left) };
        bytes.get(here..).unwrap_or_default()
    }

    fn take_line<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Violation> {
        let most = match self.state {
            State::ChunkLine | State::ChunkEnd => LONGEST_CHUNK_LINE,
            _ => LONGEST_HEAD.saturating_sub(self.size),
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, rest) =
            bytes.split_at_checked(end.map_or(bytes.len(), |end| end + 1)).unwrap_or((bytes, b""));
        if self.line.len() + part.len() > most {
            return Err(self.too_long());
        }
        self.line.extend_from_slice(part);
        if end.is_none() {
            return Ok(rest);
        }
        let line = std::mem::take(&mut self.line);
        self.size += line.len();
        let line = line.strip_suffix(b"\r\n").ok_or(Violation::BareLineEnd)?;
        if line.contains(&b'\r') {
            return Err(Violation::BareLineEnd);
        }
        self.line(line)?;
        Ok(rest)
    }

    fn too_long(&self) -> Violation {
        match self.state {
            State::ChunkLine | State::ChunkEnd => Violation::Chunk,
            _ => Violation::TooLarge,
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Violation> {
        self.state = match self.state {
            // One empty line before a request is what old clients send after a body, and hyper passes over it too.
            State::RequestLine if line.is_empty() && self.size == 2 => State::RequestLine,
            State::RequestLine => {
                request_line(line)?;
                State::Header
            }
            State::Header if line.is_empty() => self.body()?,
            State::Header => {
                self.header(line)?;
                State::Header
            }
            State::ChunkLine => match chunk_length(line)? {
                0 => {
                    self.begin();
                    State::Trailer
                }
                length => State::Chunk(length),
            },
            State::ChunkEnd if line.is_empty() => State::ChunkLine,
            State::ChunkEnd => return Err(Violation::Chunk),
            State::Trailer if line.is_empty() => {
                self.begin();
                State::RequestLine
            }
            State::Trailer => {
                let (name, _) = split(line)?;
                self.count()?;
                // A trailer that changes where the message ends or whom it is for has no meaning.
                if [&b"content-length"[..], b"transfer-encoding", b"host"]
                    .iter()
                    .any(|bad| name.eq_ignore_ascii_case(bad))
                {
                    return Err(Violation::HeaderLine);
                }
                State::Trailer
            }
            State::Body(_) | State::Chunk(_) => return Err(Violation::Chunk),
        };
        Ok(())
    }

    fn begin(&mut self) {
        self.head = Head::default();
        self.size = 0;
    }

    fn count(&mut self) -> Result<(), Violation> {
        self.head.headers += 1;
        if self.head.headers > MOST_HEADERS { Err(Violation::TooLarge) } else { Ok(()) }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), Violation> {
        let (name, value) = split(line)?;
        self.count()?;
        if name.eq_ignore_ascii_case(b"host") {
            self.head.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
            let length =
                std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
            if length.is_none() || self.head.length.is_some() {
                return Err(Violation::Length);
            }
            self.head.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.head.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Violation::Encoding);
            }
            self.head.chunked = true;
        }
        Ok(())
    }

    /// The head is over: what follows?
    fn body(&mut self) -> Result<State, Violation> {
        let Head { hosts, length, chunked, .. } = std::mem::take(&mut self.head);
        self.size = 0;
        if hosts != 1 {
            return Err(Violation::Host);
        }
        match (length, chunked) {
            (Some(_), true) => Err(Violation::TwoLengths),
            (None, true) => Ok(State::ChunkLine),
            (None | Some(0), false) => Ok(State::RequestLine),
            (Some(length), false) => Ok(State::Body(length)),
        }
    }
}

fn request_line(line: &[u8]) -> Result<(), Violation> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
        return Err(Violation::RequestLine);
    };
    let token = !method.is_empty() && method.iter().all(|byte| is_token(*byte));
    let visible = !target.is_empty() && target.iter().all(|byte| matches!(byte, 0x21..=0x7e));
    if !token || !visible || !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        return Err(Violation::RequestLine);
    }
    if method == b"CONNECT" { Err(Violation::Connect) } else { Ok(()) }
}

/// Name and trimmed value of a header line.
fn split(line: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Violation::Folded);
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Violation::HeaderLine)?;
    let (name, value) = line.split_at_checked(colon).ok_or(Violation::HeaderLine)?;
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let clean = value.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e | 0x80..));
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !clean {
        return Err(Violation::HeaderLine);
    }
    Ok((name, value))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn chunk_length(line: &[u8]) -> Result<u64, Violation> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let clean = !digits.is_empty() && digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
    let visible = line.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
    let text = std::str::from_utf8(digits).ok().filter(|_| clean && visible).ok_or(Violation::Chunk)?;
    u64::from_str_radix(text, 16).map_err(|_| Violation::Chunk)
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
