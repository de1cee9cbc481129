//! Is `/dev/kvm` fast enough? A guest of two hundred thousand instructions, timed.
//!
//! On some cloud machines the device exists and every ioctl works, but the guest is run a thousand times slower than
//! on hardware: nothing that boots a kernel will ever finish there. The only honest test is to run something.
//!
//! The probe cannot hang: it runs in a thread of its own, under a timer whose signal only `KVM_RUN` lets through.

mod guest;

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Slower than this for [`INSTRUCTIONS`] is present but not usable. Hardware needs far less than 1 ms, nested
/// virtualisation 1–2 ms, what this is meant to catch more than 100 ms.
pub const USABLE_LIMIT: Duration = Duration::from_millis(20);

/// How many instructions the measured stretch has.
pub const INSTRUCTIONS: u32 = 200_000;

/// The best of so many runs, as long as they are quick: a busy host must not fail the probe.
const TRIES: u32 = 3;

/// After this a try gives up, whatever the guest does.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A guest that is not at its end by then is stopped: how far it came says how slow it is.
const ENOUGH: Duration = USABLE_LIMIT.saturating_mul(2);

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvmProbe {
    /// There is no `/dev/kvm`.
    Absent,
    /// It is there and may not be opened; the errno.
    NoAccess(i32),
    /// It could be opened but does not work.
    Broken {
        /// What was tried.
        step: &'static str,
        /// The errno; `ETIMEDOUT` when the guest did not finish in time.
        errno: i32,
    },
    /// A guest ran.
    Measured {
        /// The best time for [`INSTRUCTIONS`] guest instructions.
        per_200k: Duration,
    },
}

impl KvmProbe {
    /// Whether virtual machines are worth starting here.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Measured { per_200k } if *per_200k <= USABLE_LIMIT)
    }
}

/// What could not be done, and the errno.
struct Failed(&'static str, i32);

impl Failed {
    fn last(step: &'static str) -> Self {
        Self(step, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

/// Runs the probe: a few milliseconds on good hardware, a tenth of a second where that is slow, a few seconds at most.
#[must_use]
pub fn probe() -> KvmProbe {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    let kvm = match rustix::fs::open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(kvm) => kvm,
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return KvmProbe::Absent,
        Err(error) => return KvmProbe::NoAccess(error.raw_os_error()),
    };
    match best_time(&kvm) {
        Ok(per_200k) => KvmProbe::Measured { per_200k },
        Err(Failed(step, errno)) => KvmProbe::Broken { step, errno },
    }
}

fn best_time(kvm: &OwnedFd) -> Result<Duration, Failed> {
    let (mut best, mut slow) = (None::<Duration>, 0);
    for _ in 0..TRIES {
        // A thread for each, because its signal mask and its timer's signal die with it.
        let tried = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("kvm-probe".into());
            let thread = thread
                .spawn_scoped(scope, || try_once(kvm))
                .map_err(|error| Failed("start a thread", error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
            thread.join().unwrap_or(Err(Failed("run the probe", libc::EFAULT)))
        });
        match tried {
            Ok((took, worked)) => {
                best = Some(best.map_or(took, |known| known.min(took)));
                // Slow twice, and not because the host had no time for it: the next try would not say anything else, and every daemon
                // that starts would wait for it.
                slow += u32::from(worked > USABLE_LIMIT);
                if took <= USABLE_LIMIT || slow > 1 {
                    break;
                }
            }
            // Out of time, or out of luck, after it has worked once: what was measured counts.
            Err(failed) => return best.ok_or(failed),
        }
    }
    best.ok_or(Failed("run the guest", libc::ETIMEDOUT))
}

/// How long a guest took, and the processor time that went into it.
fn try_once(kvm: &OwnedFd) -> Result<(Duration, Duration), Failed> {
    let alarm = guest::Alarm::after(PATIENCE)?;
    guest::Guest::new(kvm, &alarm, INSTRUCTIONS / 2)?.time(INSTRUCTIONS / 2, ENOUGH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Two instructions each.
    const TURNS: u32 = INSTRUCTIONS / 2;

    #[test]
    fn the_probe_ends_in_time_and_says_what_it_found() {
        let started = Instant::now();
        let found = probe();
        println!("{found:?} after {:?}", started.elapsed());
        assert!(started.elapsed() < PATIENCE * TRIES + Duration::from_secs(2));
        if let KvmProbe::Measured { per_200k } = found {
            assert!(per_200k > Duration::ZERO);
        }
    }

    #[test]
    fn a_guest_that_never_ends_is_given_up() {
        use rustix::fs::{Mode, OFlags};
        let Ok(kvm) = rustix::fs::open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            blastbox_skips::skip_this("/dev/kvm cannot be opened");
            return;
        };
        let thread = std::thread::spawn(move || {
            let alarm = guest::Alarm::after(Duration::from_millis(200)).ok()?;
            let mut guest = guest::Guest::with_code(&kvm, &alarm, &[0xEB, 0xFE]).ok()?; // jmp to itself
            guest.time(TURNS, ENOUGH).err().map(|failed| failed.1)
        });
        assert_eq!(thread.join().unwrap(), Some(libc::ETIMEDOUT));
    }

    #[test]
    fn a_guest_that_is_stopped_says_how_long_it_would_have_taken() {
        use rustix::fs::{Mode, OFlags};
        let Ok(kvm) = rustix::fs::open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
            blastbox_skips::skip_this("/dev/kvm cannot be opened");
            return;
        };
        let timed = |turns, enough| {
            let alarm = guest::Alarm::after(PATIENCE)?;
            guest::Guest::new(&kvm, &alarm, turns)?.time(turns, enough)
        };
        // The best of some: a busy host makes each longer.
        let took = |turns, enough| {
            let once =
                || std::thread::scope(|scope| scope.spawn(|| timed(turns, enough).ok()).join().unwrap());
            std::iter::repeat_with(once).take(5).flatten().map(|(took, _)| took).min()
        };
        // On the fastest hardware it would take half a second.
        const LONGER: u32 = 20_000;
        let started = Instant::now();
        let part = took(TURNS * LONGER, Duration::from_millis(5));
        let stopped = started.elapsed() / 5;
        let (Some(whole), Some(all)) = (took(TURNS, PATIENCE), part) else {
            blastbox_skips::skip_this("/dev/kvm does not work");
            return;
        };
        assert!(stopped < all / 2, "it ran to its end: {stopped:?} {all:?}");
        let part = all / LONGER;
        assert!(whole / 20 < part && part < whole * 20, "{whole:?} {part:?}");
    }

    #[test]
    fn only_a_fast_guest_is_usable() {
        assert!(KvmProbe::Measured { per_200k: USABLE_LIMIT }.is_usable());
        assert!(!KvmProbe::Measured { per_200k: USABLE_LIMIT * 2 }.is_usable());
        assert!(!KvmProbe::Absent.is_usable());
    }
}
