//! How long to wait before something that failed is tried again. Pure, but for the dice.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

/// The wait after the first failure, without jitter.
const FIRST: Duration = Duration::from_millis(40);
/// No wait is longer, jitter included.
const LONGEST: Duration = Duration::from_secs(10);

/// How long to wait after so many failures in a row: twice as long after each, and up to half as long again by `dice`,
/// so that a thousand that failed together do not try again together.
#[must_use]
pub(crate) fn backoff(failures: u32, dice: u8) -> Duration {
    let plain = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let jitter = plain.saturating_mul(u32::from(dice)) / 512;
    plain.saturating_add(jitter).min(LONGEST)
}

/// Dice. Without randomness there is no jitter, and nothing worse.
pub(crate) fn random_byte() -> u8 {
    let mut random = [0_u8; 1];
    getrandom(&mut random, GetRandomFlags::empty()).ok();
    random[0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_wait_is_at_least_as_long_as_the_one_before_and_none_is_endless(failures in 1_u32..64, dice: u8) {
            let (wait, next) = (backoff(failures, 0), backoff(failures + 1, 0));
            prop_assert!(wait <= next && next <= LONGEST);
            let thrown = backoff(failures, dice);
            prop_assert!(thrown >= wait && thrown <= (wait * 3 / 2).min(LONGEST));
        }
    }
}
