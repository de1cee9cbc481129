//! Who starts blastbox: the host's root, or somebody without any privilege.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Boxed, Ended, Held, Place, left_out, place, programs, skip};

/// Where the ids of invented users begin: nobody's on any host, and not among those that the warden gives to boxes.
pub(crate) const INVENTED: u32 = 1_600_000_000;

/// Who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The host's root.
    Root,
    /// Somebody without any privilege: the user who runs the tests, or an invented one that no other test has, so that
    /// limits per user do not join tests that run at the same time.
    User(u32),
}

/// One who starts blastbox, in one test.
#[derive(Debug)]
pub struct Caller {
    who: Who,
    test: &'static str,
    programs: PathBuf,
    /// A directory of the caller's own.
    place: Place,
}

impl Caller {
    /// The host's root; reported as skipped where the tests have not that privilege.
    pub fn root(test: &'static str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip(test, "needs root, and the tests run as an ordinary user");
            return None;
        }
        Some(Self { who: Who::Root, test, programs: programs::built(), place: Place::new() })
    }

    /// Somebody without privilege.
    pub fn user(test: &'static str) -> Option<Self> {
        let me = rustix::process::geteuid();
        let (uid, place) = if me.is_root() {
            // Sixteen bits of the process id tell test programs apart, the number tests within one.
            let uid = INVENTED + ((std::process::id() & 0xFFFF) << 12) + (place::number() & 0xFFF);
            (uid, Place::new().give(Some(uid)))
        } else {
            (me.as_raw(), Place::new())
        };
        let programs = programs::for_everybody(&place);
        Some(Self { who: Who::User(uid), test, programs, place })
    }

    /// Whoever comes first of the two, for what does not depend on who asks: root, where the tests have that privilege.
    pub fn either(test: &'static str) -> Option<Self> {
        if rustix::process::geteuid().is_root() { Self::root(test) } else { Self::user(test) }
    }

    /// Whether it is that one.
    pub fn comes_first(&self) -> bool {
        self.is_root() || !rustix::process::geteuid().is_root()
    }

    /// The same with programs whose agent dies in a machine where a test says so; reported where nobody built them.
    pub fn with_mortal_agent(self) -> Option<Self> {
        let Some(programs) = programs::mortal(&self.place) else {
            self.skip("the agent with failpoints is not built: `make test` builds it");
            return None;
        };
        Some(Self { programs, ..self })
    }

    /// Who it is.
    pub fn who(&self) -> Who {
        self.who
    }

    /// Whether it is the host's root.
    pub fn is_root(&self) -> bool {
        self.who == Who::Root
    }

    /// A directory of the caller's own. Everybody may look into it.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Makes a directory in [`Self::place`] that belongs to the caller.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.place.join(name);
        std::fs::create_dir(&path).expect("make a directory");
        self.own(&path);
        path
    }

    /// Writes a file in [`Self::place`] that belongs to the caller.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.place.join(name);
        std::fs::write(&path, text).expect("write a file");
        self.own(&path);
        path
    }

    /// Gives something on the host to the caller.
    pub fn own(&self, path: &Path) {
        if let Some(uid) = self.becomes() {
            std::os::unix::fs::lchown(path, Some(uid), Some(uid)).expect("give a file to the caller");
        }
    }

    /// Reports that this test cannot run here: `return caller.skip("no gcc")`.
    pub fn skip(&self, reason: &str) {
        skip(self.test, reason);
    }

    /// Reports that one part of this test cannot run here; the rest of it does.
    pub fn leave_out(&self, part: &str, reason: &str) {
        left_out(self.test, part, reason);
    }

    /// The program `blastbox` with these arguments, not yet started.
    pub fn blastbox<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Start<'_> {
        self.program(&self.blastbox_path(), arguments)
    }

    /// The program `blastbox` of the build for tests that has places to be stopped at, and keeps clocks as they say; `None`: nobody built it.
    pub fn blastbox_for_tests(&self) -> Option<PathBuf> {
        programs::with_failpoints(&self.place).map(|directory| directory.join("blastbox"))
    }

    /// Where the test builds are that lack one layer each; `None` where nobody built them.
    pub fn lifted(&self) -> Option<PathBuf> {
        programs::lifted(&self.place)
    }

    /// The store of `tools/machine.sh`, for root, whose it is; `None`: nobody made it.
    pub fn machines(&self) -> Option<PathBuf> {
        if self.is_root() { programs::machines() } else { None }
    }

    /// A component that `tools/component.sh` made, by the name of its file; `None`: nobody made it.
    pub fn component(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(programs::component(name)).ok()
    }

    /// Where the program `blastbox` is, for this caller.
    pub fn blastbox_path(&self) -> PathBuf {
        self.programs.join("blastbox")
    }

    /// The same programs as this caller's own, as somebody has them who has built them himself.
    pub fn own_programs(&self) -> PathBuf {
        programs::copied(&self.place, &self.programs, self.becomes())
    }

    /// Any program of the host, as this caller, not yet started.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which tests start the built programs"
    )]
    pub fn program<I: IntoIterator<Item: AsRef<OsStr>>>(&self, path: &Path, arguments: I) -> Start<'_> {
        let mut command = Command::new(path);
        command.args(arguments).current_dir(self.place.path());
        if let Some(uid) = self.becomes() {
            command.uid(uid).gid(uid);
        }
        Start { caller: self, command, input: Vec::new() }
    }

    /// Any program of the host, as the host's root whoever this caller is, not yet started.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which tests start programs that become the caller by themselves"
    )]
    pub(crate) fn root_program<I: IntoIterator<Item: AsRef<OsStr>>>(
        &self,
        path: &Path,
        arguments: I,
    ) -> Start<'_> {
        let mut command = Command::new(path);
        command.args(arguments).current_dir(self.place.path());
        Start { caller: self, command, input: Vec::new() }
    }

    /// `blastbox run --json OPTIONS -- COMMAND`, to its end.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Boxed {
        let words = ["run", "--json"].iter().chain(options).chain(&["--"]).chain(command);
        self.blastbox(words).end().boxed()
    }

    /// A shell script in a box, to its end.
    pub fn sh(&self, options: &[&str], script: &str) -> Boxed {
        self.run(options, &["/bin/sh", "-c", script])
    }

    /// A Python program in a box, to its end. It comes in through standard input, as with `--lang python`.
    pub fn python(&self, options: &[&str], code: &str) -> Boxed {
        let words = ["run", "--json", "--lang", "python"].iter().chain(options);
        self.blastbox(words).input(code).end().boxed()
    }

    /// The user to become before anything is started; `None` where the tests run as that user already.
    fn becomes(&self) -> Option<u32> {
        match self.who {
            Who::User(uid) if rustix::process::geteuid().is_root() => Some(uid),
            Who::User(_) | Who::Root => None,
        }
    }
}

/// A program that is about to be started.
#[derive(Debug)]
pub struct Start<'a> {
    caller: &'a Caller,
    command: Command,
    input: Vec<u8>,
}

impl Start<'_> {
    /// What it reads from standard input; without it, nothing.
    #[must_use]
    pub fn input(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.input = bytes.as_ref().to_vec();
        self
    }

    /// A variable of the caller's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it with pipes that are read aside.
    pub fn start(mut self) -> Held {
        let stdin = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Self { caller, mut command, input } = self;
        let child = command.spawn();
        Held::new(child.unwrap_or_else(|error| panic!("{}: cannot start: {error}", caller.test)), &input)
    }

    /// Starts it with streams of the test's own: standard input, output and error.
    pub fn start_with(mut self, streams: [OwnedFd; 3]) -> Held {
        let [stdin, stdout, stderr] = streams;
        self.command.stdin(stdin).stdout(stdout).stderr(stderr);
        let Self { caller, mut command, .. } = self;
        let child = command.spawn();
        Held::new(child.unwrap_or_else(|error| panic!("{}: cannot start: {error}", caller.test)), &[])
    }

    /// Starts it and waits for its end.
    pub fn end(self) -> Ended {
        self.start().end()
    }
}
