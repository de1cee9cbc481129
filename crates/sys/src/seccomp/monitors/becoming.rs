//! The one execution that a monitor's box ever makes by a descriptor: becoming the monitor.
//!
//! A filter knows numbers of descriptors, not what they are. So the program is put at a number that is above all that the
//! monitor may ever have open: whoever takes a monitor over can put nothing there again (every way to a descriptor
//! fails at the limit on open files, and without capabilities that limit only sinks).

use super::super::arguments::{ALLOW, DENY};
use super::super::check::Check;

/// Which number it is depends on how many descriptors the host allows. One less than a power of two: the kernel's table of
/// them has as many places.
const NUMBERS: [(u16, Check); 5] = [
    (255, becoming::<255>()),
    (1_023, becoming::<1_023>()),
    (4_095, becoming::<4_095>()),
    (16_383, becoming::<16_383>()),
    (65_535, becoming::<65_535>()),
];

const fn becoming<const NUMBER: u32>() -> Check {
    let empty_path =
        const { &Check::Is { arg: 4, mask: u32::MAX, values: &[0x1000], yes: &ALLOW, no: &DENY } };
    Check::Is { arg: 0, mask: u32::MAX, values: const { &[NUMBER] }, yes: empty_path, no: &DENY }
}

/// The descriptor from which a monitor is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorProgram {
    number: u16,
    pub(super) check: Check,
}

impl MonitorProgram {
    /// The highest one for a process that may have this many descriptors; `None`: too few for any monitor.
    #[must_use]
    pub fn within(hard_limit: Option<u64>) -> Option<Self> {
        let fits = |number: u16| hard_limit.is_none_or(|most| u64::from(number) < most);
        let found = NUMBERS.into_iter().rev().find(|(number, _)| fits(*number));
        found.map(|(number, check)| Self { number, check })
    }

    /// Its number. A monitor must have a limit on open files that is not higher.
    #[must_use]
    pub fn number(self) -> i32 {
        i32::from(self.number)
    }
}
