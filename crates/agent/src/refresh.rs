//! After a restore: several boxes may have woken up from one memory, with one clock and one state of randomness. Each half
//! says whether it was done: what fails here fails for want of a right that this tier does not give.

use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use rustix::time::{ClockId, Timespec};

/// Mixes in randomness.
pub(crate) fn mix_in(entropy: [u8; 32]) -> bool {
    let pool = rustix::fs::open("/dev/urandom", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    pool.and_then(|pool| rustix::io::write(&pool, &entropy)) == Ok(entropy.len())
}

/// Sets the clock, where the kernel is the box's own. 0: nobody asks for it.
pub(crate) fn set_clock(unix_nanos: u64, capabilities: CapabilitySet) -> bool {
    // Asked only with the right to: under the box's filter the call is denied, and a denied call waits for the agent.
    if unix_nanos > 0
        && capabilities.contains(CapabilitySet::SYS_TIME)
        && let Ok(tv_sec) = i64::try_from(unix_nanos / 1_000_000_000)
        && let Ok(tv_nsec) = (unix_nanos % 1_000_000_000).try_into()
    {
        return rustix::time::clock_settime(ClockId::Realtime, Timespec { tv_sec, tv_nsec }).is_ok();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_may_not_be_set_is_not_said_to_be() {
        assert!(!set_clock(0, CapabilitySet::SYS_TIME), "nobody asked");
        assert!(!set_clock(1, CapabilitySet::empty()), "no right, and so not tried: the host's clock stays");
        assert!(!set_clock(u64::MAX, CapabilitySet::SYS_TIME & CapabilitySet::empty()));
        assert!(mix_in([7; 32]), "everybody may add to the pool");
    }
}
