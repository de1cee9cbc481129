//! How hostile the code in the box is taken to be; every closed default follows from it.

use crate::words::spoken;

/// The threat level of a box. Later levels trust the code less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ThreatLevel {
    /// Own scripts, no tools.
    Low,
    /// Tool calls, trusted internal tools.
    Medium,
    /// Code written by a model or a user. What is assumed when nobody says anything.
    #[default]
    High,
    /// Several tenants, regulated data.
    Critical,
}

spoken!(ThreatLevel, "threat level", { Low = "low", Medium = "medium", High = "high", Critical = "critical" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_saying_anything_means_high() {
        assert_eq!(ThreatLevel::default(), ThreatLevel::High);
    }

    #[test]
    fn every_level_reads_back_from_its_word() {
        for level in ThreatLevel::ALL {
            assert_eq!(level.as_str().parse(), Ok(*level));
        }
    }

    #[test]
    fn an_unknown_level_lists_the_words_and_suggests_the_nearest() {
        let unknown = "hihg".parse::<ThreatLevel>().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "unknown threat level \"hihg\"; expected one of \"low\", \"medium\", \"high\", \"critical\"; \
             did you mean \"high\"?"
        );
    }

    #[test]
    fn a_level_in_capitals_is_refused_but_suggested() {
        assert_eq!("HIGH".parse::<ThreatLevel>().unwrap_err().nearest, Some("high"));
    }
}
