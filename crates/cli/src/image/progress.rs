//! How far something is, on one line of a terminal. Nothing where standard error is none.

use std::time::{Duration, Instant};

use rustix::termios::isatty;

use crate::output;

/// Often enough to be seen moving, seldom enough to cost nothing.
const PAUSE: Duration = Duration::from_millis(100);
const WIDTH: u64 = 24;

/// A line that is written over. Dropping it leaves an empty one.
#[derive(Debug)]
pub(crate) struct Bar {
    shown: bool,
    last: Option<Instant>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { shown: isatty(rustix::stdio::stderr()), last: None }
    }

    /// Says how far it is: so many bytes, of so many where that is known.
    pub(crate) fn tell(&mut self, what: &str, bytes: u64, of: Option<u64>) {
        if !self.shown || self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            return;
        }
        self.last = Some(Instant::now());
        output::say(&format!("\r\x1b[K{}", line(what, bytes, of)));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown && self.last.is_some() {
            output::say("\r\x1b[K");
        }
    }
}

fn line(what: &str, bytes: u64, of: Option<u64>) -> String {
    match of.filter(|of| *of > 0) {
        Some(of) => {
            let done = bytes.min(of).saturating_mul(WIDTH) / of;
            let done = usize::try_from(done).unwrap_or(0);
            let rest = usize::try_from(WIDTH).unwrap_or(0).saturating_sub(done);
            format!("{what} [{}{}] {} of {}", "=".repeat(done), " ".repeat(rest), amount(bytes), amount(of))
        }
        None => format!("{what} {}", amount(bytes)),
    }
}

/// A number of bytes for people, such as `12.3 MiB`.
pub(crate) fn amount(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while tenths >= 10_240
        && let Some(next) = units.next()
    {
        tenths /= 1024;
        unit = next;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_unit_that_fits() {
        let told: Vec<_> = [0, 1023, 1024, 1_536, 10 << 20, 5 << 30, u64::MAX].map(amount).to_vec();
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 MiB", "5.0 GiB", "16777215.9 TiB"]);
    }

    #[test]
    fn a_bar_is_never_longer_than_it_is() {
        assert_eq!(
            line("x", 512, Some(1024)),
            format!("x [{}{}] 512 B of 1.0 KiB", "=".repeat(12), " ".repeat(12))
        );
        assert_eq!(line("x", 5000, Some(1024)), format!("x [{}] 4.8 KiB of 1.0 KiB", "=".repeat(24)));
        assert_eq!(line("x", 5, None), "x 5 B");
    }
}
