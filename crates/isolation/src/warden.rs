//! The client of the warden, the one privileged program.

mod error;
mod heir;
mod mark;
mod process;
mod unsent;

use crate::outside::{self, Order};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use blastbox_sys::{channel, first};
use blastbox_wire::limits::MAX_WARDEN_MESSAGE;
use blastbox_wire::warden::{Answer, Ask, Powers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;

pub use error::WardenError;
pub use heir::{Door, Inheritance};
pub use mark::{BadWardenName, Farewell, Mark, WardenName};
use process::{Own, Process};
use unsent::Unsent;

/// The program's name.
const PROGRAM: &str = "blastbox-warden";
/// How long a warden may take to release everything after its socket has closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a busy warden may take to read what was asked before.
const BUSY: Duration = Duration::from_secs(5);

/// A warden that runs.
///
/// It has a process group of its own, so that Ctrl-C in a terminal does not end it before it has cleaned up. It ends
/// itself when its socket closes: dropping this value waits for that.
#[derive(Debug)]
pub struct Warden {
    socket: OwnedFd,
    process: Process,
    /// What it was started from, until it has something to do.
    view: Mutex<Option<OwnedFd>>,
    buffer: Box<[u8]>,
    program: PathBuf,
    mission: Mission,
    name: Option<WardenName>,
    /// It was told where whoever comes after this process knocks.
    heritable: bool,
    /// What it said when it was ready, where that was heard already.
    ready: Option<Powers>,
    unsent: Unsent,
}

/// What a warden was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mission {
    /// Making boxes. If it is killed, a fresh one cleans up after it.
    Serve,
    /// Cleaning up after another. If this one is killed as well, the next caller's will do it.
    CleanUp,
}

/// What the warden had to say at this moment.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// An answer.
    Answer(Answer),
    /// Nothing yet.
    Waiting,
    /// It has ended; there will be no more answers, and all its boxes are gone or will be swept.
    Gone,
}

impl Warden {
    /// How long whoever has to be heard waits for a busy one.
    pub const BUSY: Duration = BUSY;

    /// Starts the warden that is installed with this program. It is ready only after [`Warden::wait_ready`].
    pub fn start() -> Result<Self, WardenError> {
        Self::start_program(&find_program()?)
    }

    /// The same for one command, which may be the one that was started before anything else. It makes the first process of the box that
    /// it will be asked for while its caller thinks about the rest.
    pub fn start_for_one() -> Result<Self, WardenError> {
        let program = find_program()?;
        match first::take() {
            Some(first::Started { socket, view, child }) => {
                Self::of(&program, None, socket, view, Own::new(child))
            }
            None => Self::begin(&program, None, Some(first::ONE.to_owned())),
        }
    }

    /// Starts this very program as warden, in a form that cannot be opened for writing: the agents of its boxes are forked
    /// from it, so that whatever reaches for the program behind pid 1 finds nothing that can be changed (CVE-2019-5736).
    pub fn start_program(program: &Path) -> Result<Self, WardenError> {
        Self::begin(program, None, None)
    }

    /// The same under a name that was chosen for it, so that it could be written down before there is anything to name.
    pub fn start_named(program: &Path, name: WardenName) -> Result<Self, WardenError> {
        Self::begin(program, Some(name), Some(name.to_string()))
    }

    fn begin(
        program: &Path,
        name: Option<WardenName>,
        argument: Option<String>,
    ) -> Result<Self, WardenError> {
        let failed = |source| WardenError::Start { program: program.to_owned(), source };
        let (ours, theirs) = channel::pair().map_err(failed)?;
        let Started { child, view } = start_sealed(program, PROGRAM, argument, theirs).map_err(failed)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let child = pid.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        Self::of(program, name, ours, view, Own::new(child))
    }

    /// One that was started.
    fn of(
        program: &Path,
        name: Option<WardenName>,
        socket: OwnedFd,
        view: OwnedFd,
        child: Own,
    ) -> Result<Self, WardenError> {
        let failed = |errno: rustix::io::Errno| WardenError::Start {
            program: program.to_owned(),
            source: errno.into(),
        };
        let flags = fcntl_getfl(&socket).map_err(failed)?;
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(failed)?;
        let buffer = vec![0; MAX_WARDEN_MESSAGE].into_boxed_slice();
        let (process, view) = (Process::Ours(child), Mutex::new(Some(view)));
        let (program, mission) = (program.to_owned(), Mission::Serve);
        Ok(Self {
            socket,
            process,
            view,
            buffer,
            program,
            mission,
            name,
            heritable: false,
            ready: None,
            unsent: Unsent::default(),
        })
    }

    /// Tells it where whoever comes after this process knocks.
    pub fn listen_at(&mut self, door: &Door) -> Result<(), WardenError> {
        self.ask(&Ask::Listen, &[door.as_fd()])?;
        self.heritable = true;
        Ok(())
    }

    /// Whether boxes can be left to whoever comes after this process.
    #[must_use]
    pub fn is_heritable(&self) -> bool {
        self.heritable
    }

    /// The program that it was started from.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its name, where one was chosen for it.
    #[must_use]
    pub fn name(&self) -> Option<WardenName> {
        self.name
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Nothing more will be asked: the warden ends its boxes, tells of each, and then ends itself, while the caller goes on
    /// with what it has to do.
    pub fn dismiss(&self) {
        // Where it is gone already there is nothing to tell.
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write).ok();
    }

    /// Asks for something, with the descriptors that belong to it, and waits for room: after all that waits already. The answer
    /// comes later.
    pub fn ask(&mut self, ask: &Ask, fds: &[BorrowedFd<'_>]) -> Result<(), WardenError> {
        let deadline = Instant::now() + BUSY;
        while !self.try_ask(ask, fds)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if !ready(self.as_fd(), PollFlags::OUT, left).map_err(WardenError::Send)? {
                return Err(WardenError::Busy);
            }
        }
        Ok(())
    }

    /// The next answer, if there is one already. Never waits.
    pub fn answer(&mut self) -> Result<Heard, WardenError> {
        loop {
            return match channel::receive(&self.socket, &mut self.buffer) {
                Ok(Some((length, _))) => {
                    let bytes = self.buffer.get(..length).unwrap_or_default();
                    Answer::decode(bytes).map(Heard::Answer).map_err(WardenError::Garbled)
                }
                Ok(None) => Ok(Heard::Gone),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Heard::Waiting),
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Heard::Gone),
                    _ => Err(WardenError::Receive(error)),
                },
            };
        }
    }

    /// Waits until the warden is ready, and says what it can do on this host.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<Powers, WardenError> {
        if let Some(powers) = self.ready {
            return Ok(powers);
        }
        let deadline = Instant::now() + timeout;
        loop {
            match self.answer()? {
                Heard::Answer(Answer::Ready(powers)) => return Ok(powers),
                Heard::Answer(_) => return Err(WardenError::OutOfTurn),
                Heard::Gone => {
                    self.process.ended_within(PATIENCE);
                    return Err(WardenError::Ended { status: self.process.status() });
                }
                Heard::Waiting => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !ready(self.as_fd(), PollFlags::IN, left).map_err(WardenError::Receive)? {
                return Err(WardenError::NotReady(timeout));
            }
        }
    }

    /// A warden releases what killed ones have left before it ends: starting one is all that it takes.
    fn clean_up_after(&self) {
        // Whatever goes wrong, the next warden on this host does it.
        if let Ok(mut fresh) = Self::start_program(&self.program) {
            fresh.mission = Mission::CleanUp;
            fresh.wait_ready(PATIENCE).ok();
        }
    }
}

impl AsFd for Warden {
    /// The socket, for waiting until it can be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Warden {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // To the warden the same as closing it. Where it is gone already there is nothing to tell.
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).ok();
        let ended = self.process.ended_within(PATIENCE);
        let Process::Ours(child) = &mut self.process else {
            // Not a child of ours. It ends by itself, when nobody comes for what it keeps.
            return;
        };
        if !ended {
            // It hangs. What it leaves behind is released by the next warden's sweep.
            child.kill();
            child.wait();
            return;
        }
        let killed = child.wait().is_some_and(|status| status.signal().is_some());
        if killed && self.mission == Mission::Serve {
            self.clean_up_after();
        }
    }
}

/// Where the warden is installed: beside this program, or in the place for programs that only programs start.
pub fn find_program() -> Result<PathBuf, WardenError> {
    let looked_for = places(PROGRAM).map_err(WardenError::Whereabouts)?;
    match looked_for.iter().find(|path| path.is_file()) {
        Some(found) => Ok(found.clone()),
        None => Err(WardenError::NotInstalled { looked_for }),
    }
}

/// Where a program of ours may be installed.
pub(crate) fn places(program: &str) -> io::Result<Vec<PathBuf>> {
    let own = std::env::current_exe()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    Ok(vec![beside.join(program), beside.join("../libexec/blastbox").join(program)])
}

/// A program of ours that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    /// What it was started from. To let go of a mount that is attached nowhere takes until every processor has taken notice, up to a millisecond: time in
    /// which the child should have something to do.
    pub(crate) view: OwnedFd,
}

/// Starts a program of ours so that nobody can change it through its process, with an empty environment; `socket` is its standard input. In a
/// process that has confined itself, the thread that stayed outside does it.
pub(crate) fn start_sealed(
    program: &Path,
    name: &'static str,
    argument: Option<String>,
    socket: OwnedFd,
) -> io::Result<Started> {
    outside::start(Order { program: program.to_owned(), name, argument, socket })
}

/// Carries out such an order in this thread, and so under whatever holds for it.
pub(crate) fn start_here(Order { program, name, argument, socket }: Order) -> io::Result<Started> {
    start_from(&program, name, argument, socket)
}

fn start_from(program: &Path, name: &str, argument: Option<String>, socket: OwnedFd) -> io::Result<Started> {
    let view = blastbox_sys::program::unwritable(program, name)?;
    #[expect(clippy::disallowed_methods, reason = "the one place a program is started on the host")]
    let mut command = Command::new(format!("/proc/self/fd/{}", view.as_raw_fd()));
    command
        .arg0(name)
        .args(argument)
        .env_clear()
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    Ok(Started { child: command.process_group(0).spawn()?, view })
}

/// Waits until a descriptor is ready, or its other side is gone. `false`: the time is over.
pub(crate) fn ready(fd: BorrowedFd<'_>, what: PollFlags, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::from_borrowed_fd(fd, what)], Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// A program that ends when its socket closes and says nothing, with the other end of a socket in its place.
    pub(super) fn stand_in() -> (Warden, OwnedFd) {
        let mut warden = Warden::start_program(Path::new("/bin/cat")).unwrap();
        let (ours, theirs) = channel::pair().unwrap();
        let flags = fcntl_getfl(&ours).unwrap();
        fcntl_setfl(&ours, flags | OFlags::NONBLOCK).unwrap();
        warden.socket = ours;
        (warden, theirs)
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_its_status() {
        let mut warden = Warden::start_program(Path::new("/bin/false")).unwrap();
        let error = warden.wait_ready(SOON).unwrap_err();
        assert!(matches!(error, WardenError::Ended { status: Some(_) }), "{error:?}");
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }

    #[test]
    fn a_program_that_says_nothing_is_given_up() {
        let mut warden = Warden::start_program(Path::new("/bin/cat")).unwrap();
        assert_eq!(warden.answer().unwrap(), Heard::Waiting);
        let error = warden.wait_ready(Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, WardenError::NotReady(_)), "{error:?}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Warden::start_program(Path::new("/no/such/warden")).unwrap_err();
        assert!(error.to_string().contains("/no/such/warden"), "{error}");
        // A test's own program lies in a directory without a warden.
        if let Err(error) = find_program() {
            assert!(error.to_string().contains("libexec/blastbox/blastbox-warden"), "{error}");
        }
    }

    #[test]
    fn powers_are_heard_and_a_question_arrives_with_its_descriptors() {
        let (mut warden, theirs) = stand_in();
        let powers = Powers { own_ranges: true, cgroups: 2, memory: true, cpu: false, pids: true };
        channel::send(&theirs, &Answer::Ready(powers).encode(), &[]).unwrap();
        assert_eq!(warden.wait_ready(SOON).unwrap(), powers);
        warden.ask(&Ask::Sweep, &[theirs.as_fd()]).unwrap();
        let mut bytes = [0; 64];
        let (length, fds) = channel::receive(&theirs, &mut bytes).unwrap().unwrap();
        assert_eq!(Ask::decode(&bytes[..length]), Ok(Ask::Sweep));
        assert_eq!(fds.len(), 1);
    }

    #[test]
    fn anything_but_powers_first_is_out_of_turn_and_nonsense_is_garbled() {
        let (mut warden, theirs) = stand_in();
        channel::send(&theirs, &Answer::Swept { boxes: 1 }.encode(), &[]).unwrap();
        assert!(matches!(warden.wait_ready(SOON), Err(WardenError::OutOfTurn)));
        channel::send(&theirs, b"nonsense", &[]).unwrap();
        assert!(matches!(warden.answer(), Err(WardenError::Garbled(_))));
        drop(theirs);
        assert_eq!(warden.answer().unwrap(), Heard::Gone);
    }

    #[test]
    fn a_warden_that_does_not_read_is_not_waited_for_for_ever() {
        let (mut warden, theirs) = stand_in();
        let start = Instant::now();
        let error = (0..100_000).find_map(|_| warden.ask(&Ask::Sweep, &[]).err());
        assert!(matches!(error, Some(WardenError::Busy)), "{error:?}");
        assert!(start.elapsed() < BUSY * 2);
        drop(theirs);
    }

    #[test]
    fn dropping_it_leaves_no_process_behind_even_when_it_hangs() {
        for (program, patience) in [("/bin/cat", PATIENCE / 2), ("/usr/bin/yes", PATIENCE * 3)] {
            let warden = Warden::start_program(Path::new(program)).unwrap();
            let process = PathBuf::from(format!("/proc/{}", warden.pid()));
            assert!(process.exists());
            let start = Instant::now();
            drop(warden);
            assert!(!process.exists());
            assert!(start.elapsed() < patience, "{program}: {:?}", start.elapsed());
        }
    }
}
