//! A box that runs falls asleep to be copied, and wakes as itself or as a copy.
//!
//! ```text
//! Sleep ─► everything stopped ─► all that waits is said ─► Asleep ─► silence ─► Morning ─► everything goes on
//! ```
//! From `Asleep` to the morning nothing is on the stream in either direction: whatever machine this memory wakes in begins with an
//! empty one. Nothing of the payload runs before a copy has randomness, a clock and a name of its own.

use std::io;
use std::time::{Duration, Instant};

use blastbox_wire::agent::{AgentFrame, Morning, WAKE};
use blastbox_wire::egress::MAX_AUTHORITY;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::control::Control;
use crate::nurse::Errand;
use crate::session::{End, Session};

/// A copy whose port is not there yet looks as if the host had gone.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);
/// Of a box that cannot be copied.
const NOBODY: i32 = 38;

impl Session {
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
        // Now, while nothing runs that could add to them: what waits here would be told again by every copy.
        self.denials.flush(&mut self.control);
        self.control.send(&AgentFrame::Asleep { errno: 0 });
        say_all(&mut self.control)?;
        let risen = match hear_morning(&mut self.control)? {
            Morning::Same => nurse.send(&Errand::Thaw),
            Morning::Copy(wake) if nurse.needs_authority() => {
                let authority = hear_authority(&mut self.control)?;
                nurse.send_with(&Errand::Rise(wake), &authority)
            }
            Morning::Copy(wake) => nurse.send(&Errand::Rise(wake)),
        };
        risen.map_err(End::Failed)
    }
}

/// Waits until the stream has taken everything.
fn say_all(control: &mut Control) -> Result<(), End> {
    loop {
        control.flush()?;
        if control.is_empty() {
            return Ok(());
        }
        match poll(&mut [PollFd::new(&*control, PollFlags::OUT)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(End::Failed(errno.into())),
        }
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
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&*control, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(End::Failed(errno.into())),
            },
            Err(errno) => return Err(End::Failed(errno.into())),
        }
    }
    Ok(())
}
