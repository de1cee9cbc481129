//! A guest that others begin as copies of sleeps before anything has run in it; a box that runs falls asleep to be copied, and wakes as
//! itself or as a copy.
//!
//! ```text
//! whole ─► ASLEEP ─► silence ─► Wake ─► Hello
//! Sleep ─► everything stopped ─► all that waits is said ─► Asleep ─► silence ─► Morning ─► everything goes on
//! ```
//! A template has its users, limits and filter on, and everything ready: what a copy does not do any more need not be done in each of
//! them. What the copies share is what was drawn at the boot (where the kernel and the agent lie in memory, seeds of tables) and the image.
//!
//! From `Asleep` to the morning nothing is on the stream in either direction: whatever machine this memory wakes in begins with an
//! empty one. Nothing of the payload runs before a copy has randomness, a clock and a name of its own.

use std::io;
use std::time::{Duration, Instant};

use blastbox_wire::agent::{ASLEEP, AgentFrame, Morning, WAKE, Wake};
use blastbox_wire::egress::MAX_AUTHORITY;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::control::Control;
use crate::failpoint;
use crate::nurse::{Errand, Nurse};
use crate::session::{End, Session};

/// A copy whose port is not there yet looks as if the host had gone.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
/// Of a box that cannot be copied.
const NOBODY: i32 = 38;

impl Session {
    /// Of a guest that others begin as copies of: waits until it is one of them. In every other one there is nothing to wait for.
    pub(crate) fn be_copied(&mut self) -> Result<(), End> {
        match &self.nurse {
            Some(nurse) if nurse.is_a_templates() => {
                let wake = wait_to_be_copied(&mut self.control)?;
                rise(nurse, wake, &mut self.control)
            }
            _ => Ok(()),
        }
    }

    /// Sleeps until the morning, in this machine or in a copy of it. Where it cannot, all goes on.
    pub(crate) fn sleep(&mut self) -> Result<(), End> {
        if self.control.has_more() {
            return Err(End::Breach("a frame after the last one of the day"));
        }
        let Some(nurse) = &self.nurse else {
            self.control.send(&AgentFrame::Asleep { errno: NOBODY });
            return Ok(());
        };
        if let Err(error) = nurse.send(&Errand::Freeze) {
            self.control.send(&AgentFrame::Asleep { errno: error.raw_os_error().unwrap_or(NOBODY) });
            return Ok(());
        }
        failpoint::reach("frozen");
        // Now, while nothing runs that could add to them: what waits here would be told again by every copy.
        self.denials.flush(&mut self.control);
        self.control.send(&AgentFrame::Asleep { errno: 0 });
        say_all(&mut self.control)?;
        failpoint::reach("asleep");
        match hear_morning(&mut self.control)? {
            Morning::Same => {
                failpoint::reach("morning");
                nurse.send(&Errand::Thaw).map_err(End::Failed)
            }
            Morning::Copy(wake) => rise(nurse, wake, &mut self.control),
        }
    }
}

/// Has this copy made another machine than every other one.
fn rise(nurse: &Nurse, wake: Wake, control: &mut Control) -> Result<(), End> {
    failpoint::reach("woken");
    let authority = if nurse.needs_authority() { hear_authority(control)? } else { Vec::new() };
    nurse.send_with(&Errand::Rise(wake), &authority).map_err(End::Failed)?;
    failpoint::reach("risen");
    Ok(())
}

/// Says that this guest can be copied, and waits to be woken. In a copy it comes back.
fn wait_to_be_copied(control: &mut Control) -> Result<Wake, End> {
    // Not queued: what waits to be said first is the copy's.
    let mut left = ASLEEP.as_slice();
    while !left.is_empty() {
        match rustix::io::write(&*control, left) {
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(control, PollFlags::OUT)?,
            Err(errno) => return Err(End::Failed(errno.into())),
        }
    }
    match hear_morning(control)? {
        Morning::Copy(wake) => Ok(wake),
        Morning::Same => Err(End::Breach("a template that is to go on")),
    }
}

fn wait_for(control: &mut Control, what: PollFlags) -> Result<(), End> {
    match poll(&mut [PollFd::new(&*control, what)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(End::Failed(errno.into())),
    }
}

/// Waits until the stream has taken everything.
fn say_all(control: &mut Control) -> Result<(), End> {
    loop {
        control.flush()?;
        if control.is_empty() {
            return Ok(());
        }
        wait_for(control, PollFlags::OUT)?;
    }
}

/// Reads the morning and no byte of what follows.
fn hear_morning(control: &mut Control) -> Result<Morning, End> {
    let mut bytes = [0_u8; WAKE];
    hear(control, &mut bytes)?;
    let broken = |error| End::Failed(io::Error::new(io::ErrorKind::InvalidData, error));
    Morning::parse(&bytes).map_err(broken)
}

/// Reads whom programs of a copy believe, with its length before it, and no byte of what follows.
fn hear_authority(control: &mut Control) -> Result<Vec<u8>, End> {
    let mut bytes = vec![0_u8; 4];
    hear(control, &mut bytes)?;
    let length = bytes.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    if length == 0 || length > MAX_AUTHORITY {
        return Err(End::Breach("an authority that is none"));
    }
    bytes.resize(4 + length, 0);
    hear(control, bytes.get_mut(4..).unwrap_or_default())?;
    Ok(bytes)
}

/// Waits until so many bytes have come.
fn hear(control: &mut Control, bytes: &mut [u8]) -> Result<(), End> {
    let (mut filled, mut silent) = (0, None::<Instant>);
    while filled < bytes.len() {
        let room = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::io::read(&*control, &mut *room) {
            Ok(0) if silent.get_or_insert_with(Instant::now).elapsed() > PATIENCE => {
                return Err(End::HostGone);
            }
            Ok(0) => std::thread::sleep(PAUSE),
            Ok(count) => {
                silent = None;
                filled = filled.saturating_add(count);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for(control, PollFlags::IN)?,
            Err(errno) => return Err(End::Failed(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, OwnedFd) {
        let (host, guest) = UnixStream::pair().unwrap();
        guest.set_nonblocking(true).unwrap();
        (host, guest.into())
    }

    #[test]
    fn a_guest_sleeps_until_it_is_woken_and_reads_nothing_of_what_follows() {
        let (mut host, guest) = pair();
        let mut control = Control::new(guest.try_clone().unwrap());
        // What it says first comes after that, in each copy.
        control.send(&AgentFrame::Pong { token: 7 });
        let wake = Wake { fresh: [3; 64], time: (1, 2), name: "bx-1".to_owned() };
        let bytes = wake.encode();
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| wait_to_be_copied(&mut control));
            let mut said = [0_u8; ASLEEP.len()];
            host.read_exact(&mut said).unwrap();
            assert_eq!(said, ASLEEP);
            // In pieces, and with the first frame behind it.
            host.write_all(&bytes[..100]).unwrap();
            host.write_all(&bytes[100..]).unwrap();
            host.write_all(b"frame").unwrap();
            assert_eq!(sleeping.join().unwrap().unwrap(), wake);
        });
        let mut next = [0_u8; 5];
        rustix::io::read(&guest, &mut next).unwrap();
        assert_eq!(&next, b"frame");
        say_all(&mut control).unwrap();
        let mut said = vec![0; AgentFrame::Pong { token: 7 }.encode().len()];
        host.read_exact(&mut said).unwrap();
        assert_eq!(said, AgentFrame::Pong { token: 7 }.encode());
    }

    #[test]
    fn what_is_no_wake_ends_the_guest() {
        for no_wake in [vec![0; WAKE], Morning::Same.encode()] {
            let (mut host, guest) = pair();
            host.write_all(&no_wake).unwrap();
            assert!(wait_to_be_copied(&mut Control::new(guest)).is_err());
        }
    }
}
