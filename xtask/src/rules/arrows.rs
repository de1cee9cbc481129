//! Rule `arrow`: which of our crates may use which, read from every Cargo.toml. Nothing points the other way.

use super::Finding;
use crate::house::{File, House};

/// Folder of the manifest, and the packages of ours that it may name in any kind of dependency.
const ARROWS: &[(&str, &[&str])] = &[
    // How a test says that it cannot run: everybody's, among the dependencies of tests.
    ("tests/skips", &[]),
    ("crates/policy", &[]),
    ("crates/sys", &[]),
    ("crates/wire", &["blastbox-policy"]),
    ("crates/agent", &["blastbox-wire", "blastbox-sys"]),
    // Nothing uses it: it is a process of its own, and the only one that links Wasmtime.
    ("crates/wasm", &["blastbox-wire", "blastbox-sys"]),
    ("crates/warden", &["blastbox-agent", "blastbox-wire", "blastbox-sys"]),
    ("crates/gvisor", &["blastbox-wire", "blastbox-sys"]),
    ("crates/egress", &["blastbox-policy", "blastbox-wire", "blastbox-sys"]),
    ("crates/images", &["blastbox-policy", "blastbox-wire", "blastbox-sys"]),
    ("crates/isolation", &["blastbox-images", "blastbox-policy", "blastbox-wire", "blastbox-sys"]),
    ("crates/engine", &["blastbox-policy", "blastbox-wire", "blastbox-isolation", "blastbox-images"]),
    (
        "crates/server",
        &["blastbox-policy", "blastbox-wire", "blastbox-isolation", "blastbox-images", "blastbox-engine"],
    ),
    // The burglars know blastbox by its command line and its receipts alone.
    ("crates/escape", &["blastbox-policy", "blastbox-wire"]),
    (
        "crates/cli",
        &[
            "blastbox-escape",
            "blastbox-policy",
            "blastbox-wire",
            "blastbox-isolation",
            "blastbox-images",
            "blastbox-engine",
            "blastbox-server",
        ],
    ),
    (
        "tests",
        &["blastbox-skips", "blastbox-policy", "blastbox-wire", "blastbox-isolation", "blastbox-engine"],
    ),
    (
        "benches",
        &["blastbox-images", "blastbox-policy", "blastbox-wire", "blastbox-isolation", "blastbox-engine"],
    ),
    // The fuzz targets as tests.
    ("tests/replay", &["blastbox-policy", "blastbox-wire", "blastbox-egress", "blastbox-images"]),
    ("fuzz", &["blastbox-policy", "blastbox-wire", "blastbox-sys", "blastbox-egress", "blastbox-images"]),
    ("xtask", &[]),
];

/// What every crate may name for its tests, and only there.
const FOR_TESTS: &str = "blastbox-skips";

pub(super) fn check(house: &House) -> Vec<Finding> {
    house
        .files()
        .filter_map(|file| file.path.strip_suffix("/Cargo.toml").map(|folder| (folder, file)))
        .flat_map(|(folder, file)| hold(folder, file))
        .collect()
}

fn hold(folder: &str, file: &File) -> Vec<Finding> {
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == folder) else {
        let what = "a crate that the table in xtask/src/rules/arrows.rs does not know: add its row, with the reason in the commit";
        return vec![Finding::new(&file.path, 1, "arrow", what)];
    };
    ours(&file.text)
        .into_iter()
        .filter(|(_, package)| !allowed.contains(&package.as_str()))
        .map(|(line, package)| {
            let what = format!("{folder} may not use {package}: turn the dependency round, or move the code");
            Finding::new(&file.path, line, "arrow", what)
        })
        .collect()
}

/// Packages of ours named in any dependency table, but for what is every test's: `(line, package)`.
fn ours(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut inside, mut for_tests) = (false, false);
    for (number, line) in (1..).zip(manifest.lines().map(str::trim)) {
        let named = if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            // `[dependencies]`, `[target.'cfg(…)'.dev-dependencies]`, `[dependencies.name]`
            let (table, entry) = match header.rsplit_once('.') {
                Some((table, entry)) if table.ends_with("dependencies") => (table, Some(entry)),
                _ => (header, None),
            };
            inside = table.ends_with("dependencies");
            for_tests = table.ends_with("dev-dependencies");
            entry.filter(|_| inside)
        } else if inside {
            renamed(line).or_else(|| line.split(['=', '.']).next())
        } else {
            None
        };
        let package = named.unwrap_or_default().trim().trim_matches(['"', '\'']);
        if for_tests && package == FOR_TESTS {
            continue;
        }
        if package == "blastbox" || package.starts_with("blastbox-") {
            found.push((number, package.to_owned()));
        }
    }
    found
}

/// The real name in `short = { package = "blastbox-long" }` and in a line `package = "blastbox-long"`.
fn renamed(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("package")?;
    let value = after.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    (before.trim().is_empty() || before.trim_end().ends_with(['{', ','])).then(|| value.split('"').next())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, manifest: &str) -> usize {
        check(&House::of(&[(path, manifest)])).len()
    }

    #[test]
    fn an_arrow_against_the_table_is_found_however_it_is_spelled() {
        for manifest in [
            "[dependencies]\nblastbox-sys.workspace = true\n",
            "[dependencies]\nblastbox-sys = { workspace = true }\n",
            "[dev-dependencies]\n\"blastbox-sys\" = { path = \"../sys\" }\n",
            "[dependencies.blastbox-sys]\nworkspace = true\n",
            "[target.'cfg(unix)'.dependencies]\nblastbox-sys.workspace = true\n",
            "[dependencies]\nlinux = { path = \"../sys\", package = \"blastbox-sys\" }\n",
            "[dependencies.linux]\npackage = \"blastbox-sys\"\n",
        ] {
            assert_eq!(findings("crates/wire/Cargo.toml", manifest), 1, "{manifest}");
        }
    }

    #[test]
    fn an_arrow_of_the_table_passes() {
        let manifest = "[package]\nname = \"blastbox-wire\"\n[features]\ntext = [\"blastbox-policy/text\"]\n[dependencies]\nblastbox-policy.workspace = true\nserde = \"1\"\n";
        assert_eq!(findings("crates/wire/Cargo.toml", manifest), 0);
    }

    #[test]
    fn a_crate_may_say_that_its_tests_skip_and_nothing_more() {
        let named = |table: &str| format!("[{table}]\nblastbox-skips.workspace = true\n");
        assert_eq!(findings("crates/sys/Cargo.toml", &named("dev-dependencies")), 0);
        assert_eq!(
            findings("crates/sys/Cargo.toml", &named("dependencies")),
            1,
            "a shipped program skips nothing"
        );
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(findings("crates/brandnew/Cargo.toml", "[package]\n"), 1);
    }

    #[test]
    fn nobody_may_use_the_command_line() {
        assert_eq!(findings("tests/Cargo.toml", "[dependencies]\nblastbox.workspace = true\n"), 1);
    }

    #[test]
    fn the_table_has_no_circle() {
        let below = |package: &str| {
            let name = package.trim_start_matches("blastbox-");
            let is =
                |known: &str| known.strip_prefix("crates/").or(known.strip_prefix("tests/")) == Some(name);
            ARROWS.iter().position(|(known, _)| is(known))
        };
        for (row, (folder, allowed)) in ARROWS.iter().enumerate() {
            for package in *allowed {
                assert!(
                    below(package).is_some_and(|other| other < row),
                    "{folder} uses {package}, which stands below it"
                );
            }
        }
    }
}
