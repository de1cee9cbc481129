//! What makes a copy of a guest another machine: what no two of them may have in common.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_sys::chance;
use blastbox_wire::agent::Wake;
use rustix::fs::{Mode, OFlags, open};
use rustix::time::{ClockId, Timespec};

/// Who reads from a port that is not there yet sees what looks like its end.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Reads as many bytes as there is room for, and waits for all of them.
pub(super) fn read_whole(port: &OwnedFd, bytes: &mut [u8]) -> io::Result<()> {
    let (mut filled, mut silent) = (0, None::<Instant>);
    while filled < bytes.len() {
        let room = bytes.get_mut(filled..).unwrap_or_default();
        match rustix::io::retry_on_intr(|| rustix::io::read(port, &mut *room))? {
            0 if silent.get_or_insert_with(Instant::now).elapsed() > PATIENCE => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            0 => std::thread::sleep(PAUSE),
            count => {
                silent = None;
                filled = filled.saturating_add(count);
            }
        }
    }
    Ok(())
}

/// Makes this copy unlike every other one. Nothing runs here before that is done.
pub(super) fn rise(wake: &Wake) -> io::Result<()> {
    let device = open("/dev/urandom", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    chance::renew(device.as_fd(), wake.fresh)?;
    let (seconds, nanos) = wake.time;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    rustix::time::clock_settime(ClockId::Realtime, time)?;
    Ok(rustix::system::sethostname(wake.name.as_bytes())?)
}
