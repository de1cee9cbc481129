//! `multipart/form-data`, piece by piece: whatever size a part has, only a delimiter's length of it waits here.
//!
//! Trust: caller.

use memchr::memmem;

use crate::e2b::waiting::Waiting;

/// Bytes of the headers of one part.
const MOST_HEAD: usize = 16 * 1024;
/// Blanks behind a delimiter.
const MOST_BLANKS: usize = 1024;
/// Longest delimiter that the standard allows.
const LONGEST_BOUNDARY: usize = 70;

/// Something in the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A part begins.
    Part(Head),
    /// Bytes of it.
    Bytes(Vec<u8>),
    /// It is over.
    End,
}

/// What a part says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) name: Option<String>,
    pub(super) file_name: Option<String>,
}

/// The body is no multipart body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preamble,
    Delimited,
    Head,
    Body,
    Over,
}

/// Reads a body.
#[derive(Debug)]
pub(super) struct Parts {
    delimiter: Vec<u8>,
    waiting: Waiting,
    stage: Stage,
    /// How many came behind the delimiter that was read last.
    blanks: usize,
}

/// The boundary in a content type, where it is one of such a body.
pub(super) fn boundary(content_type: &str) -> Option<Result<String, Malformed>> {
    let (kind, rest) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let found = parameter(rest, "boundary").filter(|text| !text.is_empty() && text.len() <= LONGEST_BOUNDARY);
    Some(found.ok_or(Malformed("multipart/form-data without a boundary")))
}

impl Parts {
    pub(super) fn new(boundary: &str) -> Self {
        // As if a line ended before the body, so that the first delimiter is found like the others.
        Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            waiting: Waiting::with(b"\r\n"),
            stage: Stage::Preamble,
            blanks: 0,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.waiting.add(bytes);
    }

    /// The next thing; `None`: more bytes are needed, or it is over.
    pub(super) fn next(&mut self) -> Result<Option<Found>, Malformed> {
        loop {
            match self.stage {
                Stage::Preamble => match memmem::find(self.waiting.all(), &self.delimiter) {
                    Some(at) => self.delimited(at),
                    None => {
                        self.keep_tail();
                        return Ok(None);
                    }
                },
                Stage::Delimited => match self.waiting.all() {
                    [b'-', b'-', ..] => self.stage = Stage::Over,
                    [b'\r', b'\n', ..] => {
                        self.waiting.skip(2);
                        self.stage = Stage::Head;
                    }
                    [b' ' | b'\t', ..] => self.blanks()?,
                    [] | [b'-' | b'\r'] => return Ok(None),
                    _ => return Err(Malformed("a delimiter with something behind it")),
                },
                Stage::Head => return self.head(),
                Stage::Body => return Ok(self.body()),
                Stage::Over => {
                    self.waiting.skip(self.waiting.len());
                    return Ok(None);
                }
            }
        }
    }

    /// Whether the last delimiter was seen.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Lets go of a delimiter that begins here.
    fn delimited(&mut self, at: usize) {
        self.waiting.skip(at + self.delimiter.len());
        (self.stage, self.blanks) = (Stage::Delimited, 0);
    }

    /// Lets go of the blanks behind a delimiter, as far as they have come.
    fn blanks(&mut self) -> Result<(), Malformed> {
        let run = self.waiting.all().iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        self.waiting.skip(run);
        self.blanks += run;
        if self.blanks > MOST_BLANKS {
            Err(Malformed("a delimiter with too many blanks behind it"))
        } else {
            Ok(())
        }
    }

    fn head(&mut self) -> Result<Option<Found>, Malformed> {
        let (length, after) = match self.waiting.all() {
            [b'\r', b'\n', ..] => (0, 2),
            waiting => match memmem::find(waiting, b"\r\n\r\n") {
                Some(at) => (at, at + 4),
                None if waiting.len() > MOST_HEAD => {
                    return Err(Malformed("a part with a head that is too long"));
                }
                None => return Ok(None),
            },
        };
        if length > MOST_HEAD {
            return Err(Malformed("a part with a head that is too long"));
        }
        let mut head = self.waiting.take(after);
        head.truncate(length);
        let text = String::from_utf8(head).map_err(|_| Malformed("a part whose head is no UTF-8"))?;
        self.stage = Stage::Body;
        Ok(Some(Found::Part(read_head(&text))))
    }

    fn body(&mut self) -> Option<Found> {
        match memmem::find(self.waiting.all(), &self.delimiter) {
            Some(0) => {
                self.delimited(0);
                Some(Found::End)
            }
            Some(at) => Some(Found::Bytes(self.waiting.take(at))),
            None => {
                let free = self.free();
                (free > 0).then(|| Found::Bytes(self.waiting.take(free)))
            }
        }
    }

    fn keep_tail(&mut self) {
        self.waiting.skip(self.free());
    }

    /// How much of what waits cannot be the beginning of a delimiter, where there is none.
    fn free(&self) -> usize {
        self.waiting.len().saturating_sub(self.delimiter.len() - 1)
    }
}

fn read_head(text: &str) -> Head {
    let disposition = text
        .split("\r\n")
        .filter_map(|line| line.split_once(':'))
        .find_map(|(name, value)| name.trim().eq_ignore_ascii_case("content-disposition").then_some(value));
    let rest = disposition.and_then(|value| value.split_once(';')).map_or("", |(_, rest)| rest);
    Head { name: parameter(rest, "name"), file_name: parameter(rest, "filename") }
}

/// The value of a parameter: a word, or a text in quotes. Browsers write a quote and a line break in it as an escape of
/// addresses, older programs as one of C: both are undone.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let (word, behind) = after.split_at(end);
                (word.trim().to_owned(), behind)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = behind;
    }
}

fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let value = value.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n");
                return Some((value, text.get(at + 1..)?));
            }
            '\\' => match characters.clone().next() {
                Some((_, escaped @ ('"' | '\\'))) => {
                    characters.next();
                    value.push(escaped);
                }
                // A path of another system, say: a backslash is itself there.
                _ => value.push('\\'),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type File = (Option<String>, Vec<u8>);

    /// Every part of a body, however it is cut into pieces.
    fn parts(body: &[u8], piece: usize) -> Result<Vec<File>, Malformed> {
        let mut reader = Parts::new("XX");
        let mut all: Vec<File> = Vec::new();
        for bytes in body.chunks(piece) {
            reader.add(bytes);
            while let Some(found) = reader.next()? {
                match found {
                    Found::Part(head) => all.push((head.file_name, Vec::new())),
                    Found::Bytes(bytes) => all.last_mut().unwrap().1.extend(bytes),
                    Found::End => {}
                }
            }
            assert!(reader.waiting.len() < MOST_HEAD + 64);
        }
        if reader.is_over() { Ok(all) } else { Err(Malformed("cut")) }
    }

    #[test]
    fn a_body_reads_the_same_however_it_is_cut() {
        let body = b"preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b \xc3\xa9.txt\"\r\n\
            Content-Type: text/plain\r\n\r\none\r\n--X\r\n-two\r\n\r\n--XX \r\n\
            content-disposition: form-data; filename=x;name=file\r\n\r\n\r\n--XX--\r\nepilogue";
        let expected = vec![
            (Some("a/b é.txt".to_owned()), b"one\r\n--X\r\n-two\r\n".to_vec()),
            (Some("x".to_owned()), Vec::new()),
        ];
        for piece in [1, 2, 3, 7, 50, 1000] {
            assert_eq!(parts(body, piece).unwrap(), expected, "{piece}");
        }
        assert_eq!(parts(b"--XX--", 1).unwrap(), []);
        assert_eq!(parts(b"--XX\r\n\r\nbody\r\n--XX--", 1).unwrap(), [(None, b"body".to_vec())]);
    }

    #[test]
    fn what_is_cut_or_broken_is_refused() {
        assert!(parts(b"", 1).is_err());
        assert!(parts(b"--XX\r\n\r\nbody", 3).is_err());
        assert!(parts(b"--XXfoo\r\n\r\nbody\r\n--XX--", 3).is_err());
        let mut long = b"--XX\r\n".to_vec();
        long.extend([b'a'; MOST_HEAD + 1]);
        assert!(parts(&long, 1000).is_err());
    }

    #[test]
    fn blanks_behind_a_delimiter_are_let_go_of_at_once_and_are_bounded() {
        let body =
            |blanks: usize| format!("--XX{}\r\n\r\nbody\r\n--XX--", " \t".repeat(blanks / 2)).into_bytes();
        for piece in [1, 7, 4_096] {
            assert_eq!(parts(&body(MOST_BLANKS), piece).unwrap(), [(None, b"body".to_vec())]);
            assert_eq!(
                parts(&body(MOST_BLANKS + 2), piece),
                Err(Malformed("a delimiter with too many blanks behind it"))
            );
        }
        // Behind each delimiter as many.
        let two = [body(MOST_BLANKS).strip_suffix(b"--").unwrap(), " ".repeat(MOST_BLANKS).as_bytes(), b"--"]
            .concat();
        assert!(parts(&two, 100).is_ok());
    }

    #[test]
    fn many_tiny_parts_take_work_as_their_bytes() {
        let part = b"--XX\r\n\r\nx\r\n";
        let body = [part.repeat(10_000).as_slice(), b"--XX--"].concat();
        let mut reader = Parts::new("XX");
        let mut found = 0;
        // As they come from a connection.
        for bytes in body.chunks(64 * 1024) {
            reader.add(bytes);
            while let Some(next) = reader.next().unwrap() {
                found += usize::from(matches!(next, Found::Part(_)));
            }
        }
        assert!(reader.is_over() && found == 10_000);
        assert!(reader.waiting.moved <= 3 * body.len(), "{} of {}", reader.waiting.moved, body.len());
    }

    #[test]
    fn names_in_quotes_are_what_their_senders_mean() {
        for (text, name) in [
            ("name=\"f\"; filename=\"a%22b%0D%0A.txt\"", "a\"b\r\n.txt"),
            ("filename=\"a\\\"b\\\\c\"", "a\"b\\c"),
            ("filename=\"c:\\dir\\f\"", "c:\\dir\\f"),
            ("filename=plain ; name=x", "plain"),
            ("name=\"a;filename=no\"; filename=\"yes\"", "yes"),
        ] {
            assert_eq!(parameter(text, "filename").as_deref(), Some(name), "{text}");
        }
        assert_eq!(parameter("filename=\"open", "filename"), None);
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\"").unwrap().unwrap(), "a b");
        assert!(boundary("multipart/form-data").unwrap().is_err());
        assert!(boundary("text/plain; boundary=x").is_none());
    }
}
