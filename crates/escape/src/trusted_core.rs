//! How much code must be right for a box to hold: printed beside the matrix.

use crate::report::CoreShare;

/// What `cargo xtask tcb --line` measured when this program was built; a build that did not measure knows nothing.
const MEASURED: Option<&str> = option_env!("BLASTBOX_TRUSTED_CORE");

/// The shares of this build.
pub(crate) fn of_this_build() -> Vec<CoreShare> {
    MEASURED.map(read).unwrap_or_default()
}

/// Reads `warden:1234:12 agent:…`: crate, lines, crates of others.
fn read(line: &str) -> Vec<CoreShare> {
    let share = |word: &str| {
        let mut parts = word.split(':');
        let (part, lines, crates) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(CoreShare { part: part.to_owned(), lines, crates })
    };
    line.split_whitespace().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_build_is_read_and_anything_else_passed_over() {
        let share = CoreShare { part: "warden".to_owned(), lines: 1234, crates: 12 };
        assert_eq!(read("warden:1234:12 agent:x:1 odd"), [share]);
    }
}
