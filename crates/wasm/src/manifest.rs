//! What lies beside a compiled guest: what it is, what it was made from, and for which engine.
//!
//! Trust: the host's own files. Read strictly all the same: a shelf may be old, half written, or another version's.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::engine::Metering;
use crate::pages::Pages;

/// First line of every manifest.
const FIRST: &str = "blastbox guest 1";
/// Longest manifest that is read.
pub const MOST: usize = 4096;
/// Files up to this size are hashed whole each time they are loaded. A larger one takes longer to hash than a box lives: it is hashed
/// unless it looks as it did when that was last done ([`crate::seal`]).
pub const HASHED_ALWAYS: u64 = 16 << 20;

/// SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// The hash of what comes piece by piece.
#[derive(Debug, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// These bytes too.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of everything.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How a guest is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// CPython as a reactor: source text in, output out.
    Python,
    /// The same, with numpy, pandas and scipy in its image.
    PythonData,
    /// QuickJS as a reactor.
    Js,
    /// A WASI command: `_start`.
    Module,
    /// A WASI 0.2 command: `wasi:cli/run`.
    Component,
}

impl Kind {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Python, "python"),
        (Self::PythonData, "python-data"),
        (Self::Js, "js"),
        (Self::Module, "module"),
        (Self::Component, "component"),
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The kind that the word means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
}

/// Whether bytes say of themselves that they are a component; all else is taken for a module. Nothing is looked at but the eight that
/// come first.
#[must_use]
pub fn is_component(wasm: &[u8]) -> bool {
    wasm.starts_with(b"\0asm") && wasm.get(6..8) == Some(&[1, 0])
}

/// What a guest begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// The memory that its module has. No interpreter is run like that: it has not begun.
    Bare,
    /// The image of one that has begun.
    FromImage,
}

/// How the line of a library begins.
const LIBRARY: &str = "library ";
/// What the word for a kind ends with where there is an image.
const IMAGE: &str = " image";

/// What is known of one compiled guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// How it is run.
    pub kind: Kind,
    /// What it begins with.
    pub begins: Begins,
    /// Hash of the module that it was made from; with an image, of that and of what was done in it ([`crate::image::origin`]).
    pub wasm: Hash,
    /// Hash of the machine code.
    pub code: Hash,
    /// Bytes of the machine code.
    pub size: u64,
    /// Whether the code counts its work.
    pub metering: Metering,
    /// Hash of the library beside it, if it needs one. Older versions did not say it.
    pub library: Option<Hash>,
    /// What its first command writes to. A hint: nothing but time depends on it.
    pub writes: Pages,
}

/// Why a manifest is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    /// Made for another engine.
    #[error("it was compiled for {found:?} and this worker is {wanted:?}")]
    OtherEngine {
        /// What it says.
        found: String,
        /// What it should say.
        wanted: &'static str,
    },
    /// Not a manifest.
    #[error("its manifest is malformed")]
    Malformed,
}

impl Manifest {
    /// Reads one of code that counts its work, or does not.
    pub fn parse(text: &str, metering: Metering) -> Result<Self, BadManifest> {
        let mut lines = text.lines();
        let mut value = |key: &str| {
            let line = lines.next().ok_or(BadManifest::Malformed)?;
            line.strip_prefix(key).map(str::trim).ok_or(BadManifest::Malformed)
        };
        value(FIRST)?;
        let engine = value("engine ")?;
        let wanted = metering.label();
        if engine != wanted {
            return Err(BadManifest::OtherEngine { found: engine.chars().take(80).collect(), wanted });
        }
        let hash = |text: &str| Hash::parse(text).ok_or(BadManifest::Malformed);
        let kind = value("kind ")?;
        let (kind, begins) =
            kind.strip_suffix(IMAGE).map_or((kind, Begins::Bare), |kind| (kind, Begins::FromImage));
        let told = Self {
            kind: Kind::parse(kind).ok_or(BadManifest::Malformed)?,
            begins,
            wasm: hash(value("wasm ")?)?,
            code: hash(value("code ")?)?,
            size: value("size ")?.parse().map_err(|_| BadManifest::Malformed)?,
            metering,
            library: None,
            writes: Pages::default(),
        };
        let mut lines = lines.peekable();
        let library = lines.next_if(|line| line.starts_with(LIBRARY));
        let library = library.map(|line| hash(line.strip_prefix(LIBRARY).unwrap_or_default())).transpose()?;
        let told = Self { library, ..told };
        // Older versions did not say it: then each page is copied when it is written to.
        let Some(writes) = lines.next() else { return Ok(told) };
        let writes = writes.strip_prefix("writes ").and_then(Pages::parse).ok_or(BadManifest::Malformed)?;
        Ok(Self { writes, ..told })
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, begins, wasm, code, size, metering, library, writes } = self;
        let (kind, engine) = (kind.as_str(), metering.label());
        let image = if *begins == Begins::FromImage { IMAGE } else { "" };
        write!(f, "{FIRST}\nengine {engine}\nkind {kind}{image}\nwasm {wasm}\ncode {code}\nsize {size}\n")?;
        library.iter().try_for_each(|hash| writeln!(f, "{LIBRARY}{hash}"))?;
        if writes.is_empty() { Ok(()) } else { writeln!(f, "writes {writes}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Manifest {
        let metering = Metering::None;
        let (kind, begins) = (Kind::Js, Begins::FromImage);
        Manifest {
            kind,
            begins,
            wasm: Hash::of(b"a"),
            code: Hash::of(b"b"),
            size: 7,
            metering,
            library: Some(Hash::of(b"c")),
            writes: Pages::parse("3+2 9+1").unwrap(),
        }
    }

    fn read(text: &str) -> Result<Manifest, BadManifest> {
        Manifest::parse(text, Metering::None)
    }

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(read(&good().to_string()), Ok(good()));
        let bare = Manifest { begins: Begins::Bare, library: None, writes: Pages::default(), ..good() };
        assert!(!bare.to_string().contains("writes") && !bare.to_string().contains("library"));
        assert_eq!(read(&bare.to_string()), Ok(bare));
    }

    #[test]
    fn one_for_another_engine_is_named_as_such() {
        let text = good().to_string().replace("48.0.8", "48.0.7");
        assert!(matches!(read(&text), Err(BadManifest::OtherEngine { .. })));
        let metered = Manifest { metering: Metering::Fuel, ..good() };
        assert!(matches!(read(&metered.to_string()), Err(BadManifest::OtherEngine { .. })));
        assert_eq!(Manifest::parse(&metered.to_string(), Metering::Fuel), Ok(metered));
    }

    #[test]
    fn nonsense_is_malformed() {
        let good = good().to_string();
        for text in [
            "",
            "x",
            &good.replace("js", "perl"),
            &good.replace("size 7", "size many"),
            &good[..40],
            &good.replace("writes", "reads"),
            &good.replace("9+1", "4+1"),
            &good.replace("library ", "library 0"),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
