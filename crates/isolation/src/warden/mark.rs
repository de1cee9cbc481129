//! A warden that somebody else started: its name, and its process, told apart from every other that had its number.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{PROGRAM, ready};

/// The name of a warden, chosen before it is started. The directory of its groups bears it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WardenName(u64);

impl WardenName {
    /// A name that no other warden has.
    pub fn random() -> io::Result<Self> {
        let mut random = [0_u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self(u64::from_ne_bytes(random)))
    }
}

impl fmt::Display for WardenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not the name of a warden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a warden: expected 16 hexadecimal digits")]
pub struct BadWardenName;

impl FromStr for WardenName {
    type Err = BadWardenName;
    fn from_str(text: &str) -> Result<Self, BadWardenName> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() != 16 || !plain {
            return Err(BadWardenName);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| BadWardenName)
    }
}

/// A process, and when it began: together they are one process's alone until the machine is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub pid: u32,
    /// When it began, in the kernel's ticks.
    pub ticks: u64,
}

/// How a foreign warden ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// It was not there any more.
    Absent,
    /// It ended by itself.
    ByItself,
    /// It had to be killed.
    Killed,
}

impl Mark {
    /// The mark of a living process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let (_, ticks) = look(pid)?;
        Some(Self { pid, ticks })
    }

    /// Whether this warden still lives.
    #[must_use]
    pub fn is_there(&self) -> bool {
        look(self.pid).is_some_and(|(name, ticks)| ticks == self.ticks && name == PROGRAM)
    }

    /// Waits until a warden whose caller is gone has ended, and ends it where it does not: it hangs, or was stopped.
    /// The kernel ends its boxes with it.
    pub fn end(&self, patience: Duration) -> io::Result<Farewell> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(Farewell::Absent);
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(Farewell::Absent),
            Err(errno) => return Err(errno.into()),
        };
        // Looked at after it is held: from here on its number cannot become another's.
        if !self.is_there() {
            return Ok(Farewell::Absent);
        }
        if ready(process.as_fd(), PollFlags::IN, patience)? {
            return Ok(Farewell::ByItself);
        }
        match pidfd_send_signal(&process, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        if ready(process.as_fd(), PollFlags::IN, patience)? {
            Ok(Farewell::Killed)
        } else {
            Err(io::Error::new(io::ErrorKind::TimedOut, "it was killed and does not end"))
        }
    }
}

/// The short name of a living process, and when it began.
fn look(pid: u32) -> Option<(String, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold any character, brackets too.
    let (front, rest) = stat.rsplit_once(") ")?;
    let name = front.split_once('(')?.1.to_owned();
    let mut fields = rest.split(' ');
    let dead = matches!(fields.next()?, "Z" | "X");
    let ticks = fields.nth(18)?.parse().ok()?;
    (!dead).then_some((name, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_warden_or_began_at_another_time_is_left_alone() {
        let own = Mark::of(std::process::id()).unwrap();
        assert!(own.ticks > 0 && !own.is_there());
        assert_eq!(own.end(Duration::ZERO).unwrap(), Farewell::Absent);
        let other = Mark { ticks: own.ticks + 1, ..own };
        assert_eq!(other.end(Duration::ZERO).unwrap(), Farewell::Absent);
        assert_eq!(Mark { pid: 0, ticks: 0 }.end(Duration::ZERO).unwrap(), Farewell::Absent);
    }

    #[test]
    fn a_name_is_sixteen_digits_and_nothing_that_could_be_a_path() {
        let name = WardenName::random().unwrap();
        assert_eq!(name.to_string().parse(), Ok(name));
        for bad in
            ["", "../../etc", "00000000000000000", "0000000000000G00", "ABCDEF0123456789", "+123456789abcdef"]
        {
            assert_eq!(bad.parse::<WardenName>(), Err(BadWardenName), "{bad}");
        }
    }
}
