//! Randomness as guests are given it.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// What a guest's chance comes from.
#[derive(Debug)]
pub(crate) enum Chance {
    /// The host's kernel.
    Real,
    /// A count that is stirred: the same in every run, and no secret to anybody.
    Counted(u64),
}

impl Chance {
    pub(crate) fn new(deterministic: bool) -> Self {
        if deterministic { Self::Counted(0) } else { Self::Real }
    }

    /// Fills all of it.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Real => {
                let mut filled = 0;
                while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                    filled += getrandom(rest, GetRandomFlags::empty())?;
                }
            }
            Self::Counted(count) => {
                for piece in bytes.chunks_mut(8) {
                    *count = count.wrapping_add(0x9E37_79B9_7F4A_7C15);
                    for (place, byte) in piece.iter_mut().zip(stirred(*count).to_le_bytes()) {
                        *place = byte;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The output function of SplitMix64.
fn stirred(count: u64) -> u64 {
    let mixed = (count ^ (count >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_chance_is_the_same_again_and_real_chance_is_not() {
        let draw = |deterministic| {
            let mut bytes = [0; 37];
            Chance::new(deterministic).fill(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(draw(true), draw(true));
        assert_ne!(draw(true)[..8], draw(true)[8..16]);
        assert_ne!(draw(false), draw(false));
    }
}
