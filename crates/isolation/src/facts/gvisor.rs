//! gVisor on this host: where its program is, which version, and the two programs of ours that go with it.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::warden::places;

const RUNSC: &str = "runsc";
const KEEPER: &str = "blastbox-gvisor";
const AGENT: &str = "blastbox-agent";

/// Where gVisor is installed by distributions and by hand. Not PATH: that is the caller's, and the box's kernel comes from here.
const FOLDERS: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];

/// What is there of gVisor.
#[derive(Debug, Clone, Default)]
pub struct Gvisor {
    /// gVisor's program, as far as it is one that only its owner can change.
    pub runsc: Option<PathBuf>,
    /// Our program that keeps gVisor's.
    pub keeper: Option<PathBuf>,
    /// Our program that is init inside.
    pub agent: Option<PathBuf>,
    /// Asked once, when somebody wants to know: it means starting the program.
    version: Arc<OnceLock<Version>>,
    /// Asked once, like it.
    drivers: Arc<OnceLock<Vec<String>>>,
}

/// What gVisor's program says of its version.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// The date in it, as a number such as 20240729.
    Of(u32),
    /// It says something else, or nothing.
    Unclear(String),
}

impl Gvisor {
    /// Looks for the files, and starts nothing.
    pub(super) fn look() -> Self {
        let ours = |name: &str| places(name).unwrap_or_default();
        let first = |paths: Vec<PathBuf>| paths.into_iter().find(|path| is_program(path));
        let folders = FOLDERS.iter().map(|folder| Path::new(folder).join(RUNSC));
        Self {
            runsc: first(ours(RUNSC).into_iter().chain(folders).collect()),
            keeper: first(ours(KEEPER)),
            agent: first(ours(AGENT)),
            version: Arc::default(),
            drivers: Arc::default(),
        }
    }

    /// Which version it is. The first to ask waits for the program's answer, some 20 ms; whoever confines itself asks before.
    pub fn version(&self) -> &Version {
        self.version.get_or_init(|| match &self.runsc {
            Some(program) => version_of(program),
            None => Version::Unclear("it is not installed".to_owned()),
        })
    }

    /// The versions of NVIDIA's driver whose calls it knows (nvproxy), to the last digit: none where it says none. The first to
    /// ask waits, as for the version.
    pub fn drivers(&self) -> &[String] {
        self.drivers.get_or_init(|| {
            let said = self.runsc.as_ref().map(|program| ask(program, &LIST_DRIVERS, b"\0"));
            said.and_then(Result::ok).map(|text| drivers_in(&text)).unwrap_or_default()
        })
    }

    #[cfg(test)]
    pub(crate) fn of(version: Version) -> Self {
        let at = |name: &str| Some(Path::new("/opt").join(name));
        let known = OnceLock::new();
        known.get_or_init(|| version);
        Self {
            runsc: at(RUNSC),
            keeper: at(KEEPER),
            agent: at(AGENT),
            version: Arc::new(known),
            drivers: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn knowing(self, driver: &str) -> Self {
        self.drivers.get_or_init(|| vec![driver.to_owned()]);
        self
    }
}

/// The version goes with the file.
impl PartialEq for Gvisor {
    fn eq(&self, other: &Self) -> bool {
        let Self { runsc, keeper, agent, version: _, drivers: _ } = self;
        (runsc, keeper, agent) == (&other.runsc, &other.keeper, &other.agent)
    }
}

impl Eq for Gvisor {}

impl Serialize for Gvisor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut all = to.serialize_struct("Gvisor", 2)?;
        all.serialize_field("runsc", &self.runsc)?;
        all.serialize_field("version", &self.version.get())?;
        all.end()
    }
}

/// A file that can be executed, and changed or exchanged by nobody but root and us: a box's kernel is not to be somebody
/// else's choice.
fn is_program(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    let ours = |about: &std::fs::Metadata| about.mode() & 0o022 == 0 && [0, us].contains(&about.uid());
    // Where it is named, and where it lies: in either a stranger could put another one.
    let folder = |at: &Path| at.parent().is_some_and(|at| at.metadata().is_ok_and(|about| ours(&about)));
    path.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0 && ours(&file))
        && folder(path)
        && path.canonicalize().is_ok_and(|real| folder(&real))
}

/// How long it may take to answer, and how much it may say: whatever is called runsc is asked.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_SAID: usize = 4096;

const LIST_DRIVERS: [&str; 2] = ["nvproxy", "list-supported-drivers"];

fn version_of(program: &Path) -> Version {
    // Its first line is all that is wanted.
    match ask(program, &["--version"], b"\n") {
        Ok(answer) => read(&answer),
        Err(why) => Version::Unclear(why),
    }
}

/// What it says until it has said `enough`, or why it says nothing.
fn ask(program: &Path, words: &[&str], enough: &[u8; 1]) -> Result<String, String> {
    #[expect(clippy::disallowed_methods, reason = "asks a program of the host what it is, before any box")]
    let mut command = Command::new(program);
    command.args(words).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("it does not start: {error}"))?;
    let said = child.stdout.take().and_then(|stream| hear(stream, enough, PATIENCE));
    // It has ended by itself, or ends now.
    child.kill().ok();
    child.wait().ok();
    said.ok_or_else(|| format!("it says nothing for {} s", PATIENCE.as_secs()))
}

/// What is said up to a byte that is enough, to the end of the stream, or of what anybody wants to hear; `None`: it takes too long.
fn hear(mut stream: impl Read + AsFd, enough: &[u8; 1], patience: Duration) -> Option<String> {
    let (begun, mut said) = (Instant::now(), Vec::new());
    while said.len() < MOST_SAID && !said.contains(&enough[0]) {
        let left = Timespec::try_from(patience.checked_sub(begun.elapsed())?).ok()?;
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&left)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        let mut bytes = [0; 512];
        match stream.read(&mut bytes).ok()? {
            0 => break,
            count => said.extend(bytes.iter().take(count)),
        }
    }
    Some(String::from_utf8_lossy(&said).into_owned())
}

/// One version a line; whatever else it says is none.
fn drivers_in(answer: &str) -> Vec<String> {
    let version = |line: &&str| line.contains('.') && line.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    answer.lines().map(str::trim).filter(version).map(str::to_owned).collect()
}

/// Releases are named by their day: `release-20240729.0` by gVisor itself, `0.0~20240729.0` by Debian.
fn read(answer: &str) -> Version {
    let line = answer.lines().next().unwrap_or_default();
    let numbers = line.split(|c: char| !c.is_ascii_digit());
    match numbers.filter(|text| text.len() == 8 && text.starts_with("20")).find_map(|text| text.parse().ok())
    {
        Some(day) => Version::Of(day),
        None => Version::Unclear(format!("it says {:?}", line.chars().take(80).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_however_they_are_written() {
        assert_eq!(read("runsc version release-20240729.0\nspec: 1.1.0-rc.1\n"), Version::Of(20_240_729));
        assert_eq!(read("runsc version 0.0~20221219.0\n"), Version::Of(20_221_219));
        assert_eq!(read("runsc version release-20251013.0-12-gabc\n"), Version::Of(20_251_013));
        for other in ["", "runsc version VERSION_MISSING", "runsc version 1.2.3\nspec: 20240729"] {
            assert!(matches!(read(other), Version::Unclear(_)), "{other}");
        }
    }

    #[test]
    fn drivers_are_lines_that_are_versions() {
        assert_eq!(drivers_in("550.54.15\n535.161.07\n"), ["550.54.15", "535.161.07"]);
        assert_eq!(drivers_in("unknown command\nv550.54\n1\n\n"), Vec::<String>::new());
        assert_eq!(Gvisor::default().drivers(), Vec::<String>::new());
    }

    #[test]
    fn a_program_that_anybody_can_change_or_exchange_is_none() {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let folder = std::env::temp_dir().join(format!("gvisor-facts-{}-{now}", std::process::id()));
        // Nobody else's: it fails where there is one already.
        std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let path = folder.join("runsc");
        std::fs::write(&path, "").unwrap();
        let mode = |at: &Path, mode| {
            std::fs::set_permissions(at, std::fs::Permissions::from_mode(mode)).unwrap();
            is_program(&path)
        };
        let modes = [0o755, 0o777, 0o775, 0o644].map(|bits| mode(&path, bits));
        assert_eq!(modes, [true, false, false, false]);
        mode(&path, 0o755);
        assert_eq!([0o755, 0o777, 0o775, 0o700].map(|bits| mode(&folder, bits)), [true, false, false, true]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(version_of(&path), Version::Unclear(why) if why.contains("does not start")));
    }

    #[test]
    fn a_program_that_says_nothing_or_never_ends_is_not_waited_for() {
        use std::io::Write;
        use std::os::unix::net::UnixStream;
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        assert_eq!(hear(&ours, b"\n", Duration::from_millis(20)), None);
        theirs.write_all(&[b'x'; MOST_SAID + 512]).unwrap();
        assert_eq!(hear(&ours, b"\n", PATIENCE).unwrap().len(), MOST_SAID);
        // Open still, and a line is enough.
        theirs.write_all(b"\nmore").unwrap();
        assert!(hear(&ours, b"\n", PATIENCE).unwrap().ends_with("\nmore"));
        theirs.write_all(b"end").unwrap();
        drop(theirs);
        assert_eq!(hear(&ours, b"\n", PATIENCE).as_deref(), Some("end"));
    }
}
