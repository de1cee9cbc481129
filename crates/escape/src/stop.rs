//! A word that ends a campaign before its time, from wherever it is said.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Says that a campaign is to end. Once said, it stays said; what runs is then ended and cleared away.
#[derive(Debug, Clone)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// One that nobody has said yet.
    ///
    /// # Errors
    /// Where there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Says it.
    pub fn say(&self) {
        // Full means that it was said very often.
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }

    /// Whether it was said.
    #[must_use]
    pub fn is_said(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Stop {
    /// Readable once it was said.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_said_for_everybody() {
        let stop = Stop::new().unwrap();
        let other = stop.clone();
        assert!(!stop.is_said());
        other.say();
        assert!(stop.is_said() && stop.is_said() && other.is_said());
    }
}
