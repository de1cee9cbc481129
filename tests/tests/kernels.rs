//! How a kernel for guests comes into the store: from a package that was brought along, and by apt from a repository of the test's own,
//! in a mount namespace where apt knows no other one.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::path::{Path, PathBuf};

use blastbox_tests::machines::kernel;
use blastbox_tests::{Caller, Ended, text};

/// Makes packages of a kernel (`$1`) and its modules (`$2`) in the directory where it runs, and what apt reads of a repository with one.
const PACKAGES: &str = r#"set -e
release=$(basename "$2")
mkdir -p whole/DEBIAN whole/boot "whole/lib/modules/$release" without/DEBIAN without/etc repository apt/apt.conf.d apt/preferences.d
cp "$1" "whole/boot/vmlinuz-$release"
to=$PWD/whole/lib/modules/$release
(cd "$2" && cp --parents modules.* $(find . -name 'virtio*.ko*' -o -name '*failover.ko*' -o -name 'squashfs.ko*' -o -name 'overlay.ko*') "$to")
about() { printf 'Package: %s\nVersion: 1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.com>\nDescription: a test\n' "$1"; }
name=linux-image-$release
about "$name" > whole/DEBIAN/control; about "$name" > without/DEBIAN/control
for package in whole without; do dpkg-deb --root-owner-group -Znone --build $package $package.deb > /dev/null; done
cp whole.deb repository/
where() { printf 'Filename: ./whole.deb\nSize: %s\nSHA256: %s\n\n' "$(stat -c %s whole.deb)" "$(sha256sum whole.deb | cut -d' ' -f1)"; }
{ about "$name"; where; about linux-image-cloud-amd64 | sed 's/^Version: .*/Version: 9999/'; echo "Depends: $name"; where; } > repository/Packages
echo "deb [trusted=yes] copy:$PWD/repository ./" > apt/sources.list
"#;

/// Fetches with blastbox (`$1`) where apt knows that repository alone; again when what lies there is not what its list says.
const GET: &str = r#"set -e
mount --bind apt /etc/apt
for at in lib cache; do mount -t tmpfs none /var/$at/apt; done
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
apt-get update -qq >&2
"$1" kernel get --json --store fetched
echo more >> repository/whole.deb
rm -rf /var/cache/apt/archives/*.deb
! "$1" kernel get --store swapped >&2
"#;

/// A place with packages; `None`, and reported: something is missing.
fn packages(caller: &Caller) -> Option<(PathBuf, PathBuf)> {
    let Some((image, modules)) = kernel() else {
        caller.skip("there is no kernel for guests (tools/kernel.sh fetches Debian's)");
        return None;
    };
    if !Path::new("/usr/bin/dpkg-deb").exists() {
        caller.skip("no /usr/bin/dpkg-deb");
        return None;
    }
    let made = sh(caller, PACKAGES, &[text(&image), text(&modules)]);
    assert_eq!(made.code, 0, "{}", made.err);
    Some((image, modules))
}

fn sh(caller: &Caller, script: &str, words: &[&str]) -> Ended {
    let words = [&["-c", script, "sh"], words].concat();
    caller.program(Path::new("/bin/sh"), words).end()
}

fn fine(caller: &Caller, words: &[&str]) -> serde_json::Value {
    let ended = caller.blastbox(words).end();
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    serde_json::from_str(&ended.text()).expect("JSON")
}

#[test]
fn a_kernel_is_added_from_a_package_as_from_its_files_and_listed() {
    let test = "a_kernel_is_added_from_a_package_as_from_its_files_and_listed";
    let Some(caller) = &Caller::either(test) else { return };
    let Some((image, modules)) = packages(caller) else { return };
    let none = caller.blastbox(["kernel", "ls", "--store", "store"]).end();
    assert!(none.code == 0 && none.text().contains("blastbox kernel get"), "{}{}", none.text(), none.err);
    let add = ["kernel", "add", "whole.deb", "--json", "--store", "store"];
    let added = fine(caller, &add);
    let digest = added.get("digest").and_then(serde_json::Value::as_str).expect("a digest");
    let files = ["kernel", "add", text(&image), "--modules", text(&modules), "--json", "--store", "files"];
    let other = fine(caller, &files);
    for same in ["digest", "release", "bytes", "modules"] {
        assert!(added.get(same).is_some() && added.get(same) == other.get(same), "{same}: {added} {other}");
    }
    // It is the one that guests start with, also when it comes once more.
    fine(caller, &add);
    let listed = caller.blastbox(["kernel", "ls", "--store", "store"]).end().text();
    let short: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
    assert!(listed.lines().count() == 1 && listed.starts_with(&format!("* {short}")), "{listed}");
    assert!(listed.trim_end().ends_with("from whole.deb"), "{listed}");
    let all = fine(caller, &["kernel", "ls", "--json", "--store", "store"]);
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    // What holds no kernel, or is no package, leaves nothing.
    caller.file("torn.deb", &fs::read(caller.place().join("whole.deb")).expect("read it")[..4096]);
    for (package, why) in
        [("without.deb", "no boot/vmlinuz"), ("torn.deb", "dpkg-deb"), ("gone.deb", "gone.deb")]
    {
        let refused = caller.blastbox(["kernel", "add", package, "--store", "empty"]).end();
        assert!(
            refused.code == 125 && refused.err.contains(why),
            "{package}: {} {}",
            refused.code,
            refused.err
        );
    }
    let none = caller.blastbox(["kernel", "ls", "--store", "empty"]).end();
    assert!(none.text().contains("no kernel yet"), "{}", none.text());
}

#[test]
fn a_kernel_is_fetched_by_apt_and_is_what_its_list_says_or_refused() {
    let test = "a_kernel_is_fetched_by_apt_and_is_what_its_list_says_or_refused";
    // Nobody else may give apt another list.
    let Some(caller) = &Caller::root(test) else { return };
    if !["/usr/bin/apt-get", "/usr/bin/unshare"].iter().all(|program| Path::new(program).exists()) {
        return caller.skip("no apt-get or no unshare");
    }
    if packages(caller).is_none() {
        return;
    }
    let blastbox = caller.blastbox_path();
    let words = ["--mount", "sh", "-c", GET, "sh", text(&blastbox)];
    let got = caller.program(Path::new("/usr/bin/unshare"), words).end();
    assert_eq!(got.code, 0, "{}{}", got.text(), got.err);
    let fetched: serde_json::Value = serde_json::from_str(&got.text()).expect("JSON");
    let added = fine(caller, &["kernel", "add", "whole.deb", "--json", "--store", "store"]);
    assert_eq!(fetched.get("digest"), added.get("digest"));
    let source = fetched.get("source").and_then(serde_json::Value::as_str).unwrap_or_default();
    assert!(source.starts_with("linux-image-"), "{fetched}");
    for (store, says) in [("fetched", "* "), ("swapped", "no kernel yet")] {
        let listed = caller.blastbox(["kernel", "ls", "--store", store]).end().text();
        assert!(listed.starts_with(says), "{store}: {listed}");
    }
}
