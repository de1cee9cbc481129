//! The five boundaries of a box, and how many of them must hold.

use crate::Refusal;
use crate::words::spoken;

/// One of the five boundaries. Each holds on its own when another one falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Boundary {
    /// System calls, processes, memory and processor time.
    Kernel,
    /// What can be seen, changed and executed on disk.
    Files,
    /// What can be reached, and by whom it can be reached.
    Network,
    /// Which secrets exist in the box.
    Credentials,
    /// How long the box and all that it made live.
    Lifecycle,
}

spoken!(Boundary, "boundary", {
    Kernel = "kernel",
    Files = "files",
    Network = "network",
    Credentials = "credentials",
    Lifecycle = "lifecycle",
});

/// How many of the five boundaries must be effective before anything is started.
pub const MIN_EFFECTIVE_BOUNDARIES: u8 = 3;

/// Refuses where fewer than [`MIN_EFFECTIVE_BOUNDARIES`] different boundaries are effective.
/// Naming one twice does not make two of it.
pub fn enough_boundaries(effective: &[Boundary]) -> Result<(), Refusal> {
    let count = Boundary::ALL.iter().filter(|boundary| effective.contains(boundary)).count();
    let effective = u8::try_from(count).unwrap_or(u8::MAX);
    if effective < MIN_EFFECTIVE_BOUNDARIES { Err(Refusal::TooFewBoundaries { effective }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_effective_boundaries_are_refused() {
        assert_eq!(
            enough_boundaries(&[Boundary::Network, Boundary::Credentials]),
            Err(Refusal::TooFewBoundaries { effective: 2 })
        );
        assert_eq!(enough_boundaries(&[]), Err(Refusal::TooFewBoundaries { effective: 0 }));
    }

    #[test]
    fn three_effective_boundaries_are_enough() {
        assert_eq!(enough_boundaries(&[Boundary::Files, Boundary::Network, Boundary::Lifecycle]), Ok(()));
        assert_eq!(enough_boundaries(Boundary::ALL), Ok(()));
    }

    #[test]
    fn one_boundary_named_three_times_counts_once() {
        assert_eq!(
            enough_boundaries(&[Boundary::Network; 3]),
            Err(Refusal::TooFewBoundaries { effective: 1 })
        );
    }

    #[test]
    fn there_are_five_and_each_reads_back_from_its_word() {
        assert_eq!(Boundary::ALL.len(), 5);
        for boundary in Boundary::ALL {
            assert_eq!(boundary.as_str().parse(), Ok(*boundary));
        }
    }
}
