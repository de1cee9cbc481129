//! Commands that a program of the box asks for as another user of it: the agent's half of `sudo`.
//!
//! Only in a box whose policy gives it a root, and then for everybody in it: who asks is not looked at. No program gains
//! anything by being executed (no new privileges); the command is a child of the agent, with the box's own filter,
//! Landlock and limits, and of capabilities what `blastbox_sys::identity::ROOT` names.
//!
//! ```text
//! Asking ──a whole request and three streams──► Running ──its process ended──► (answer, closed)
//!    └──anything else──► (closed)                  └──whoever asked is gone──► (killed)
//! ```
//!
//! Trust: guest, and read by `blastbox_wire::agent::SudoRequest` alone, which the fuzz target of this name is for. What is kept for a request is bounded, and a request that is none closes its line.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::spawn::{self, Dead, Identity, Memory, Spawn, Spawned, Terminal};
use blastbox_wire::agent::{SUDO_NAME, SUDO_PROGRAM, SudoAnswer, SudoRequest};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recvmsg, send, socket_with,
};
use rustix::process::Pid;

use crate::exec::NotStarted;
use crate::execs::Volunteering;
use crate::find;

/// Tokens from here to those of file operations are about requests; the first one is the listener's.
pub(crate) const FIRST_TOKEN: u64 = 1 << 61;
/// Requests at a time. Whoever comes next is sent away.
const MOST: usize = 32;
/// Bytes taken at a time.
const CHUNK: usize = 64 * 1024;
/// Where programs look for `sudo`, where the root of the box can be written.
const USUAL_PLACE: &str = "/usr/local/bin/sudo";

#[derive(Debug)]
enum Phase {
    Asking { bytes: Vec<u8>, streams: Vec<OwnedFd> },
    Running { pid: Pid, outcome: OwnedFd },
}

#[derive(Debug)]
struct Line {
    token: u64,
    socket: OwnedFd,
    phase: Phase,
}

/// Why a line is closed.
#[derive(Debug, PartialEq, Eq)]
struct Closed;

/// All requests.
#[derive(Debug)]
pub(crate) struct Sudo {
    root: Option<Identity>,
    oom: Volunteering,
    listener: Option<OwnedFd>,
    /// A descriptor that is there to be given up, where there is no other left.
    spare: Option<OwnedFd>,
    lines: Vec<Line>,
    next: u64,
}

impl Sudo {
    /// Listens, where the box has a root. Before any other program of the box runs: nobody else can have the name.
    pub(crate) fn open(root: Option<Identity>, oom: Volunteering, epoll: &OwnedFd) -> std::io::Result<Self> {
        let listener = root.map(|_| listen_for_requests(epoll)).transpose()?;
        if root.is_some() {
            // Where that place cannot be written, the search path leads to the program itself.
            rustix::fs::symlink(SUDO_PROGRAM, USUAL_PLACE).ok();
        }
        let spare = listener.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(Self { root, oom, listener, spare, lines: Vec::new(), next: FIRST_TOKEN + 1 })
    }

    /// The commands that run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.lines.iter().filter_map(|line| match line.phase {
            Phase::Asking { .. } => None,
            Phase::Running { pid, .. } => Some(pid),
        })
    }

    /// Somebody asks, or says more.
    pub(crate) fn ready(&mut self, token: u64, epoll: &OwnedFd) {
        if token == FIRST_TOKEN {
            self.accept(epoll);
            return;
        }
        let Some(at) = self.lines.iter().position(|line| line.token == token) else { return };
        let (root, oom) = (self.root, self.oom);
        let heard = self.lines.get_mut(at).map_or(Ok(()), |line| line.hear(root, oom));
        if heard == Err(Closed) {
            let line = self.lines.swap_remove(at);
            if let Phase::Running { pid, .. } = line.phase {
                // Whoever waited for it is gone, most often because it was killed. Nothing that it started is left.
                spawn::signal_group(pid, 9).ok();
            }
        }
    }

    fn accept(&mut self, epoll: &OwnedFd) {
        let Some(listener) = &self.listener else { return };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..MOST {
            let socket = match accept_with(listener, flags) {
                Ok(socket) => socket,
                // Whoever waits is sent away: left where it is, it would ring for ever.
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    accept_with(listener, flags).ok();
                    self.spare = listener.try_clone().ok();
                    continue;
                }
                Err(_) => return,
            };
            if self.lines.len() >= MOST {
                continue;
            }
            let token = self.next;
            if epoll::add(epoll, &socket, EventData::new_u64(token), EventFlags::IN).is_ok() {
                self.next = token.saturating_add(1);
                let phase = Phase::Asking { bytes: Vec::new(), streams: Vec::new() };
                self.lines.push(Line { token, socket, phase });
            }
        }
    }

    /// A process has ended: if it is one of these, whoever asked for it is told.
    pub(crate) fn ended(&mut self, dead: &Dead) {
        let is_it = |line: &Line| matches!(&line.phase, Phase::Running { pid, .. } if *pid == dead.pid);
        let Some(at) = self.lines.iter().position(is_it) else { return };
        let line = self.lines.swap_remove(at);
        let Phase::Running { outcome, .. } = &line.phase else { return };
        // The process is gone, so nobody can still be about to write there.
        let answer = match spawn::outcome(outcome.as_fd()) {
            Ok(Err(failed)) => refused(failed),
            Ok(Ok(())) | Err(_) => dead.code.map_or(SudoAnswer::Signal(dead.signal), SudoAnswer::Code),
        };
        line.answer(answer);
    }
}

impl Line {
    fn answer(&self, answer: SudoAnswer) {
        // Five bytes, the first ever sent there: they fit, or nobody is there to read them.
        send(&self.socket, &answer.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).ok();
    }

    /// Takes what there is, once.
    fn hear(&mut self, root: Option<Identity>, oom: Volunteering) -> Result<(), Closed> {
        let mut chunk = vec![0; CHUNK];
        let (got, mut came) = match receive(&self.socket, &mut chunk) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) | Ok((0, _)) => return Err(Closed),
            Ok(received) => received,
        };
        let said = chunk.get(..got).unwrap_or_default();
        match &mut self.phase {
            Phase::Running { pid, .. } => {
                signal_all(*pid, said);
                Ok(())
            }
            Phase::Asking { bytes, streams } => {
                bytes.extend_from_slice(said);
                streams.append(&mut came);
                if streams.len() > 3 {
                    return Err(Closed);
                }
                let asked = SudoRequest::parse(bytes).map_err(|_| Closed)?;
                let Some((request, taken)) = asked else { return Ok(()) };
                let [input, output, error] = streams.as_slice() else { return Err(Closed) };
                let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
                let root = root.ok_or(Closed)?;
                let identity = match request.uid {
                    0 => Identity { gid: request.gid, ..root },
                    uid => Identity { uid, gid: request.gid, keeps: 0 },
                };
                match start(request, identity, streams, oom.own_word()) {
                    Ok(Spawned { pid, outcome }) => {
                        signal_all(pid, bytes.get(taken..).unwrap_or_default());
                        self.phase = Phase::Running { pid, outcome };
                        Ok(())
                    }
                    Err(answer) => {
                        self.answer(answer);
                        Err(Closed)
                    }
                }
            }
        }
    }
}

fn listen_for_requests(epoll: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&listener, &SocketAddrUnix::new_abstract_name(SUDO_NAME)?)?;
    listen(&listener, 16)?;
    epoll::add(epoll, &listener, EventData::new_u64(FIRST_TOKEN), EventFlags::IN)?;
    Ok(listener)
}

/// Each byte is a signal. Others than the kernel knows are nobody's.
fn signal_all(pid: Pid, signals: &[u8]) {
    for &signal in signals.iter().filter(|signal| (1..=64).contains(*signal)) {
        spawn::signal_group(pid, signal).ok();
    }
}

/// Bytes, and at most three descriptors.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut came = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            came.extend(rights);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::INVAL);
    }
    Ok((got.bytes, came))
}

fn start(
    request: SudoRequest,
    identity: Identity,
    streams: [std::os::fd::BorrowedFd<'_>; 3],
    oom_score_adj: Option<i16>,
) -> Result<Spawned, SudoAnswer> {
    let SudoRequest { uid: _, gid: _, arguments, environment, directory } = request;
    let bad = |NotStarted(_, errno)| SudoAnswer::NotStarted(errno);
    let texts = |texts: Vec<Vec<u8>>| texts.into_iter().map(find::text).collect::<Result<Vec<_>, _>>();
    let programs =
        find::candidates(arguments.first().map_or(b"", Vec::as_slice), &environment).map_err(bad)?;
    let (arguments, environment) = (texts(arguments).map_err(bad)?, texts(environment).map_err(bad)?);
    let directory = find::text(directory).map_err(bad)?;
    spawn::spawn(&Spawn {
        programs: &programs,
        arguments: &arguments,
        environment: &environment,
        directory: &directory,
        identity: Some(identity),
        streams,
        terminal: Terminal::None,
        oom_score_adj,
        memory: Memory::Copied,
    })
    .map_err(refused)
}

fn refused(failed: spawn::SpawnError) -> SudoAnswer {
    match failed.stage {
        spawn::Stage::Directory => SudoAnswer::NoDirectory(failed.errno),
        _ => SudoAnswer::NotStarted(failed.errno),
    }
}
