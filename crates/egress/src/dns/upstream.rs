//! What is said to the host's resolvers: one question, and the addresses in its answer.
//!
//! Trust: the network. A name in an answer is never taken as text: only whether it is the one that was asked for, or
//! the end of the chain of aliases that the answer itself lays out.

use std::net::IpAddr;

use blastbox_policy::Host;

use super::wire_form;

/// The types that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

impl Kind {
    const fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

const CNAME: u16 = 5;
const INTERNET: u16 = 1;
/// Records of an answer that are looked at.
const MOST_RECORDS: usize = 64;
/// Aliases that are followed within one answer.
const MOST_ALIASES: usize = 8;
/// Addresses that are taken.
const MOST_ADDRESSES: usize = 16;

/// Addresses, and how long they may be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The addresses; none where the name has none of this kind.
    pub addresses: Vec<IpAddr>,
    /// The shortest time to live on the way to them.
    pub seconds: u32,
}

/// What a packet is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// The answer.
    Answer(Answer),
    /// The answer did not fit; TCP would carry it.
    CutOff,
    /// An answer to another question.
    Another,
    /// The resolver could not answer.
    Failure,
}

/// A packet that is no answer at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

/// A question, as bytes.
#[must_use]
pub fn question(id: u16, name: &Host, kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question, and nothing else.
    bytes.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&wire_form(name));
    bytes.extend_from_slice(&kind.number().to_be_bytes());
    bytes.extend_from_slice(&INTERNET.to_be_bytes());
    bytes
}

/// Reads what came back.
pub fn answer(packet: &[u8], id: u16, name: &Host, kind: Kind) -> Result<Heard, Broken> {
    let mut at = Cursor { packet, at: 0 };
    let (their_id, flags, questions, answers) = (at.u16()?, at.u16()?, at.u16()?, at.u16()?);
    at.skip(4)?;
    if flags & 0x8000 == 0 || their_id != id || questions != 1 {
        return Ok(Heard::Another);
    }
    let wanted = wire_form(name);
    let asked = at.name()?;
    if asked != wanted || at.u16()? != kind.number() || at.u16()? != INTERNET {
        return Ok(Heard::Another);
    }
    if flags & 0x0200 != 0 {
        return Ok(Heard::CutOff);
    }
    match flags & 0xf {
        // No such name is an answer: there is no address.
        0 | 3 => {}
        _ => return Ok(Heard::Failure),
    }
    let mut records = Vec::new();
    for _ in 0..usize::from(answers).min(MOST_RECORDS) {
        records.push(at.record()?);
    }
    Ok(Heard::Answer(follow(&records, wanted, kind)))
}

/// From the name that was asked for along its aliases to addresses.
fn follow(records: &[Record<'_>], wanted: Vec<u8>, kind: Kind) -> Answer {
    let mut name = wanted;
    let mut seconds = u32::MAX;
    for _ in 0..=MOST_ALIASES {
        let of_name = || records.iter().filter(|record| record.class == INTERNET && record.name == name);
        let found: Vec<(IpAddr, u32)> = of_name()
            .filter(|record| record.kind == kind.number())
            .filter_map(|record| Some((address(kind, record.data)?, record.seconds)))
            .take(MOST_ADDRESSES)
            .collect();
        if !found.is_empty() {
            let shortest = found.iter().map(|(_, seconds)| *seconds).min().unwrap_or(0);
            let addresses = found.into_iter().map(|(address, _)| address).collect();
            return Answer { addresses, seconds: seconds.min(shortest) };
        }
        let Some(alias) = of_name().find(|record| record.kind == CNAME) else { break };
        seconds = seconds.min(alias.seconds);
        let Some(target) = alias.target.clone() else { break };
        name = target;
    }
    Answer { addresses: Vec::new(), seconds: 0 }
}

fn address(kind: Kind, data: &[u8]) -> Option<IpAddr> {
    match kind {
        Kind::A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        Kind::Aaaa => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    }
}

#[derive(Debug)]
struct Record<'p> {
    name: Vec<u8>,
    kind: u16,
    class: u16,
    seconds: u32,
    data: &'p [u8],
    /// Where an alias leads.
    target: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct Cursor<'p> {
    packet: &'p [u8],
    at: usize,
}

impl<'p> Cursor<'p> {
    fn take(&mut self, length: usize) -> Result<&'p [u8], Broken> {
        let end = self.at.checked_add(length).ok_or(Broken)?;
        let bytes = self.packet.get(self.at..end).ok_or(Broken)?;
        self.at = end;
        Ok(bytes)
    }

    fn skip(&mut self, length: usize) -> Result<(), Broken> {
        self.take(length).map(drop)
    }

    fn u8(&mut self) -> Result<u8, Broken> {
        self.take(1)?.first().copied().ok_or(Broken)
    }

    fn u16(&mut self) -> Result<u16, Broken> {
        Ok(u16::from_be_bytes(self.take(2)?.try_into().map_err(|_| Broken)?))
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Broken)?))
    }

    /// A name, with its pointers followed. Each pointer must lead further to the front, so that it ends.
    fn name(&mut self) -> Result<Vec<u8>, Broken> {
        let mut name = Vec::new();
        let mut reader = *self;
        let mut after = None;
        loop {
            let start = reader.at;
            match reader.u8()? {
                0 => {
                    name.push(0);
                    self.at = after.unwrap_or(reader.at);
                    return Ok(name);
                }
                length @ 1..=63 => {
                    let label = reader.take(usize::from(length))?;
                    name.push(length);
                    name.extend(label.iter().map(u8::to_ascii_lowercase));
                }
                high @ 0xc0..=0xff => {
                    let to = usize::from(high & 0x3f) << 8 | usize::from(reader.u8()?);
                    after = after.or(Some(reader.at));
                    if to >= start {
                        return Err(Broken);
                    }
                    reader.at = to;
                }
                64..=0xbf => return Err(Broken),
            }
            if name.len() > 255 {
                return Err(Broken);
            }
        }
    }

    fn record(&mut self) -> Result<Record<'p>, Broken> {
        let name = self.name()?;
        let (kind, class, seconds, length) = (self.u16()?, self.u16()?, self.u32()?, self.u16()?);
        let mut inside = *self;
        let data = self.take(usize::from(length))?;
        let target = if kind == CNAME { Some(inside.name()?) } else { None };
        Ok(Record { name, kind, class, seconds, data, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    /// An answer to `name` with these records: (owner, type, time to live, data).
    fn packet(id: u16, flags: u16, name: &str, kind: Kind, records: &[(&str, u16, u32, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = question(id, &host(name), kind);
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
        for (owner, kind, seconds, data) in records {
            bytes.extend(wire_form(&host(owner)));
            bytes.extend(kind.to_be_bytes());
            bytes.extend(INTERNET.to_be_bytes());
            bytes.extend(seconds.to_be_bytes());
            bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    fn read(packet: &[u8], name: &str) -> Heard {
        answer(packet, 7, &host(name), Kind::A).unwrap()
    }

    #[test]
    fn addresses_are_taken_along_the_aliases_that_the_answer_lays_out() {
        let alias = wire_form(&host("b.test"));
        let records = [
            ("a.test", CNAME, 30, alias),
            ("b.test", 1, 60, vec![1, 2, 3, 4]),
            ("other.test", 1, 60, vec![9, 9, 9, 9]),
        ];
        let heard = read(&packet(7, 0x8180, "a.test", Kind::A, &records), "a.test");
        assert_eq!(heard, Heard::Answer(Answer { addresses: vec![[1, 2, 3, 4].into()], seconds: 30 }));
    }

    #[test]
    fn answers_to_other_questions_are_not_taken() {
        let records = [("a.test", 1, 60, vec![1, 2, 3, 4])];
        assert_eq!(read(&packet(8, 0x8180, "a.test", Kind::A, &records), "a.test"), Heard::Another);
        assert_eq!(read(&packet(7, 0x8180, "b.test", Kind::A, &records), "a.test"), Heard::Another);
        assert_eq!(read(&packet(7, 0x8180, "a.test", Kind::Aaaa, &records), "a.test"), Heard::Another);
        assert_eq!(read(&packet(7, 0x0180, "a.test", Kind::A, &records), "a.test"), Heard::Another);
    }

    #[test]
    fn no_name_cut_off_and_failure_are_told_apart() {
        let nothing = Heard::Answer(Answer { addresses: vec![], seconds: 0 });
        assert_eq!(read(&packet(7, 0x8183, "a.test", Kind::A, &[]), "a.test"), nothing);
        assert_eq!(read(&packet(7, 0x8380, "a.test", Kind::A, &[]), "a.test"), Heard::CutOff);
        assert_eq!(read(&packet(7, 0x8182, "a.test", Kind::A, &[]), "a.test"), Heard::Failure);
    }

    #[test]
    fn circles_end() {
        let (a, b) = (wire_form(&host("a.test")), wire_form(&host("b.test")));
        let records = [("a.test", CNAME, 30, b), ("b.test", CNAME, 30, a)];
        let heard = read(&packet(7, 0x8180, "a.test", Kind::A, &records), "a.test");
        assert_eq!(heard, Heard::Answer(Answer { addresses: vec![], seconds: 0 }));
        let mut pointer = packet(7, 0x8180, "a.test", Kind::A, &[]);
        pointer[7] = 1;
        let here = u8::try_from(pointer.len()).unwrap();
        pointer.extend([0xc0, here, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer(&pointer, 7, &host("a.test"), Kind::A), Err(Broken));
    }
}
