//! Rule `tier`: the engine does not ask which tier a box has. What a tier means is the plan's to say, so that the next one fits
//! without a change there.

use super::Finding;
use crate::house::House;

const ENGINE: &str = "crates/engine/src/";

pub(super) fn check(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.rust().filter(|file| file.path.starts_with(ENGINE) && !file.is_test()) {
        for (number, line) in (1..).zip(&file.source().lines) {
            if !line.test && names_a_tier(&line.code) {
                let what = "let the plan say what this tier needs (`Lowered`), and ask that";
                findings.push(Finding::new(&file.path, number, "tier", what));
            }
        }
    }
    findings
}

/// `Tier::Jail`, but neither `Tier::ALL` nor the name of another type.
fn names_a_tier(code: &str) -> bool {
    code.match_indices("Tier::").any(|(at, found)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back());
        let mut after = code.get(at + found.len()..).unwrap_or_default().chars();
        let variant =
            after.next().is_some_and(char::is_uppercase) && after.next().is_some_and(char::is_lowercase);
        variant && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&House::of(&[(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_tier_by_name_is_found_in_the_engine_and_nowhere_else() {
        let text = "//! Runs.\nif tier == Tier::Microvm {}\nmatch t { Tier::Jail | Tier::Wasm => {} }\n";
        assert_eq!(lines("crates/engine/src/keeper/make.rs", text), [2, 3]);
        assert!(lines("crates/isolation/src/choose.rs", text).is_empty());
        assert!(lines("crates/engine/src/store/tests.rs", text).is_empty());
    }

    #[test]
    fn all_of_them_and_the_tier_of_a_plan_pass() {
        let text = "//! Runs.\nfor tier in Tier::ALL {}\nlet a = lowered.tier;\nMyTier::Jail;\n#[cfg(test)]\nmod tests {\n    Tier::Jail;\n}\n";
        assert!(lines("crates/engine/src/keeper/make.rs", text).is_empty());
    }
}
