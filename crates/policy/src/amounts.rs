//! Amounts with a unit: bytes, processors, seconds. Parsed once, printed so that they read back the same.

use std::{fmt, str::FromStr};

use crate::words::clip;

/// An amount that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAmount {
    /// Neither a number nor a number with a unit.
    #[error("{text:?} is not {what}; write {example}")]
    NotANumber {
        /// What was expected, such as `a size`.
        what: &'static str,
        /// The text as it was given.
        text: String,
        /// Text that would have been understood.
        example: &'static str,
    },
    /// A number with a unit that means nothing here.
    #[error("unknown unit {unit:?} in {text:?}; write {example}")]
    UnknownUnit {
        /// The unit as it was given.
        unit: String,
        /// The whole text as it was given.
        text: String,
        /// Text that would have been understood.
        example: &'static str,
    },
    /// A number that does not fit.
    #[error("{text:?} is more than blastbox can count")]
    TooLarge {
        /// The text as it was given.
        text: String,
    },
}

/// A number of bytes. Units are powers of 1024, also when written short: `64k` is 65536.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    const EXAMPLE: &'static str = "a whole number with B, KiB, MiB, GiB or TiB, such as \"512MiB\" or \"1g\"";
    const UNITS: [(&'static str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

    /// `count` KiB.
    pub const fn kib(count: u32) -> Self {
        Self((count as u64) << 10)
    }

    /// `count` MiB.
    pub const fn mib(count: u32) -> Self {
        Self((count as u64) << 20)
    }
}

impl FromStr for Bytes {
    type Err = BadAmount;
    fn from_str(text: &str) -> Result<Self, BadAmount> {
        let (count, unit) = count_and_unit(text, "a size", Self::EXAMPLE)?;
        // MB and GB are left out on purpose: some tools count them in thousands, others in 1024s.
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(unknown_unit(text, unit, Self::EXAMPLE)),
        };
        count.checked_mul(scale).map(Self).ok_or_else(|| BadAmount::TooLarge { text: clip(text) })
    }
}

impl fmt::Display for Bytes {
    /// In the largest unit that needs no fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Self::UNITS.iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale));
        match whole {
            Some((unit, scale)) => f.pad(&format!("{}{unit}", self.0 / scale)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

/// Processor time, in thousandths of one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus(u32);

impl Cpus {
    const EXAMPLE: &'static str = "a number with at most three decimals, such as \"2\" or \"0.5\"";

    /// `millis` thousandths of one processor.
    pub const fn from_millis(millis: u32) -> Self {
        Self(millis)
    }

    /// In thousandths of one processor.
    pub const fn millis(&self) -> u32 {
        self.0
    }
}

impl FromStr for Cpus {
    type Err = BadAmount;
    fn from_str(text: &str) -> Result<Self, BadAmount> {
        let bad = || BadAmount::NotANumber {
            what: "a number of processors",
            text: clip(text),
            example: Self::EXAMPLE,
        };
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
            return Err(bad());
        }
        let thousandths: u32 = format!("{fraction:0<3}").parse().map_err(|_| bad())?;
        let millis = whole.parse::<u32>().ok().and_then(|n| n.checked_mul(1_000)?.checked_add(thousandths));
        millis.map(Self).ok_or_else(|| BadAmount::TooLarge { text: clip(text) })
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return f.pad(&whole.to_string());
        }
        f.pad(format!("{whole}.{rest:03}").trim_end_matches('0'))
    }
}

/// A number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(pub u64);

impl Seconds {
    const EXAMPLE: &'static str = "a whole number with s, m, h or d, such as \"30s\" or \"5m\"";
}

impl FromStr for Seconds {
    type Err = BadAmount;
    fn from_str(text: &str) -> Result<Self, BadAmount> {
        let (count, unit) = count_and_unit(text, "a time", Self::EXAMPLE)?;
        let scale = match unit {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(unknown_unit(text, unit, Self::EXAMPLE)),
        };
        count.checked_mul(scale).map(Self).ok_or_else(|| BadAmount::TooLarge { text: clip(text) })
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}s", self.0))
    }
}

/// Splits `512MiB` into its count and unit. No sign, no fraction, one optional space.
fn count_and_unit<'t>(
    text: &'t str,
    what: &'static str,
    example: &'static str,
) -> Result<(u64, &'t str), BadAmount> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_prefix(' ').filter(|rest| !rest.is_empty()).unwrap_or(unit);
    if digits.is_empty() || unit.starts_with(['.', ',', '_']) {
        return Err(BadAmount::NotANumber { what, text: clip(text), example });
    }
    match digits.parse() {
        Ok(count) => Ok((count, unit)),
        Err(_) => Err(BadAmount::TooLarge { text: clip(text) }),
    }
}

fn unknown_unit(text: &str, unit: &str, example: &'static str) -> BadAmount {
    BadAmount::UnknownUnit { unit: clip(unit), text: clip(text), example }
}

crate::words::serde_as_text!(Bytes);
crate::words::serde_as_text!(Cpus);
crate::words::serde_as_text!(Seconds);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("512MiB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn ambiguous_or_broken_sizes_are_refused() {
        for text in ["", "MiB", "-1", "+1", "1.5GiB", "1_000", "12MB", "1GB", "1 ", " 1", "1  k", "0x10", "٣"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
        assert_eq!(
            "12MB".parse::<Bytes>().unwrap_err().to_string(),
            "unknown unit \"MB\" in \"12MB\"; write a whole number with B, KiB, MiB, GiB or TiB, \
             such as \"512MiB\" or \"1g\""
        );
    }

    #[test]
    fn sizes_beyond_64_bits_are_refused_and_the_last_one_that_fits_is_not() {
        assert_eq!("18446744073709551615".parse(), Ok(Bytes(u64::MAX)));
        assert!(matches!("18446744073709551616".parse::<Bytes>(), Err(BadAmount::TooLarge { .. })));
        assert!(matches!("16777216T".parse::<Bytes>(), Err(BadAmount::TooLarge { .. })));
        assert!("16777215T".parse::<Bytes>().is_ok());
    }

    #[test]
    fn processors_are_read_in_thousandths() {
        for (text, millis) in
            [("2", 2_000), ("0.5", 500), ("0.25", 250), ("0.001", 1), ("1.0", 1_000), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Cpus::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn broken_processors_are_refused() {
        for text in ["", ".", ".5", "1.", "-1", "1e3", "inf", "nan", "0.0001", "1.2.3", "+1", "1 "] {
            assert!(matches!(text.parse::<Cpus>(), Err(BadAmount::NotANumber { .. })), "{text:?}");
        }
        assert!(matches!("4294968".parse::<Cpus>(), Err(BadAmount::TooLarge { .. })));
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, seconds) in [("30", 30), ("30s", 30), ("5m", 300), ("1h", 3_600), ("30d", 2_592_000)] {
            assert_eq!(text.parse(), Ok(Seconds(seconds)), "{text}");
        }
    }

    #[test]
    fn broken_times_are_refused() {
        for text in ["", "s", "-1s", "1.5m", "5M", "5min", "1w", "99999999999999999999"] {
            assert!(text.parse::<Seconds>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn amounts_print_in_the_largest_exact_unit() {
        assert_eq!(Bytes::mib(512).to_string(), "512MiB");
        assert_eq!(Bytes::mib(1024).to_string(), "1GiB");
        assert_eq!(Bytes(1000).to_string(), "1000B");
        assert_eq!(Bytes(0).to_string(), "0B");
        assert_eq!(Cpus::from_millis(1_500).to_string(), "1.5");
        assert_eq!(Cpus::from_millis(20).to_string(), "0.02");
        assert_eq!(Cpus::from_millis(10_000).to_string(), "10");
        assert_eq!(Seconds(300).to_string(), "300s");
    }

    proptest! {
        #[test]
        fn every_amount_reads_back_as_printed(bytes: u64, shift in 0u32..64, millis: u32, seconds: u64) {
            let bytes = Bytes(bytes >> shift << shift);
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
            prop_assert_eq!(Cpus::from_millis(millis).to_string().parse(), Ok(Cpus::from_millis(millis)));
            prop_assert_eq!(Seconds(seconds).to_string().parse(), Ok(Seconds(seconds)));
        }

        #[test]
        fn no_text_makes_an_amount_panic(text in ".{0,80}") {
            prop_assert!(text.parse::<Bytes>().map_or_else(|e| !e.to_string().is_empty(), |_| true));
            prop_assert!(text.parse::<Cpus>().map_or_else(|e| !e.to_string().is_empty(), |_| true));
            prop_assert!(text.parse::<Seconds>().map_or_else(|e| !e.to_string().is_empty(), |_| true));
        }
    }
}
