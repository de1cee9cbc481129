//! What a gateway reports: every connection and every question, allowed and denied.

use std::fmt;
use std::net::IpAddr;

use super::{address, read_address};
use crate::codec::{CodecError, Reader, Writer};

/// Longest name, rule or explanation in a record. Longer text is cut by the writer.
const LONGEST: usize = 512;

/// By which way a connection came to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Door {
    /// As packets.
    Link = 1,
    /// By HTTP CONNECT.
    Connect = 2,
    /// By SOCKS5.
    Socks = 3,
    /// As a request that the engine brought, of a box without a link.
    Call = 4,
}

/// What a connection of the box has carried, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "text", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Carried {
    /// Bytes from the box.
    pub sent: u64,
    /// Bytes to the box.
    pub received: u64,
    /// How long it lasted.
    pub millis: u64,
}

/// One thing that happened at the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case", tag = "what"))]
pub enum Record {
    /// A DNS question.
    Question {
        /// The name, as far as it is one.
        name: String,
        /// The type that was asked for, as DNS numbers it.
        kind: u16,
        /// Why it was answered with nothing; `None` where it was answered.
        denied: Option<Reason>,
        /// How often the same came, this one included.
        count: u32,
    },
    /// A connection, a packet or a request that was refused.
    Denied {
        /// The connection that it came in, where one was open already; 0 where none was.
        flow: u64,
        /// By which way.
        door: Door,
        /// The name, or the address where there was none.
        target: String,
        /// The port.
        port: u16,
        /// Where it went, as far as that is known: the address that the box named itself, or the last one that its target was
        /// found at. Never one that only stands for a name.
        address: Option<IpAddr>,
        /// Why.
        reason: Reason,
        /// How often the same came, this one included.
        count: u32,
        /// What it had carried until then; of all of them together, where it stands for several.
        #[cfg_attr(feature = "text", serde(flatten))]
        carried: Carried,
    },
    /// A connection that has been made.
    Opened {
        /// Its number, never used again by this gateway.
        flow: u64,
        /// By which way.
        door: Door,
        /// The name, or the address where there was none.
        target: String,
        /// The port.
        port: u16,
        /// The address that was dialled.
        address: IpAddr,
        /// The rule that allowed it, by its host as written.
        rule: String,
    },
    /// A connection that was let in has ended, also one that came to nothing.
    Closed {
        /// Its number.
        flow: u64,
        /// The name, or the address where there was none.
        target: String,
        /// The port.
        port: u16,
        /// What it has carried.
        #[cfg_attr(feature = "text", serde(flatten))]
        carried: Carried,
        /// What ended it, where it was neither of both sides.
        reason: Option<Reason>,
    },
    /// A secret was put into a request that is about to be sent.
    Lent {
        /// The connection.
        flow: u64,
        /// The secret's name. Its value is in no record.
        secret: String,
        /// The host that it goes to.
        target: String,
        /// The port.
        port: u16,
        /// Method and path of the request.
        request: String,
    },
    /// So many records could not be told: the engine did not read them in time.
    Lost {
        /// How many.
        count: u32,
    },
}

/// Declares [`Reason`] with its numbers and words. Numbers are never used again.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $word:literal;)+) => {
        /// Why something was refused or ended. Append-only: ledgers and alerts key on the words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $variant,)+ }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            const fn number(self) -> u8 {
                match self { $(Self::$variant => $number),+ }
            }

            /// `None` stands for no reason.
            fn from_number(number: u8) -> Result<Option<Self>, CodecError> {
                match number {
                    0 => Ok(None),
                    $($number => Ok(Some(Self::$variant)),)+
                    other => Err(CodecError::Unknown(u32::from(other), "reason")),
                }
            }
        }
    };
}

reasons! {
    /// No rule names the host.
    HostNotAllowed = 1, "host-not-allowed";
    /// Rules name the host, but not this port.
    PortNotAllowed = 2, "port-not-allowed";
    /// An address without a name, and no rule names the address.
    AddressNotAllowed = 3, "address-not-allowed";
    /// What should be a host name is none.
    BadName = 4, "bad-name";
    /// Every address of the name is below the floor.
    ForbiddenAddress = 5, "forbidden-address";
    /// The name, or the address, is a cloud's metadata service.
    MetadataAddress = 6, "metadata-address";
    /// The address is one of the host's own.
    OwnAddress = 7, "own-address";
    /// The name has no address.
    NameNotFound = 8, "name-not-found";
    /// The address did not take the connection.
    Unreachable = 9, "unreachable";
    /// TLS without a server name.
    NameMissing = 10, "tls-name-missing";
    /// The name in TLS is another than the one that was connected to.
    NameMismatch = 11, "tls-name-mismatch";
    /// The name in TLS is encrypted.
    EncryptedName = 12, "tls-name-encrypted";
    /// Something else than TLS where the rule says TLS.
    NotTls = 13, "not-tls";
    /// A transport that does not pass: UDP, ICMP, others.
    Transport = 14, "transport-not-allowed";
    /// QUIC. Clients fall back to TCP.
    Quic = 15, "quic-not-allowed";
    /// Another resolver than the gateway, in whatever protocol.
    Resolver = 16, "resolver-not-allowed";
    /// A packet whose sender is not the box, or that is no packet.
    BadPacket = 17, "bad-packet";
    /// Too many connections at the same time.
    FlowLimit = 18, "flow-limit";
    /// Too many new connections or questions in a second.
    RateLimit = 19, "rate-limit";
    /// The box has used up its bytes.
    ByteLimit = 20, "byte-limit";
    /// The box has used up its bytes for this host.
    HostByteLimit = 21, "host-byte-limit";
    /// Too many different names under one wildcard.
    NameBudget = 22, "name-budget";
    /// A type of question that is not answered.
    QuestionKind = 23, "question-kind";
    /// The other side took too long.
    Timeout = 24, "timeout";
    /// Rules that came later no longer allow it.
    RulesChanged = 25, "rules-changed";
    /// The method is not in the rule.
    MethodNotAllowed = 26, "method-not-allowed";
    /// The path is not in the rule.
    PathNotAllowed = 27, "path-not-allowed";
    /// The request names another host than the connection.
    AuthorityMismatch = 28, "authority-mismatch";
    /// The request is ambiguous or malformed.
    BadRequest = 29, "bad-request";
    /// The connection may not become something else than HTTP.
    UpgradeNotAllowed = 30, "upgrade-not-allowed";
    /// The host's certificate does not hold, for another reason than those that have a word of their own.
    BadCertificate = 31, "bad-certificate";
    /// A credential, or what stands for one, where it does not belong.
    CredentialMisplaced = 32, "credential-misplaced";
    /// A credential could not be had.
    CredentialUnavailable = 33, "credential-unavailable";
    /// The other side broke its protocol.
    BrokenUpstream = 34, "broken-upstream";
    /// The rule needs requests to be read, and nobody is there to read them.
    InspectionNotBuilt = 35, "inspection-not-built";
    /// The use of a credential could not be recorded, so it was not used.
    NotRecorded = 36, "not-recorded";
    /// The host's certificate has expired.
    CertificateExpired = 37, "certificate-expired";
    /// The host's certificate has an issuer that nobody here believes.
    CertificateIssuer = 38, "certificate-issuer-unknown";
    /// The host's certificate is for another name.
    CertificateName = 39, "certificate-name-mismatch";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "text")]
impl serde::Serialize for Reason {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl Record {
    pub(super) fn encode(&self, to: &mut Writer) {
        match self {
            Self::Question { name, kind, denied, count } => {
                to.u8(1);
                text(to, name);
                to.u16(*kind);
                to.u8(denied.map_or(0, Reason::number));
                to.u32(*count);
            }
            Self::Denied { flow, door, target, port, address: found, reason, count, carried } => {
                to.u8(2);
                to.u64(*flow);
                to.u8(*door as u8);
                text(to, target);
                to.u16(*port);
                to.list(found.as_slice(), |to, found| address(to, *found));
                to.u8(reason.number());
                to.u32(*count);
                carried.encode(to);
            }
            Self::Opened { flow, door, target, port, address: dialled, rule } => {
                to.u8(3);
                to.u64(*flow);
                to.u8(*door as u8);
                text(to, target);
                to.u16(*port);
                address(to, *dialled);
                text(to, rule);
            }
            Self::Closed { flow, target, port, carried, reason } => {
                to.u8(4);
                to.u64(*flow);
                text(to, target);
                to.u16(*port);
                carried.encode(to);
                to.u8(reason.map_or(0, Reason::number));
            }
            Self::Lent { flow, secret, target, port, request } => {
                to.u8(6);
                to.u64(*flow);
                text(to, secret);
                text(to, target);
                to.u16(*port);
                text(to, request);
            }
            Self::Lost { count } => {
                to.u8(5);
                to.u32(*count);
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(match from.u8()? {
            1 => Self::Question {
                name: read_text(from)?,
                kind: from.u16()?,
                denied: Reason::from_number(from.u8()?)?,
                count: from.u32()?,
            },
            2 => Self::Denied {
                flow: from.u64()?,
                door: Door::from_number(from.u8()?)?,
                target: read_text(from)?,
                port: from.u16()?,
                address: from.list(1, read_address)?.pop(),
                reason: Reason::from_number(from.u8()?)?.ok_or(CodecError::Invalid("reason"))?,
                count: from.u32()?,
                carried: Carried::decode(from)?,
            },
            3 => Self::Opened {
                flow: from.u64()?,
                door: Door::from_number(from.u8()?)?,
                target: read_text(from)?,
                port: from.u16()?,
                address: read_address(from)?,
                rule: read_text(from)?,
            },
            4 => Self::Closed {
                flow: from.u64()?,
                target: read_text(from)?,
                port: from.u16()?,
                carried: Carried::decode(from)?,
                reason: Reason::from_number(from.u8()?)?,
            },
            5 => Self::Lost { count: from.u32()? },
            6 => Self::Lent {
                flow: from.u64()?,
                secret: read_text(from)?,
                target: read_text(from)?,
                port: from.u16()?,
                request: read_text(from)?,
            },
            other => return Err(CodecError::Unknown(u32::from(other), "record")),
        })
    }
}

impl Door {
    fn from_number(number: u8) -> Result<Self, CodecError> {
        let known = [Self::Link, Self::Connect, Self::Socks, Self::Call];
        let unknown = CodecError::Unknown(u32::from(number), "door");
        known.into_iter().find(|door| *door as u8 == number).ok_or(unknown)
    }
}

impl Carried {
    fn encode(self, to: &mut Writer) {
        [self.sent, self.received, self.millis].into_iter().for_each(|number| to.u64(number));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self { sent: from.u64()?, received: from.u64()?, millis: from.u64()? })
    }
}

/// Text, cut to what a reader takes.
pub(super) fn text(to: &mut Writer, text: &str) {
    let bytes = text.as_bytes();
    to.bytes(bytes.get(..LONGEST).unwrap_or(bytes));
}

/// Text of somebody who may be broken: what is not UTF-8 is replaced, and control characters are escaped, because it
/// ends on terminals.
pub(super) fn read_text(from: &mut Reader<'_>) -> Result<String, CodecError> {
    let text = String::from_utf8_lossy(from.bytes(LONGEST)?).into_owned();
    if !text.chars().any(char::is_control) {
        return Ok(text);
    }
    let mut shown: String = text
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    // It has become longer than it came: whoever passes it on says the same.
    shown.truncate(shown.floor_char_boundary(LONGEST));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(record: &Record) -> Record {
        let mut to = Writer::default();
        record.encode(&mut to);
        let bytes = to.finish();
        let mut from = Reader::new(&bytes);
        let read = Record::decode(&mut from).unwrap();
        from.end().unwrap();
        read
    }

    #[test]
    fn every_record_reads_back() {
        let target = || "api.example.com".to_owned();
        for record in [
            Record::Question { name: target(), kind: 1, denied: Some(Reason::HostNotAllowed), count: 7 },
            Record::Question { name: target(), kind: 28, denied: None, count: 1 },
            Record::Denied {
                flow: 0,
                door: Door::Socks,
                target: target(),
                port: 80,
                address: None,
                reason: Reason::Quic,
                count: 2,
                carried: Carried::default(),
            },
            Record::Denied {
                flow: 9,
                door: Door::Call,
                target: target(),
                port: 80,
                address: Some("192.0.2.1".parse().unwrap()),
                reason: Reason::Unreachable,
                count: 1,
                carried: Carried { sent: 1, received: 2, millis: u64::MAX },
            },
            Record::Opened {
                flow: 3,
                door: Door::Link,
                target: target(),
                port: 443,
                address: "2606:4700::1".parse().unwrap(),
                rule: "*.example.com".to_owned(),
            },
            Record::Closed {
                flow: 3,
                target: target(),
                port: 443,
                carried: Carried { sent: 1, received: 2, millis: 3 },
                reason: Some(Reason::ByteLimit),
            },
            Record::Lost { count: 9 },
            Record::Lent {
                flow: 4,
                secret: "github".to_owned(),
                target: target(),
                port: 443,
                request: "GET /user".to_owned(),
            },
        ] {
            assert_eq!(round(&record), record);
        }
    }

    #[test]
    fn every_reason_has_a_number_and_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(Reason::from_number(reason.number()), Ok(Some(*reason)));
        }
    }

    #[test]
    fn text_from_the_box_is_cut_and_cannot_move_a_cursor() {
        let name = format!("\u{1b}[2J{}", "a".repeat(10_000));
        let Record::Question { name, .. } =
            round(&Record::Question { name, kind: 1, denied: None, count: 1 })
        else {
            panic!("another record");
        };
        assert!(name.len() <= LONGEST && !name.contains('\u{1b}'), "{name}");
        // Escaped it is longer than it came, and is the same when it is passed on.
        let name = "\0".repeat(LONGEST);
        let once = round(&Record::Question { name, kind: 1, denied: None, count: 1 });
        assert_eq!(round(&once), once);
    }
}
