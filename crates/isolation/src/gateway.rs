//! The client of a box's gateway: starts it, hears it, and waits for its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use blastbox_policy::{SealedPolicy, to_toml};
use blastbox_sys::channel;
use blastbox_wire::egress::{
    CARD_WORD, FromGateway, LentSecret, MAX_EGRESS_MESSAGE, MAX_EGRESS_POLICY, MAX_RESOLVERS, ToGateway,
    Veiled, Way,
};
use blastbox_wire::{BoxId, CodecError};
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::warden::{Started, places, ready, start_sealed};

/// The program's name.
const PROGRAM: &str = "blastbox-egress";
/// How long a gateway may take to end after its socket has closed.
const PATIENCE: Duration = Duration::from_secs(2);
const RESOLV_CONF: &str = "/etc/resolv.conf";
const DNS: u16 = 53;
/// Some of the largest frames.
const WIRE_BUFFER: usize = 1 << 20;

/// Why a gateway could not be started or heard.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The program is not where it should be.
    #[error("blastbox-egress is not installed; looked for {}", shown(.looked_for))]
    NotInstalled {
        /// Where it was looked for.
        looked_for: Vec<PathBuf>,
    },
    /// The program could not be started.
    #[error("cannot start the box's gateway")]
    Start(#[source] io::Error),
    /// The gateway could not be told whose it is.
    #[error("cannot tell the box's gateway its rules")]
    Tell(#[source] io::Error),
    /// The policy is too long to be told.
    #[error("the policy, written out in full, has {0} bytes: more than a gateway reads")]
    TooLong(usize),
    /// The gateway could not be heard.
    #[error("cannot hear the box's gateway")]
    Hear(#[source] io::Error),
    /// It said something that is no message.
    #[error("the box's gateway said something that is no message")]
    Garbled(#[source] CodecError),
    /// It says that it cannot be one.
    #[error("the box's gateway gave up: {0}")]
    GaveUp(String),
    /// It ended before it was ready.
    #[error("the box's gateway ended before it was ready")]
    Ended,
    /// It was not ready in time.
    #[error("the box's gateway was not ready within {0:?}")]
    NotReady(Duration),
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// What a gateway had to say at this moment.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// A message.
    Message(FromGateway),
    /// Nothing yet.
    Waiting,
    /// It has ended.
    Gone,
}

/// The gateway of one box, as a process that runs. Dropping this value ends it and waits for that.
#[derive(Debug)]
pub struct Gateway {
    socket: OwnedFd,
    child: Child,
    buffer: Box<[u8]>,
}

impl Gateway {
    /// Starts a gateway for a box. The descriptor is the socket that has to travel with the box's plan.
    pub fn start(box_id: &BoxId, policy: &SealedPolicy, way: Way) -> Result<(Self, OwnedFd), GatewayError> {
        let looked_for = places(PROGRAM).map_err(GatewayError::Start)?;
        let Some(program) = looked_for.iter().find(|path| path.is_file()) else {
            return Err(GatewayError::NotInstalled { looked_for });
        };
        let text = to_toml(policy);
        if text.len() > MAX_EGRESS_POLICY {
            return Err(GatewayError::TooLong(text.len()));
        }
        let (ours, theirs) = channel::pair().map_err(GatewayError::Start)?;
        let (from_warden, for_warden) = channel::pair().map_err(GatewayError::Start)?;
        let flags = fcntl_getfl(&ours).map_err(|errno| GatewayError::Start(errno.into()))?;
        fcntl_setfl(&ours, flags | OFlags::NONBLOCK).map_err(|errno| GatewayError::Start(errno.into()))?;
        let Started { child, view } =
            start_sealed(program, PROGRAM, None, theirs).map_err(GatewayError::Start)?;
        let gateway = Self { socket: ours, child, buffer: vec![0; MAX_EGRESS_MESSAGE].into_boxed_slice() };
        let open = ToGateway::Open { box_id: box_id.clone(), policy: text, resolvers: resolvers(), way };
        channel::send(&gateway, &open.encode(), &[from_warden.as_fd()]).map_err(GatewayError::Tell)?;
        // Now that it has something to do: see `Started`.
        drop(view);
        Ok((gateway, for_warden))
    }

    /// Lays the wire between a machine's network card and this gateway, over the line that [`Self::start`] gave: the gateway
    /// gets one end of it as it would get an interface from the warden, and the machine the other.
    pub fn lay_wire(line: impl AsFd) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // A stream: made in the host's network namespace, a datagram socket would reach the host's abstract names from inside
        // the box, because it takes another receiver with every message even when it is connected.
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        for end in [&ours, &theirs] {
            // As much as the host allows; with less, frames wait more often.
            set_socket_send_buffer_size(end, WIRE_BUFFER).ok();
        }
        channel::send(line, CARD_WORD, &[ours.as_fd()])?;
        Ok(theirs)
    }

    /// Sends the box's secrets, one for each binding of its policy, in their order. Directly after the start.
    pub fn lend(&self, secrets: Vec<LentSecret>) -> Result<(), GatewayError> {
        for secret in secrets {
            let message = Veiled::new(ToGateway::Secret(secret).encode());
            channel::send(self, message.unveil(), &[]).map_err(GatewayError::Tell)?;
        }
        Ok(())
    }

    /// A way to tell it something while somebody else hears it.
    pub fn voice(&self) -> io::Result<Voice> {
        Ok(Voice(self.socket.try_clone()?))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next message, if there is one already. Never waits.
    pub fn hear(&mut self) -> Result<Said, GatewayError> {
        loop {
            return match channel::receive(&self.socket, &mut self.buffer) {
                Ok(Some((length, _))) => FromGateway::decode(self.buffer.get(..length).unwrap_or_default())
                    .map(Said::Message)
                    .map_err(GatewayError::Garbled),
                Ok(None) => Ok(Said::Gone),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Said::Waiting),
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(Said::Gone),
                    _ => Err(GatewayError::Hear(error)),
                },
            };
        }
    }
}

/// A way to tell a gateway something while somebody else hears it.
#[derive(Debug)]
pub struct Voice(OwnedFd);

impl Voice {
    /// The secret of a binding can be used for longer. Never waits: a gateway that does not read loses the word, and
    /// requests with that secret fail when its time is over.
    pub fn renewed(&self, binding: u16, seconds: u32) -> io::Result<()> {
        channel::send(&self.0, &ToGateway::Renewed { binding, seconds }.encode(), &[])
    }

    /// Brings a request of a box without a link: where to, and the stream that it comes on. Never waits: a gateway that does not read
    /// gets none.
    pub fn visit(&self, to: &str, stream: BorrowedFd<'_>) -> io::Result<()> {
        channel::send(&self.0, &ToGateway::Visit { to: to.to_owned() }.encode(), &[stream])
    }

    /// Gives it other rules. It answers when they are in force.
    pub fn change_rules(&self, policy: &SealedPolicy) -> Result<(), GatewayError> {
        let text = to_toml(policy);
        if text.len() > MAX_EGRESS_POLICY {
            return Err(GatewayError::TooLong(text.len()));
        }
        channel::send(&self.0, &ToGateway::Rules { policy: text }.encode(), &[]).map_err(GatewayError::Tell)
    }
}

impl AsFd for Gateway {
    /// The socket, for waiting until it can be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Gateway {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).ok();
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let ended =
            process.is_some_and(|process| ready(process.as_fd(), PollFlags::IN, PATIENCE).unwrap_or(false));
        if !ended {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

/// The host's resolvers. None where the host has none: then no name leads anywhere.
fn resolvers() -> Vec<SocketAddr> {
    std::fs::read_to_string(RESOLV_CONF).map(|text| read_resolvers(&text)).unwrap_or_default()
}

fn read_resolvers(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| -> Option<IpAddr> {
        let mut words = line.split_whitespace();
        // An address with a zone is left out: which interface is meant is known only to the host's own programs.
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok())?
    };
    text.lines().filter_map(address).map(|ip| SocketAddr::new(ip, DNS)).take(MAX_RESOLVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_as_the_host_writes_them() {
        let text = "# comment\nsearch lan\nnameserver 192.0.2.1\n nameserver\t2001:db8::1\nnameserver fe80::1%eth0\nnameserver\n";
        let found: Vec<String> = read_resolvers(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[2001:db8::1]:53"]);
    }
}
