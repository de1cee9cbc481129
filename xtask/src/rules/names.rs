//! Rule `name`: no file or folder is called after nothing in particular.

use super::Finding;
use crate::house::House;

const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "misc", "types"];

pub(super) fn check(house: &House) -> Vec<Finding> {
    house
        .files()
        .filter_map(|file| {
            let folders = file.path.rsplit('/').skip(1);
            let name = folders.chain([file.stem()]).find(|name| EMPTY_NAMES.contains(name))?;
            let what = format!("`{name}` says nothing: name it after what lives there");
            Some(Finding::new(&file.path, 1, "name", what))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str) -> usize {
        check(&House::of(&[(path, "")])).len()
    }

    #[test]
    fn an_empty_name_is_found_as_file_and_as_folder() {
        for path in
            ["crates/wire/src/utils.rs", "crates/wire/src/types.rs", "tests/common/mod.rs", "tools/misc.sh"]
        {
            assert_eq!(findings(path), 1, "{path}");
        }
    }

    #[test]
    fn a_name_that_only_contains_one_passes() {
        for path in ["crates/wire/src/event_types.rs", "crates/cli/src/uncommon.rs"] {
            assert_eq!(findings(path), 0, "{path}");
        }
    }
}
