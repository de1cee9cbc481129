//! The binary form of protobuf, for the few messages that there are: to JSON and back, by tables.
//!
//! Trust: caller. Every length is held against what is there before anything is kept; nesting is bounded by the tables,
//! which do not refer to themselves.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::schema::{Count, Field, Kind, Shape, Words};
use crate::e2b::moment;

/// The bytes are no such message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("cut short")]
    Cut,
    #[error("a number of more than 64 bits")]
    LongNumber,
    #[error("a field of another kind")]
    WrongKind,
    #[error("text that is no UTF-8")]
    NotText,
}

/// Reads a message.
pub(super) fn decode(shape: Shape, bytes: &[u8]) -> Result<Value, Malformed> {
    let mut fields = Map::new();
    let mut from = Reader(bytes);
    while !from.0.is_empty() {
        let tag = from.varint()?;
        let (number, wire) = (tag >> 3, tag & 7);
        let raw = from.raw(wire)?;
        // What nobody knows is let be.
        let Some(field) = shape.iter().find(|field| u64::from(field.number) == number) else { continue };
        put(&mut fields, field, &raw)?;
    }
    Ok(Value::Object(fields))
}

fn put(fields: &mut Map<String, Value>, field: &Field, raw: &Raw<'_>) -> Result<(), Malformed> {
    if let Kind::TextMap = field.kind {
        let (key, value) = pair(raw.bytes()?)?;
        let map = fields.entry(field.name).or_insert_with(|| json!({}));
        if let Some(map) = map.as_object_mut() {
            map.insert(key, Value::String(value));
        }
        return Ok(());
    }
    let value = value(&field.kind, raw)?;
    match field.count {
        Count::One => {
            fields.insert(field.name.to_owned(), value);
        }
        Count::Many => {
            let list = fields.entry(field.name).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value);
            }
        }
    }
    Ok(())
}

fn value(kind: &Kind, raw: &Raw<'_>) -> Result<Value, Malformed> {
    Ok(match kind {
        Kind::Text => Value::String(text(raw.bytes()?)?),
        Kind::Bytes => Value::String(STANDARD.encode(raw.bytes()?)),
        Kind::Bool => Value::Bool(raw.number()? != 0),
        Kind::U32 => json!(low_half(raw.number()?)),
        Kind::S32 => {
            let number = low_half(raw.number()?);
            json!((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
        }
        Kind::I64 => Value::String(raw.number()?.cast_signed().to_string()),
        Kind::Enum(words) => word(words, low_half(raw.number()?)),
        Kind::Time => Value::String(time(raw.bytes()?)?),
        Kind::Message(shape) => decode(shape, raw.bytes()?)?,
        Kind::TextMap => return Err(Malformed::WrongKind),
    })
}

/// A number that is wider than its field is cut to it, as protobuf says.
fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

fn word(words: Words, number: u32) -> Value {
    let known = words.iter().find(|(_, known)| *known == number);
    known.map_or_else(|| json!(number), |(word, _)| json!(word))
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed::NotText)
}

fn pair(bytes: &[u8]) -> Result<(String, String), Malformed> {
    let (mut key, mut value) = (String::new(), String::new());
    let mut from = Reader(bytes);
    while !from.0.is_empty() {
        let tag = from.varint()?;
        let raw = from.raw(tag & 7)?;
        match tag >> 3 {
            1 => key = text(raw.bytes()?)?,
            2 => value = text(raw.bytes()?)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn time(bytes: &[u8]) -> Result<String, Malformed> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut from = Reader(bytes);
    while !from.0.is_empty() {
        let tag = from.varint()?;
        let raw = from.raw(tag & 7)?;
        match tag >> 3 {
            1 => seconds = raw.number()?.cast_signed(),
            2 => nanos = raw.number()?.cast_signed(),
            _ => {}
        }
    }
    Ok(moment::text_of_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
}

/// A field as it lies there.
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Raw<'a> {
    fn number(&self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Bytes(_) => Err(Malformed::WrongKind),
        }
    }

    fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Malformed::WrongKind),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for place in 0..10_u32 {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed::Cut)?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return Err(Malformed::LongNumber);
            }
            number |= bits << (place * 7);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::LongNumber)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn raw(&mut self, wire: u64) -> Result<Raw<'a>, Malformed> {
        Ok(match wire {
            0 => Raw::Number(self.varint()?),
            1 => Raw::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed::Cut)?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Bytes(self.take(4)?),
            _ => return Err(Malformed::WrongKind),
        })
    }
}

/// Writes a message. What a table does not know is left out.
pub(super) fn encode(shape: Shape, message: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for field in shape {
        let Some(value) = message.get(field.name) else { continue };
        match (field.count, &field.kind, value) {
            (_, Kind::TextMap, Value::Object(map)) => {
                for (key, value) in map {
                    let mut pair = Vec::new();
                    write_bytes(&mut pair, 1, key.as_bytes());
                    write_bytes(&mut pair, 2, value.as_str().unwrap_or_default().as_bytes());
                    write_bytes(&mut out, field.number, &pair);
                }
            }
            (Count::Many, _, Value::Array(items)) => {
                items.iter().for_each(|item| write(&mut out, field, item));
            }
            (Count::One, _, value) => write(&mut out, field, value),
            (Count::Many, ..) => {}
        }
    }
    out
}

fn write(out: &mut Vec<u8>, field: &Field, value: &Value) {
    let number = field.number;
    let words = || value.as_str().unwrap_or_default();
    match &field.kind {
        Kind::Text => write_bytes(out, number, words().as_bytes()),
        Kind::Bytes => write_bytes(out, number, &STANDARD.decode(words()).unwrap_or_default()),
        Kind::Bool => write_number(out, number, u64::from(value.as_bool() == Some(true))),
        Kind::U32 => write_number(out, number, value.as_u64().unwrap_or(0)),
        Kind::S32 => {
            let signed = i32::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
            write_number(out, number, u64::from(((signed << 1) ^ (signed >> 31)).cast_unsigned()));
        }
        Kind::I64 => write_number(out, number, words().parse::<i64>().unwrap_or(0).cast_unsigned()),
        Kind::Enum(known) => {
            let place = known.iter().find(|(word, _)| *word == words());
            write_number(out, number, place.map_or(0, |(_, place)| u64::from(*place)));
        }
        Kind::Time => {
            let millis = moment::parse(words()).unwrap_or(0);
            let fraction = words().split_once('.').map_or("", |(_, rest)| rest.trim_end_matches('Z'));
            let nanos: u64 = format!("{fraction:0<9}").parse().unwrap_or(0);
            let mut time = Vec::new();
            write_number(&mut time, 1, millis.div_euclid(1_000).cast_unsigned());
            write_number(&mut time, 2, nanos);
            write_bytes(out, number, &time);
        }
        Kind::Message(shape) => write_bytes(out, number, &encode(shape, value)),
        Kind::TextMap => {}
    }
}

fn write_number(out: &mut Vec<u8>, field: u32, number: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, number);
}

fn write_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    fn shapes(service: &str, method: &str) -> (Shape, Shape) {
        schema::of(service, method).unwrap()
    }

    #[test]
    fn what_is_written_reads_back() {
        let (start, event) = shapes("process.Process", "Start");
        let request = json!({
            "process": { "cmd": "/bin/sh", "args": ["-c", "é"], "envs": { "A": "1", "B": "" }, "cwd": "/tmp" },
            "pty": { "size": { "cols": 80, "rows": 24 } },
            "tag": "t",
            "stdin": false,
        });
        assert_eq!(decode(start, &encode(start, &request)).unwrap(), request);
        let ended =
            json!({ "event": { "end": { "exitCode": -1, "exited": false, "status": "signal: killed" } } });
        assert_eq!(decode(event, &encode(event, &ended)).unwrap(), ended);
        let (_, entry) = shapes("filesystem.Filesystem", "Stat");
        let stat = json!({ "entry": {
            "name": "a", "type": "FILE_TYPE_FILE", "path": "/a", "size": "-5000000000", "mode": 420,
            "modifiedTime": "2024-02-29T12:00:00.123456789Z", "metadata": { "k": "v" },
        } });
        assert_eq!(decode(entry, &encode(entry, &stat)).unwrap(), stat);
        let (signal, _) = shapes("process.Process", "SendSignal");
        let killing = json!({ "process": { "pid": 4_294_967_295_u32 }, "signal": "SIGNAL_SIGKILL" });
        assert_eq!(decode(signal, &encode(signal, &killing)).unwrap(), killing);
    }

    #[test]
    fn the_bytes_are_those_that_protobuf_defines() {
        let (_, event) = shapes("process.Process", "Start");
        let started = json!({ "event": { "start": { "pid": 300 } } });
        assert_eq!(encode(event, &started), [0x0a, 5, 0x0a, 3, 0x08, 0xac, 0x02]);
        let ended = json!({ "event": { "end": { "exitCode": -1 } } });
        assert_eq!(encode(event, &ended), [0x0a, 4, 0x1a, 2, 0x08, 0x01]);
        let (input, _) = shapes("process.Process", "StreamInput");
        let data = [0x12, 5, 0x12, 3, 0x0a, 1, b'x'];
        assert_eq!(decode(input, &data).unwrap(), json!({ "data": { "input": { "stdin": "eA==" } } }));
    }

    #[test]
    fn no_bytes_make_it_panic_or_keep_more_than_there_is() {
        let (start, _) = shapes("process.Process", "Start");
        for bad in [
            &[0x0a][..],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
            &[0x0a, 3, 0x0a, 5, b'x'],
            &[0xff; 11],
            &[0x08, 0x01],
            &[0x0a, 3, 0x0a, 1, 0xff],
            &[0x0b],
        ] {
            assert!(decode(start, bad).is_err(), "{bad:?}");
        }
        // A field that nobody knows is passed over.
        assert_eq!(decode(start, &[0xf8, 0x01, 0x05]).unwrap(), json!({}));
    }
}
