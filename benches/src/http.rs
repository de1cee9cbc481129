//! As much of HTTP as it takes to ask the daemon: one connection, one question after the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::paper::Wrong;

/// Nothing takes longer; a daemon that hangs is an error and not a benchmark that does.
const PATIENCE: Duration = Duration::from_secs(120);
const GULP: usize = 256 * 1024;

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    key: String,
    host: SocketAddr,
    /// More lines of each question's head.
    more: String,
}

impl Client {
    /// Connects.
    pub(crate) fn connect(host: SocketAddr, key: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::with_capacity(GULP, stream),
            key: key.to_owned(),
            host,
            more: String::new(),
        })
    }

    /// Says this with every question.
    pub(crate) fn with_headers(mut self, headers: &[(&str, &str)]) -> Self {
        self.more = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self
    }

    /// Asks, and takes the answer as JSON.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<Value, Wrong> {
        let mut text = Vec::new();
        let status = self.open(method, path, body)?.read_into(&mut |piece| text.extend_from_slice(piece))?;
        if !(200..300).contains(&status) {
            return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&text)).into());
        }
        Ok(serde_json::from_slice(&text).unwrap_or(Value::Null))
    }

    /// Asks, and hands every piece of the answer on.
    pub(crate) fn listen(&mut self, path: &str, mut to: impl FnMut(&[u8])) -> Result<(), Wrong> {
        match self.open("GET", path, "")?.read_into(&mut to)? {
            200 => Ok(()),
            status => Err(format!("GET {path}: {status}").into()),
        }
    }

    fn open(&mut self, method: &str, path: &str, body: &str) -> Result<Answer<'_>, Wrong> {
        let Self { stream, key, host, more } = self;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n{more}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.get_mut().write_all(head.as_bytes())?;
        let status = line(stream)?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
        let mut length = Length::Known(0);
        loop {
            let header = line(stream)?.to_ascii_lowercase();
            match header.split_once(": ") {
                Some(("content-length", value)) => length = Length::Known(value.parse()?),
                Some(("transfer-encoding", _)) => length = Length::Chunked,
                Some(_) => {}
                None => return Ok(Answer { stream, status, length }),
            }
        }
    }
}

enum Length {
    Known(usize),
    Chunked,
}

/// An answer whose body was not read yet.
struct Answer<'a> {
    stream: &'a mut BufReader<TcpStream>,
    status: u16,
    length: Length,
}

impl Answer<'_> {
    fn read_into(self, to: &mut dyn FnMut(&[u8])) -> Result<u16, Wrong> {
        match self.length {
            Length::Known(length) => pass(self.stream, length, to)?,
            Length::Chunked => loop {
                let size = usize::from_str_radix(line(self.stream)?.trim(), 16)?;
                pass(self.stream, size, to)?;
                line(self.stream)?;
                if size == 0 {
                    break;
                }
            },
        }
        Ok(self.status)
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.take(64 * 1024).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn pass(stream: &mut BufReader<TcpStream>, mut left: usize, to: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    while left > 0 {
        let there = stream.fill_buf()?;
        if there.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = there.len().min(left);
        to(there.get(..count).unwrap_or_default());
        stream.consume(count);
        left -= count;
    }
    Ok(())
}
