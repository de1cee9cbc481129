//! Server-sent events, as they come in.

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use memchr::memchr;

use super::client::{Client, Sent};
use super::problem::DaemonProblem;

/// Longest event that is taken: a piece of output in base64, with room to spare.
const LONGEST: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: String,
}

/// Events of one connection.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    text: Text,
}

impl Events {
    /// Listens from after an event.
    pub(crate) async fn open(
        client: &Client,
        path: &str,
        after: Option<&str>,
    ) -> Result<Self, DaemonProblem> {
        let after: Vec<_> = after.map(|id| ("last-event-id", id.to_owned())).into_iter().collect();
        let response = client.send(Method::GET, path, &after, Sent::Whole(None)).await?;
        Ok(Self { body: response.into_body(), text: Text::default() })
    }

    /// The next event; `None` at the end of the connection. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, DaemonProblem> {
        loop {
            if let Some(event) = self.text.take()? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(DaemonProblem::BrokeOff(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.text.add(&bytes);
                    }
                }
            }
        }
    }
}

/// What came and was not taken yet.
#[derive(Debug, Default)]
struct Text {
    bytes: Vec<u8>,
    taken: usize,
    searched: usize,
}

impl Text {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self) -> Result<Option<Event>, DaemonProblem> {
        loop {
            let Some(end) = self.end() else {
                let waiting = self.bytes.len() - self.taken;
                return if waiting > LONGEST { Err(DaemonProblem::BadEvent) } else { Ok(None) };
            };
            let block = self.bytes.get(self.taken..end).unwrap_or_default();
            let event = read(std::str::from_utf8(block).map_err(|_| DaemonProblem::BadEvent)?);
            self.taken = end + 2;
            self.searched = self.taken;
            if let Some(event) = event {
                return Ok(Some(event));
            }
        }
    }

    /// Where the next event ends: at two line breaks. Output is long and has none in it, so this is worth a fast search.
    fn end(&mut self) -> Option<usize> {
        loop {
            let fresh = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(at) = memchr(b'\n', fresh).map(|at| self.searched + at) else {
                self.searched = self.bytes.len();
                return None;
            };
            match self.bytes.get(at + 1) {
                Some(b'\n') => return Some(at),
                Some(_) => self.searched = at + 1,
                // The other half is still to come.
                None => {
                    self.searched = at;
                    return None;
                }
            }
        }
    }
}

/// One event; `None` for a comment.
fn read(block: &str) -> Option<Event> {
    let mut event = Event::default();
    for line in block.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut event.name),
            "data" => event.data.push_str(value),
            _ => {}
        }
    }
    (!event.name.is_empty()).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_they_are_cut() {
        let sent = b": keep-alive\n\nid: 1\nevent: started\ndata: {}\n\nevent: ended\ndata: a: b\n\n";
        for size in 1..sent.len() {
            let (mut text, mut found) = (Text::default(), Vec::new());
            for piece in sent.chunks(size) {
                text.add(piece);
                while let Some(event) = text.take().unwrap() {
                    found.push((event.id, event.name, event.data));
                }
            }
            let one = (Some("1".to_owned()), "started".to_owned(), "{}".to_owned());
            assert_eq!(found, [one, (None, "ended".to_owned(), "a: b".to_owned())], "{size}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_waited_for_for_ever() {
        let mut text = Text::default();
        text.add(&vec![b'x'; LONGEST + 1]);
        assert!(matches!(text.take(), Err(DaemonProblem::BadEvent)));
    }
}
