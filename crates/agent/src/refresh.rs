//! After a restore: several boxes may have woken up from one memory, with one clock and one state of randomness.

use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, Timespec};

/// Mixes in randomness and, where the kernel is the box's own, sets the clock. What fails here fails for want of a
/// right that this tier does not give; the host's kernel is fresh in both.
pub(crate) fn refresh(unix_nanos: u64, entropy: [u8; 32], capabilities: CapabilitySet) {
    if let Ok(pool) = rustix::fs::open("/dev/urandom", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        rustix::io::write(&pool, &entropy).ok();
    }
    // Asked only with the right to: under the box's filter the call is denied, and a denied call waits for the agent.
    if unix_nanos > 0
        && capabilities.contains(CapabilitySet::SYS_TIME)
        && let Ok(tv_sec) = i64::try_from(unix_nanos / 1_000_000_000)
        && let Ok(tv_nsec) = (unix_nanos % 1_000_000_000).try_into()
    {
        rustix::time::clock_settime(ClockId::Realtime, Timespec { tv_sec, tv_nsec }).ok();
    }
}
