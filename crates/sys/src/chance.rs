//! The kernel's randomness, for a guest that begins as a copy of another: until it is given new one, both draw the same.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that renew it.
pub const FRESH: usize = 64;

/// What `RNDADDENTROPY` takes.
#[repr(C)]
struct Pool {
    bits: libc::c_int,
    bytes: libc::c_int,
    fresh: [u8; FRESH],
}

const ADD: libc::Ioctl = 0x4008_5203;
const RESEED: libc::Ioctl = 0x5207;

/// Mixes bytes that nobody else has into the kernel's pool, and has it draw from that at once. `device` is `/dev/urandom`; the
/// caller has the power of the machine's administrator.
pub fn renew(device: BorrowedFd<'_>, fresh: [u8; FRESH]) -> io::Result<()> {
    let pool = Pool { bits: 512, bytes: 64, fresh };
    // SAFETY: the request reads two numbers and as many bytes behind them as the second says, all of it in `pool`.
    if unsafe { libc::ioctl(device.as_raw_fd(), ADD, &raw const pool) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the request takes no argument.
    if unsafe { libc::ioctl(device.as_raw_fd(), RESEED, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_the_administrator_of_a_machine_renews_its_randomness_and_only_at_the_device() {
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(renew(other.as_fd(), [1; FRESH]).is_err());
        // Adding to the host's own pool takes nothing from it.
        let device = std::fs::File::open("/dev/urandom").unwrap();
        let may = rustix::process::geteuid().is_root();
        match renew(device.as_fd(), [1; FRESH]) {
            Ok(()) => assert!(may),
            // Root without the capability, as in most containers.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}
