//! The kernels that guests start with: a directory of the image store, one folder for each, called by digest.
//!
//! No kernel comes with blastbox. Whoever has one adds it, with just the modules that guests need.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use blastbox_wire::event::Hash;
use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::cpio::{Archive, Entry};
use super::drivers::{CARD, DRIVERS, OVERLAY, module_name};
use super::error::MachineError;
use super::fresh;
use super::looks::Looks;

/// The directory in the store.
pub(crate) const KERNELS: &str = "kernels";
const CURRENT: &str = "current";
const KERNEL: &str = "kernel";
const FACTS: &str = "kernel.json";
const MODULES: &str = "modules";
/// More than any kernel has, and any module.
const MOST_KERNEL: u64 = 256 << 20;
const MOST_MODULE: u64 = 32 << 20;
/// More than the list of any kernel's built-in modules has.
const MOST_LIST: u64 = 4 << 20;
/// Files and directories that are looked at for modules.
const MOST_ENTRIES: usize = 100_000;
/// First files of other agents than this one are kept so long: who has just found one may be about to use it.
const STALE: Duration = Duration::from_secs(86_400);

/// What is known of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFacts {
    /// The digest over the kernel and its modules.
    pub digest: Hash,
    /// What it calls itself.
    pub release: String,
    /// Its size in bytes, without modules.
    pub bytes: u64,
    /// The modules that guests get, in the order of loading.
    pub modules: Vec<String>,
    /// Whether a guest can have a network card. Kernels that were added before anybody asked had no driver for one.
    #[serde(default)]
    pub network: bool,
    /// Whether a guest can lay changes over a workspace. The same holds of it.
    #[serde(default)]
    pub overlay: bool,
    /// Where it comes from.
    pub source: String,
    /// When it was added, in seconds since 1970.
    pub added_at: u64,
}

/// A kernel of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    facts: KernelFacts,
    folder: PathBuf,
}

/// What a kernel is made from.
#[derive(Debug)]
pub struct NewKernel<'a> {
    /// The kernel itself: a bzImage or an ELF file.
    pub image: &'a Path,
    /// Where its modules are; `None`: it is said to need none.
    pub modules: Option<&'a Path>,
    /// Where it comes from, for people.
    pub source: String,
}

/// The kernels of a store.
#[derive(Debug, Clone)]
pub struct Kernels {
    path: PathBuf,
}

impl Kernels {
    /// Those of the image store at this path.
    #[must_use]
    pub fn of_store(store: &Path) -> Self {
        Self { path: store.join(KERNELS) }
    }

    /// Adds a kernel and makes it the one that guests start with.
    pub fn add(&self, new: &NewKernel<'_>) -> Result<Kernel, MachineError> {
        let image = read(new.image, MOST_KERNEL, Links::Followed)?;
        let release =
            release(&image).map_err(|why| MachineError::NotAKernel { path: new.image.to_owned(), why })?;
        let (modules, network, overlay) = match new.modules {
            Some(folder) => gather(new.image, folder)?,
            None => (Vec::new(), true, true),
        };
        let mut hasher = Sha256::new();
        hasher.update(b"blastbox-kernel 1\n");
        for (name, content) in
            std::iter::once((KERNEL, &image)).chain(modules.iter().map(|(n, c)| (n.as_str(), c)))
        {
            hasher.update(format!("{name} {}\n", content.len()));
            hasher.update(content);
        }
        let digest = Hash::from_bytes(hasher.finalize().into());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let facts = KernelFacts {
            digest,
            release,
            bytes: image.len() as u64,
            modules: modules.iter().map(|(name, _)| name.clone()).collect(),
            network,
            overlay,
            source: new.source.clone(),
            added_at: now.as_secs(),
        };
        let folder = self.path.join(digest.to_string().replacen(':', "-", 1));
        for left in [&self.path, &folder, &folder.join(MODULES)] {
            fresh::sweep(left);
        }
        if !folder.join(FACTS).exists() {
            private(&folder.join(MODULES)).map_err(MachineError::place("make", &folder))?;
            write_new(&folder, KERNEL, &image)?;
            for (name, content) in &modules {
                write_new(&folder.join(MODULES), name, content)?;
            }
        }
        // The same files can mean something else to a newer blastbox, or come from somewhere else.
        let known = self.find(&digest).ok().flatten();
        if !known.is_some_and(|kernel| {
            kernel.facts == KernelFacts { added_at: kernel.facts.added_at, ..facts.clone() }
        }) {
            // Last: a folder without it is no kernel.
            let text = serde_json::to_vec_pretty(&facts).unwrap_or_default();
            write_new(&folder, FACTS, &text)?;
        }
        write_new(&self.path, CURRENT, format!("{digest}\n").as_bytes())?;
        self.find(&digest)?.ok_or(MachineError::NoKernel)
    }

    /// All of them, the newest first.
    pub fn list(&self) -> Result<Vec<KernelFacts>, MachineError> {
        let failed = || MachineError::place("list", &self.path);
        let list = match fs::read_dir(&self.path) {
            Ok(list) => list,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed()(error)),
        };
        let mut found = Vec::new();
        for entry in list {
            let name = entry.map_err(|error| failed()(error))?.file_name();
            let digest = name.to_str().and_then(|name| name.replacen('-', ":", 1).parse().ok());
            let Some(digest) = digest else { continue };
            found.extend(self.find(&digest)?.map(|kernel| kernel.facts));
        }
        found.sort_by_key(|facts| std::cmp::Reverse(facts.added_at));
        Ok(found)
    }

    /// The kernel that guests start with, if there is one.
    pub fn current(&self) -> Result<Option<Kernel>, MachineError> {
        let path = self.path.join(CURRENT);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MachineError::place("read", path)(error)),
        };
        match text.trim_end().parse() {
            Ok(digest) => self.find(&digest),
            Err(_) => Ok(None),
        }
    }

    fn find(&self, digest: &Hash) -> Result<Option<Kernel>, MachineError> {
        let folder = self.path.join(digest.to_string().replacen(':', "-", 1));
        let path = folder.join(FACTS);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MachineError::place("read", path)(error)),
        };
        match serde_json::from_slice(&text) {
            Ok(facts) => Ok(Some(Kernel { facts, folder })),
            Err(error) => Err(MachineError::place("read", path)(error.into())),
        }
    }
}

impl Kernel {
    /// What is known of it.
    #[must_use]
    pub fn facts(&self) -> &KernelFacts {
        &self.facts
    }

    /// The kernel itself.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.folder.join(KERNEL)
    }

    /// The first files of a guest: the agent, which is its first process, and the modules. Made where they are not there
    /// for this very agent.
    pub fn first_files(&self, agent: &Path) -> Result<PathBuf, MachineError> {
        let found = fs::metadata(agent).map_err(|_| MachineError::NoAgent { path: agent.to_owned() })?;
        let looks = Looks::of(&found);
        // Called by the agent's content; that of the kernel and its modules is in the name of the folder.
        let file = |digest: Hash| format!("first-{}.cpio", digest.to_string().replacen(':', "-", 1));
        if let Some(path) = looks.digest().map(|digest| self.folder.join(file(digest)))
            && path.exists()
        {
            return Ok(path);
        }
        let agent = read(agent, MOST_KERNEL, Links::Followed)?;
        let name = file(looks.read(&agent));
        let path = self.folder.join(&name);
        if path.exists() {
            return Ok(path);
        }
        let content = self.archive(&agent).map_err(MachineError::place("make the first files of", &path))?;
        fresh::sweep(&self.folder);
        write_new(&self.folder, &name, &content)?;
        self.forget_others(&name);
        Ok(path)
    }

    fn archive(&self, agent: &[u8]) -> io::Result<Vec<u8>> {
        let mut archive = Archive::new(Vec::with_capacity(agent.len()));
        archive.add("dev", Entry::Directory)?;
        // Programs want standard streams before anybody could make devices for them.
        archive.add("dev/null", Entry::Device { major: 1, minor: 3 })?;
        archive.add("init", Entry::File(agent))?;
        if !self.facts.modules.is_empty() {
            archive.add(MODULES, Entry::Directory)?;
        }
        for name in &self.facts.modules {
            let content = fs::read(self.folder.join(MODULES).join(name))?;
            archive.add(&format!("{MODULES}/{name}"), Entry::File(&content))?;
        }
        archive.finish()
    }

    /// Those of agents that were replaced. Best effort: they only take room.
    fn forget_others(&self, ours: &str) {
        let Ok(list) = fs::read_dir(&self.folder) else { return };
        for entry in list.flatten() {
            let name = entry.file_name();
            let first = name.to_str().is_some_and(|name| name.starts_with("first-") && name != ours);
            let old = entry
                .metadata()
                .and_then(|found| found.modified())
                .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > STALE));
            if first && old {
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}

/// What a kernel calls itself.
fn release(image: &[u8]) -> Result<String, &'static str> {
    if image.starts_with(b"\x7fELF") {
        let machine = image.get(18..20).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
        return if machine == Some(62) {
            Ok("unknown".to_owned())
        } else {
            Err("its processor is another one")
        };
    }
    if image.get(0x202..0x206) != Some(b"HdrS") || image.get(0x1fe..0x200) != Some(b"\x55\xaa") {
        return Err("it is neither a bzImage nor an ELF file");
    }
    let at = image.get(0x20e..0x210).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes);
    let text = image.get(usize::from(at).saturating_add(0x200)..).unwrap_or_default();
    let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || b".-+_~".contains(*byte);
    let word: Vec<u8> = text.iter().take(64).take_while(plain).copied().collect();
    let word = String::from_utf8(word).unwrap_or_default();
    Ok(if word.is_empty() { "unknown".to_owned() } else { word })
}

/// A module: what it is called, and what it holds.
type Module = (String, Vec<u8>);

/// The modules that guests need, each named by its place in the order of loading; and whether they can have a network card and
/// changes over a workspace.
fn gather(kernel: &Path, folder: &Path) -> Result<(Vec<Module>, bool, bool), MachineError> {
    let built_in = read(&folder.join("modules.builtin"), MOST_LIST, Links::Refused)?;
    let built_in = String::from_utf8_lossy(&built_in);
    let built_in: Vec<String> =
        built_in.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect();
    let files = walk(folder)?;
    let mut modules = Vec::new();
    for (place, driver) in DRIVERS.iter().enumerate() {
        if let Some((_, path)) = files.iter().find(|(name, _)| name == driver.name) {
            let end = path.extension().and_then(|end| end.to_str()).filter(|end| *end != "ko");
            let end = end.map_or_else(String::new, |end| format!(".{end}"));
            modules.push((
                format!("{place:02}-{}.ko{end}", driver.name),
                read(path, MOST_MODULE, Links::Refused)?,
            ));
        } else if let Some(purpose) = driver.needed_for
            && !built_in.iter().any(|name| name == driver.name)
        {
            return Err(MachineError::NoDriver { path: kernel.to_owned(), driver: driver.name, purpose });
        }
    }
    let has = |driver| built_in.iter().chain(files.iter().map(|(name, _)| name)).any(|name| name == driver);
    let (network, overlay) = (has(CARD), has(OVERLAY));
    Ok((modules, network, overlay))
}

/// Every module beneath a folder, by name. Links are not followed.
fn walk(folder: &Path) -> Result<Vec<(String, PathBuf)>, MachineError> {
    let (mut found, mut left, mut seen) = (Vec::new(), vec![folder.to_owned()], 0_usize);
    while let Some(here) = left.pop() {
        let list = fs::read_dir(&here).map_err(MachineError::place("list", &here))?;
        for entry in list {
            seen = seen.saturating_add(1);
            if seen > MOST_ENTRIES {
                let source = io::Error::other("it has too many files to be the modules of a kernel");
                return Err(MachineError::place("list", folder)(source));
            }
            let entry = entry.map_err(MachineError::place("list", &here))?;
            let kind = entry.file_type().map_err(MachineError::place("look at", entry.path()))?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file()
                && let Some(name) = entry.file_name().to_str().and_then(module_name)
            {
                found.push((name, entry.path()));
            }
        }
    }
    Ok(found)
}

/// Whether a file may be a link to another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    /// Whoever named the file meant what it leads to.
    Followed,
    /// The file came with a package, whose maker may not choose what else is read.
    Refused,
}

/// All of a regular file. A pipe that nobody writes to is none, and is not waited for.
fn read(path: &Path, most: u64, links: Links) -> Result<Vec<u8>, MachineError> {
    let failed = || MachineError::place("read", path);
    let mut bytes = Vec::new();
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if links == Links::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let file = open(path, flags, Mode::empty()).map_err(|errno| failed()(errno.into()))?;
    let file = File::from(file);
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(failed()(io::Error::other("it is no regular file")));
    }
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed())?;
    if bytes.len() as u64 > most {
        return Err(failed()(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

fn private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file, whole or not at all.
fn write_new(folder: &Path, name: &str, content: &[u8]) -> Result<(), MachineError> {
    let path = folder.join(name);
    let failed = || MachineError::place("write", &path);
    private(folder).map_err(failed())?;
    fresh::file(folder, name, |mut file| file.write_all(content)).map_err(failed())
}
