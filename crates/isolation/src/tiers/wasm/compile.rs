//! A module or component that a caller brings becomes a guest: compiled once, in a process of its own, kept by its hash.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FileType;

use super::found::is_plain;
use super::{Form, Guests, Metering};

/// The compiler's program.
const COMPILER: &str = "blastbox-wasm-compile";
/// Longest complaint of the compiler that is passed on.
const MOST_WORDS: usize = 500;
/// What the compiler says behind the hash of a component.
const COMPONENT: &str = " component";
/// Digits of a hash.
const HASH: usize = 64;

/// A guest that was made from the caller's module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The directory that it alone lies in.
    pub directory: PathBuf,
    /// What it is called.
    pub name: String,
    /// What it is.
    pub form: Form,
}

/// Why a module did not become a guest.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The name says nothing.
    #[error("{} has no name that a guest can have: letters, digits, - and _, at most 80", .0.display())]
    Name(PathBuf),
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
#[expect(clippy::disallowed_methods, reason = "isolation starts processes")]
pub fn compile(
    guests: &Guests,
    metering: Metering,
    module: &Path,
    cache: &Path,
) -> Result<Compiled, CompileError> {
    let stem = module.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_plain(stem));
    let name = stem.ok_or_else(|| CompileError::Name(module.to_owned()))?.to_owned();
    if !guests.runs(Form::Component) && is_component(module) {
        return Err(CompileError::NoComponentWorker(module.to_owned()));
    }
    let usable = |source| CompileError::Cache { path: cache.to_owned(), source };
    own(cache).map_err(usable)?;
    let program = guests.directory().join(COMPILER);
    let start = |source| CompileError::Start { path: program.clone(), source };
    let ended = Command::new(&program)
        .args((metering == Metering::Fuel).then_some("--metered"))
        .arg("keep")
        .arg(module)
        .arg(cache)
        .arg(&name)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(start)?;
    if ended.status.code().is_none() {
        return Err(CompileError::Ended(module.to_owned()));
    }
    let said = if ended.status.success() { &ended.stdout } else { &ended.stderr };
    let said: String = String::from_utf8_lossy(said).chars().take(MOST_WORDS).collect();
    if !ended.status.success() {
        return Err(CompileError::Refused(said.trim().to_owned()));
    }
    let (hash, form) = match said.trim().strip_suffix(COMPONENT) {
        Some(hash) => (hash, Form::Component),
        None => (said.trim(), Form::Module),
    };
    match place(cache, hash) {
        // It was another file when it was looked at first.
        Ok(Some(_)) if !guests.runs(form) => Err(CompileError::NoComponentWorker(module.to_owned())),
        Ok(Some(directory)) => Ok(Compiled { directory, name, form }),
        Ok(None) => Err(CompileError::Unclear { program, module: module.to_owned() }),
        Err(source) => Err(CompileError::Cache { path: cache.join(hash), source }),
    }
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
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if said.len() != HASH || !said.bytes().all(is_digit) {
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
