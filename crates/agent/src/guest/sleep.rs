//! A guest that others begin as copies of: it stops when it is whole and before anything has run, and goes on with what no two
//! copies may have in common.
//!
//! What the copies share is what the kernel drew at its boot (where it lies in memory, seeds of its tables) and the image.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_sys::chance;
use blastbox_wire::agent::{ASLEEP, WAKE, Wake};
use rustix::fs::{Mode, OFlags, open};
use rustix::time::{ClockId, Timespec};

/// A copy whose port is not there yet looks as if the host had gone.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// Says that it can be copied, and waits to be woken. In a copy it comes back.
pub(super) fn sleep(port: &OwnedFd) -> io::Result<Wake> {
    let mut left = ASLEEP.as_slice();
    while !left.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(port, left))?;
        left = left.get(written..).unwrap_or_default();
    }
    let mut bytes = [0_u8; WAKE];
    read_whole(port, &mut bytes)?;
    Wake::parse(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

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

/// Makes this copy unlike every other one. Nothing was started here before.
pub(super) fn rise(wake: &Wake) -> io::Result<()> {
    let device = open("/dev/urandom", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    chance::renew(device.as_fd(), wake.fresh)?;
    let (seconds, nanos) = wake.time;
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    rustix::time::clock_settime(ClockId::Realtime, time)?;
    Ok(rustix::system::sethostname(wake.name.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_guest_sleeps_until_it_is_woken_and_reads_nothing_of_what_follows() {
        let (mut host, guest) = UnixStream::pair().unwrap();
        let guest = OwnedFd::from(guest);
        let wake = Wake { fresh: [3; 64], time: (1, 2), name: "bx-1".to_owned() };
        let bytes = wake.encode();
        std::thread::scope(|scope| {
            let sleeping = scope.spawn(|| sleep(&guest));
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
    }

    #[test]
    fn what_is_no_wake_ends_the_guest() {
        let (mut host, guest) = UnixStream::pair().unwrap();
        host.write_all(&[0; WAKE]).unwrap();
        assert!(sleep(&OwnedFd::from(guest)).is_err());
    }
}
