//! How much code must be right for a box to hold, and how many of its parsers are fuzzed: printed beside the matrix.

use crate::subject::{CoreShare, Fuzzed};

/// What `cargo xtask tcb --line` measured when this program was built; a build that did not measure knows nothing.
const MEASURED: Option<&str> = option_env!("BLASTBOX_TRUSTED_CORE");
/// The word of the line that is no crate.
const FUZZ: &str = "fuzz";

/// The shares of this build, and what its checkout fuzzes.
pub(crate) fn of_this_build() -> (Vec<CoreShare>, Option<Fuzzed>) {
    MEASURED.map(read).unwrap_or_default()
}

/// Reads `warden:1234:12 agent:… fuzz:19:180`: crate, lines, crates of others; targets and seeds.
fn read(line: &str) -> (Vec<CoreShare>, Option<Fuzzed>) {
    let word = |word: &str| {
        let mut parts = word.split(':');
        Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let (mut shares, mut fuzzed) = (Vec::new(), None);
    for (part, first, second) in line.split_whitespace().filter_map(word) {
        match part.as_str() {
            FUZZ if first > 0 => fuzzed = Some(Fuzzed { targets: first, seeds: second }),
            FUZZ => {}
            _ => shares.push(CoreShare { part, lines: first, crates: second }),
        }
    }
    (shares, fuzzed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_build_is_read_and_anything_else_passed_over() {
        let share = CoreShare { part: "warden".to_owned(), lines: 1234, crates: 12 };
        let fuzzed = Some(Fuzzed { targets: 19, seeds: 180 });
        assert_eq!(read("warden:1234:12 agent:x:1 odd fuzz:19:180"), (vec![share], fuzzed));
        assert_eq!(read("fuzz:0:0"), (Vec::new(), None), "nothing was counted");
    }
}
