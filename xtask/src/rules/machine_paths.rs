//! Rule `machine-path`: no file names a folder that exists on one developer's machine only.

use super::Finding;
use crate::house::House;

/// Folders of a build machine.
const MACHINE: [&str; 1] = [concat!("/", "work/")];
/// Folders in which every person has one.
const HOMES: [&str; 2] = ["/home/", "/Users/"];
/// People who live in boxes, examples and tests, not on anybody's machine.
const INVENTED: [&str; 3] = ["user", "alice", "bob"];

pub(super) fn check(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.files() {
        for (number, line) in (1..).zip(file.text.lines()) {
            if let Some(found) = machine_path(line) {
                let what = format!(
                    "`{found}` exists on one machine only: use a relative path, or one from the environment"
                );
                findings.push(Finding::new(&file.path, number, "machine-path", what));
            }
        }
    }
    findings
}

fn machine_path(line: &str) -> Option<String> {
    let machine = MACHINE.iter().find(|folder| begins(line, folder).next().is_some());
    machine.map(|folder| (*folder).to_owned()).or_else(|| HOMES.iter().find_map(|home| someones(line, home)))
}

fn someones(line: &str, home: &str) -> Option<String> {
    begins(line, home).find_map(|rest| {
        let (name, _) = rest.split_once('/')?;
        let named =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        (named && !INVENTED.contains(&name)).then(|| format!("{home}{name}/"))
    })
}

/// What follows each absolute occurrence of `folder`: in `crates` + folder it would be a relative path.
fn begins<'a>(line: &'a str, folder: &str) -> impl Iterator<Item = &'a str> {
    line.match_indices(folder).filter_map(move |(at, _)| {
        let before = line.get(..at)?.chars().next_back();
        let relative = before.is_some_and(|c| c.is_alphanumeric() || "._-~*)}>".contains(c));
        (!relative).then(|| line.get(at + folder.len()..))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> usize {
        check(&House::of(&[("tools/demo.sh", text)])).len()
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        for start in ["", "cd ", "\"", "file://", "PATH=/bin:"] {
            assert_eq!(findings(&format!("{start}{}main", concat!("/", "work/"))), 1);
            assert_eq!(findings(&format!("{start}{}carol/src", "/home/")), 1);
            assert_eq!(findings(&format!("{start}{}carol/src", "/Users/")), 1);
        }
    }

    #[test]
    fn relative_paths_guests_and_placeholders_pass() {
        for text in [
            "docs/work/plan",
            "a/home/carol/b",
            "/workspace/a",
            "/home/user/a",
            "/home/<name>/a",
            "/home",
            "/home/$USER/a",
        ] {
            assert_eq!(findings(text), 0, "{text}");
        }
    }
}
