//! A module or component that a caller brings becomes a guest: compiled once, in a process of its own, kept by its hash.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use blastbox_images::{Form, ModuleImage};
use blastbox_policy::GuestName;
use rustix::fs::FileType;

use super::{Compilers, Guests, Metering};
use crate::outside::{self, Compiler};

/// The compiler's program.
pub(super) const COMPILER: &str = "blastbox-wasm-compile";
/// Longest complaint of the compiler that is passed on.
const MOST_WORDS: usize = 500;
/// What the compiler says behind the hash of a component.
const COMPONENT: &str = " component";
/// What it says before the hash of a module that was not compiled.
const MISSING: &str = "none ";
/// Digits of a hash.
const HASH: usize = 64;

/// How much is done for a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As much as interpreters need: whoever asks pays for it.
    Whole,
    /// Less time, memory and code, giving way to the daemon, and nothing without whoever asked: somebody else pays.
    Brief,
}

impl Effort {
    /// Bytes of machine code at most that come of it. As the compiler has it.
    #[must_use]
    pub const fn most_code(self) -> u64 {
        match self {
            Self::Whole => 1 << 30,
            Self::Brief => 256 << 20,
        }
    }
}

/// What is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Compiling<'a> {
    /// The module or component.
    pub module: &'a Path,
    /// What the guest is called.
    pub name: &'a GuestName,
    /// Whether it is to count its work.
    pub metering: Metering,
    /// How much is done for it.
    pub effort: Effort,
    /// Where compiled ones are kept.
    pub cache: &'a Path,
    /// Among whom it is compiled: whoever has them may end it.
    pub among: &'a Compilers,
}

/// What lies in the cache of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Its machine code for this engine, held against its hashes.
    Whole(ModuleImage),
    /// None that could be run.
    Missing {
        /// The hash of the module, as 64 digits.
        digest: String,
    },
}

/// Why a module did not become a guest.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// It is a component, and nobody here runs one.
    #[error(
        "wasm_no_component_worker: {} is a component, and blastbox-wasm-component is not installed beside blastbox-wasm", .0.display()
    )]
    NoComponentWorker(PathBuf),
    /// The compiler could not be started.
    #[error("cannot start {}", path.display())]
    Start {
        /// Which program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory for compiled modules cannot be used.
    #[error("cannot use {} for compiled modules", path.display())]
    Cache {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The compiler refused the module, with a code in front.
    #[error("{0}")]
    Refused(String),
    /// The compiler did not say what it made.
    #[error("{} did not say which guest it made of {}; run `make wasm`", program.display(), module.display())]
    Unclear {
        /// Which program.
        program: PathBuf,
        /// Of what.
        module: PathBuf,
    },
    /// The compiler was ended, most often by one of its limits.
    #[error("wasm_compile_limit: the compiler was ended while it compiled {}: over its limit of time or memory", .0.display())]
    Ended(PathBuf),
    /// Whoever asked for it ends.
    #[error("the compiler was ended, and none is started any more: whoever asked for it is ending")]
    Stopped,
}

/// Makes the cache, or refuses one that somebody else can write to: what lies there is run.
fn own(cache: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
    is_own(&rustix::fs::stat(cache)?)
}

/// Refuses what somebody else can write to.
fn is_own(found: &rustix::fs::Stat) -> io::Result<()> {
    let why = if found.st_uid != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.st_mode & 0o022 != 0 {
        "others can write to it"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Compiles a module into a directory of its own beneath `cache`, unless the same bytes were compiled before.
///
/// # Errors
/// What the compiler said.
pub fn compile(guests: &Guests, what: Compiling<'_>) -> Result<ModuleImage, CompileError> {
    let said = ask(guests, what, "keep")?;
    read(guests, what, &said)
}

/// Looks whether it would be compiled, without doing so.
///
/// # Errors
/// What the compiler said.
pub fn look(guests: &Guests, what: Compiling<'_>) -> Result<Kept, CompileError> {
    let said = ask(guests, what, "kept")?;
    match said.strip_prefix(MISSING) {
        Some(digest) if is_hash(digest) => Ok(Kept::Missing { digest: digest.to_owned() }),
        Some(_) => Err(unclear(guests, what)),
        None => read(guests, what, &said).map(Kept::Whole),
    }
}

/// Has the compiler do this. Returns what it says.
fn ask(guests: &Guests, what: Compiling<'_>, verb: &str) -> Result<String, CompileError> {
    let Compiling { module, name, metering, effort, cache, among } = what;
    if !guests.runs(Form::Component) && is_component(module) {
        return Err(CompileError::NoComponentWorker(module.to_owned()));
    }
    own(cache).map_err(|source| CompileError::Cache { path: cache.to_owned(), source })?;
    let program = guests.directory().join(COMPILER);
    let start = |source| CompileError::Start { path: program.clone(), source };
    let flags = [(effort == Effort::Brief, "--brief"), (metering == Metering::Fuel, "--metered")];
    let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| OsString::from(flag));
    let words = [OsString::from(verb), module.into(), cache.into(), name.as_str().into()];
    let compiler = Compiler { program: program.clone(), words: flags.chain(words).collect() };
    let heard = outside::compile(compiler).and_then(|child| among.hear(child));
    if among.are_over() {
        return Err(CompileError::Stopped);
    }
    let ended = heard.map_err(start)?;
    if ended.status.code().is_none() {
        return Err(CompileError::Ended(module.to_owned()));
    }
    let said = if ended.status.success() { &ended.stdout } else { &ended.stderr };
    let said: String = String::from_utf8_lossy(said).chars().take(MOST_WORDS).collect();
    let said = said.trim().to_owned();
    if ended.status.success() { Ok(said) } else { Err(CompileError::Refused(said)) }
}

/// The guest that it says.
fn read(guests: &Guests, what: Compiling<'_>, said: &str) -> Result<ModuleImage, CompileError> {
    let (words, form) = match said.strip_suffix(COMPONENT) {
        Some(words) => (words, Form::Component),
        None => (said, Form::Module),
    };
    let words = words.split_once(' ').filter(|(_, digest)| is_hash(digest));
    let (key, digest) = words.ok_or_else(|| unclear(guests, what))?;
    match place(what.cache, key) {
        // It was another file when it was looked at first.
        Ok(Some(_)) if !guests.runs(form) => Err(CompileError::NoComponentWorker(what.module.to_owned())),
        Ok(Some(directory)) => {
            let (name, digest) = (what.name.as_str().to_owned(), digest.to_owned());
            Ok(ModuleImage { directory, name, form, digest })
        }
        Ok(None) => Err(unclear(guests, what)),
        Err(source) => Err(CompileError::Cache { path: what.cache.join(key), source }),
    }
}

fn unclear(guests: &Guests, what: Compiling<'_>) -> CompileError {
    CompileError::Unclear { program: guests.directory().join(COMPILER), module: what.module.to_owned() }
}

fn is_hash(said: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    said.len() == HASH && said.bytes().all(is_digit)
}

/// Whether a file says of itself that it is a component. Of one that cannot be read the compiler says why.
fn is_component(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(8).read_to_end(&mut head));
    read.is_ok() && head.starts_with(b"\0asm") && head.get(6..8) == Some(&[1, 0])
}

/// The directory that the compiler means. It says a hash, and nothing else is looked at: what it says decides which directory of the
/// host is shown in a box, and it has handled a stranger's module. One that was put there while others could write to the cache
/// may be theirs.
fn place(cache: &Path, said: &str) -> io::Result<Option<PathBuf>> {
    if !is_hash(said) {
        return Ok(None);
    }
    let place = cache.join(said);
    match rustix::fs::lstat(&place) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            is_own(&found).map(|()| Some(place))
        }
        Ok(_) | Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hash_beneath_the_cache_is_ever_shown() {
        let cache = std::env::temp_dir().join(format!("blastbox-compiled-{}", std::process::id()));
        let (hash, link) = ("0a".repeat(32), "1b".repeat(32));
        std::fs::create_dir_all(cache.join(&hash)).unwrap();
        std::os::unix::fs::symlink("/etc", cache.join(&link)).unwrap();
        assert_eq!(place(&cache, &hash).unwrap(), Some(cache.join(&hash)));
        let whole = cache.join(&hash).display().to_string();
        let (upper, longer, beneath) = (hash.to_uppercase(), format!("{hash}/.."), format!("../{hash}"));
        for said in ["", "/", "/etc", "..", &whole, &upper, &longer, &beneath, &link, &"2c".repeat(32)] {
            assert_eq!(place(&cache, said).unwrap(), None, "{said}");
        }
        std::fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn what_another_user_may_have_put_into_the_cache_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let cache = std::env::temp_dir().join(format!("blastbox-foreign-{}", std::process::id()));
        let hash = "0a".repeat(32);
        std::fs::create_dir_all(cache.join(&hash)).unwrap();
        let mode = |mode| {
            std::fs::set_permissions(cache.join(&hash), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o775);
        assert!(place(&cache, &hash).unwrap_err().to_string().contains("others can write"));
        mode(0o755);
        assert!(place(&cache, &hash).unwrap().is_some());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(cache.join(&hash), Some(65_534), None).unwrap();
            assert!(place(&cache, &hash).unwrap_err().to_string().contains("another user"));
        }
        std::fs::remove_dir_all(&cache).unwrap();
    }
}
