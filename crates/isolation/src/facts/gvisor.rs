//! gVisor on this host: where its program is, which version, and the two programs of ours that go with it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

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
        }
    }

    /// Which version it is. The first to ask waits for the program's answer, some 20 ms; whoever confines itself asks before.
    pub fn version(&self) -> &Version {
        self.version.get_or_init(|| match &self.runsc {
            Some(program) => ask(program),
            None => Version::Unclear("it is not installed".to_owned()),
        })
    }

    #[cfg(test)]
    pub(crate) fn of(version: Version) -> Self {
        let at = |name: &str| Some(Path::new("/opt").join(name));
        let known = OnceLock::new();
        known.get_or_init(|| version);
        Self { runsc: at(RUNSC), keeper: at(KEEPER), agent: at(AGENT), version: Arc::new(known) }
    }
}

/// The version goes with the file.
impl PartialEq for Gvisor {
    fn eq(&self, other: &Self) -> bool {
        let Self { runsc, keeper, agent, version: _ } = self;
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

/// A file that can be executed, and changed by nobody but root and us: a box's kernel is not to be somebody else's choice.
fn is_program(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    path.metadata().is_ok_and(|file| {
        file.is_file()
            && file.mode() & 0o111 != 0
            && file.mode() & 0o022 == 0
            && [0, us].contains(&file.uid())
    })
}

fn ask(program: &Path) -> Version {
    #[expect(
        clippy::disallowed_methods,
        reason = "asks a program of the host for its version, before any box"
    )]
    let mut command = Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null()).stderr(Stdio::null());
    match command.output() {
        Ok(answer) => read(&String::from_utf8_lossy(&answer.stdout)),
        Err(error) => Version::Unclear(format!("it does not start: {error}")),
    }
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
    fn a_program_that_anybody_can_change_is_none() {
        let path = std::env::temp_dir().join(format!("gvisor-facts-{}", std::process::id()));
        std::fs::write(&path, "#!/bin/sh\necho runsc version release-20250101.0\n").unwrap();
        let mode = |mode| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            is_program(&path)
        };
        assert_eq!((mode(0o755), mode(0o777), mode(0o775), mode(0o644)), (true, false, false, false));
        mode(0o755);
        assert_eq!(ask(&path), Version::Of(20_250_101));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(ask(&path), Version::Unclear(why) if why.contains("does not start")));
    }
}
