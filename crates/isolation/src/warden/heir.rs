//! A warden whose caller is gone: the door at which it waits for another one, and what it has kept.
//!
//! The door is a socket in the caller's own directory, which nobody else can enter; and the warden lets in nobody but its own
//! user.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use blastbox_sys::channel;
use blastbox_wire::BoxId;
use blastbox_wire::agent::VERSION;
use blastbox_wire::limits::MAX_WARDEN_MESSAGE;
use blastbox_wire::warden::{Answer, PROTOCOL};
use rustix::event::PollFlags;
use rustix::fs::{AtFlags, Mode, chmodat, unlinkat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::mark::{Mark, WardenName};
use super::process::Process;
use super::unsent::Unsent;
use super::{Mission, Warden, WardenError, ready};

/// How long a warden may take to hand over what it has kept.
const PATIENCE: Duration = Duration::from_secs(5);
/// Those that may knock at once: there is one daemon to a directory.
const KNOCKING: i32 = 4;

/// Where a warden waits for whoever comes after its caller.
#[derive(Debug)]
pub struct Door(OwnedFd);

/// What a warden has handed over.
#[derive(Debug)]
pub struct Inheritance {
    /// The warden itself.
    pub warden: Warden,
    /// The boxes that it has kept, with the host's end of their control channels.
    pub boxes: Vec<(BoxId, OwnedFd)>,
}

/// Whoever speaks another language does not find it.
fn file_name(name: WardenName) -> String {
    format!("warden-{name}.{PROTOCOL}-{VERSION}")
}

/// By the directory's descriptor: its path may be longer than an address.
fn address(directory: BorrowedFd<'_>, name: WardenName) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), file_name(name)))?)
}

fn socket(more: SocketFlags) -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | more, None)?)
}

impl Door {
    /// Opens it in a directory that is its owner's alone.
    pub fn open(directory: BorrowedFd<'_>, name: WardenName) -> io::Result<Self> {
        let socket = socket(SocketFlags::empty())?;
        bind(&socket, &address(directory, name)?)?;
        // The directory keeps others out already.
        chmodat(directory, file_name(name), Mode::from_raw_mode(0o600), AtFlags::empty()).ok();
        listen(&socket, KNOCKING)?;
        Ok(Self(socket))
    }

    /// Takes it away. One that is not there is no trouble.
    pub fn remove(directory: BorrowedFd<'_>, name: WardenName) {
        unlinkat(directory, file_name(name), AtFlags::empty()).ok();
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Warden {
    /// Takes the place of a caller that is gone, at a warden that has kept boxes for whoever does.
    pub fn inherit(
        directory: BorrowedFd<'_>,
        name: WardenName,
        mark: Mark,
        program: &Path,
    ) -> Result<Inheritance, WardenError> {
        let process = Process::of(mark).map_err(WardenError::Receive)?;
        // Not waited for: at the door of one that was stopped others may stand already.
        let socket = socket(SocketFlags::NONBLOCK).map_err(WardenError::Receive)?;
        let address = address(directory, name).map_err(WardenError::Receive)?;
        connect(&socket, &address).map_err(|errno| WardenError::Receive(errno.into()))?;
        let mut warden = Self {
            socket,
            process,
            view: std::sync::Mutex::new(None),
            buffer: vec![0; MAX_WARDEN_MESSAGE].into_boxed_slice(),
            program: program.to_owned(),
            mission: Mission::Serve,
            name: Some(name),
            heritable: true,
            ready: None,
            unsent: Unsent::default(),
        };
        let mut boxes = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while warden.ready.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if !ready(warden.as_fd(), PollFlags::IN, left).map_err(WardenError::Receive)? {
                return Err(WardenError::NotReady(PATIENCE));
            }
            let received =
                channel::receive(&warden.socket, &mut warden.buffer).map_err(WardenError::Receive)?;
            let Some((length, descriptors)) = received else {
                return Err(WardenError::Ended { status: None });
            };
            let bytes = warden.buffer.get(..length).unwrap_or_default();
            match (Answer::decode(bytes).map_err(WardenError::Garbled)?, descriptors.into_iter().next()) {
                (Answer::Held { box_id }, Some(channel)) => boxes.push((box_id, channel)),
                (Answer::Ready(powers), _) => warden.ready = Some(powers),
                // What it answered to whoever was there before is nobody's any more.
                _ => {}
            }
        }
        Ok(Inheritance { warden, boxes })
    }
}
