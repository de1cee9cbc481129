//! Rule `size`: a file is a room of at most 500 lines; its tests do not count.

use super::Finding;
use crate::house::House;

const LIMIT: usize = 500;

pub(super) fn check(house: &House) -> Vec<Finding> {
    house
        .rust()
        .filter(|file| !file.is_test())
        .map(|file| (file, file.source().lines.iter().filter(|line| !line.test).count()))
        .filter(|(_, lines)| *lines > LIMIT)
        .map(|(file, lines)| {
            let what = format!("{lines} lines without tests, {LIMIT} are the limit: split it into rooms");
            Finding::new(&file.path, LIMIT + 1, "size", what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, code: usize, tests: usize) -> usize {
        let text =
            format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "a();\n".repeat(code), "b();\n".repeat(tests));
        check(&House::of(&[(path, &text)])).len()
    }

    #[test]
    fn one_line_too_many_is_found() {
        assert_eq!(findings("crates/wire/src/plan.rs", LIMIT + 1, 0), 1);
    }

    #[test]
    fn a_full_room_with_many_tests_passes() {
        assert_eq!(findings("crates/wire/src/plan.rs", LIMIT, 400), 0);
    }

    #[test]
    fn a_file_of_tests_may_be_long() {
        assert_eq!(findings("crates/wire/tests/plan.rs", LIMIT + 1, 0), 0);
    }
}
