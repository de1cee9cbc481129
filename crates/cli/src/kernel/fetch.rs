//! Debian's kernel for virtual machines, downloaded by apt and held against what apt's signed lists say of it.
//!
//! Trust: as root, apt reads the network as a user of its own, who may change what was downloaded until it is ours. What is
//! unpacked is a copy whose size and digest are those of the lists.

use std::fs::{self, File};
use std::io::copy;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use blastbox_engine::causes;
use blastbox_images::machine::MachineError;
use blastbox_images::oci::Verified;
use blastbox_images::oci::oci_text::Descriptor;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::workplace::Workplace;
use super::{run, tool};
use crate::output;
use crate::problem::Problem;

const PACKAGE: &str = "linux-image-cloud-amd64";
const APT_GET: &str = "/usr/bin/apt-get";
const APT_CACHE: &str = "/usr/bin/apt-cache";

/// Brings the package into a directory of ours.
pub(super) fn fetch(workplace: &Workplace, quiet: bool) -> Result<PathBuf, Problem> {
    let depends = ask(&["depends", "--no-recommends", "--no-suggests", PACKAGE])?;
    let package = package(&depends).ok_or_else(|| unknown(PACKAGE))?;
    let promised =
        promised(&ask(&["show", "--no-all-versions", &package])?).ok_or_else(|| unknown(&package))?;
    if !quiet {
        output::say(&format!("blastbox: apt-get downloads {package}\n"));
    }
    // Where apt's own user without rights may write, if there is one: otherwise apt would read the network as root. The
    // store lets nobody in.
    let theirs = match apt_user() {
        Some(user) if rustix::process::geteuid().is_root() => {
            Some(Workplace::of(&std::env::temp_dir(), user)?)
        }
        _ => None,
    };
    let fetched = &theirs.as_ref().unwrap_or(workplace).path;
    // To the terminal's other stream: what this prints is one kernel.
    run(tool(APT_GET)?.args(["download", "-q", &package]).current_dir(fetched), "apt-get")?;
    let file = fs::read_dir(fetched)
        .ok()
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or_else(|| failed("there is no package"))?;
    let name = file.file_name().ok_or_else(|| failed("the package has no name"))?;
    let ours = workplace.path.join("ours").join(name);
    keep(&file, &ours, &promised)?;
    Ok(ours)
}

fn failed(why: impl ToString) -> Problem {
    Problem::Fetch { tried: "apt-get", why: why.to_string() }
}

fn unknown(package: &str) -> Problem {
    Problem::Fetch { tried: "apt-cache", why: format!("it knows no {package}") }
}

fn ask(words: &[&str]) -> Result<String, Problem> {
    let asked = tool(APT_CACHE)?.args(words).stderr(Stdio::inherit()).output();
    let said = asked.map_err(|error| Problem::Fetch { tried: "apt-cache", why: error.to_string() })?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// The user as whom apt fetches.
fn apt_user() -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| line.strip_prefix("_apt:")?.split(':').nth(1)?.parse().ok())
}

/// The package that really holds a kernel, among those that the other one depends on.
fn package(depends: &str) -> Option<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let plain = |name: &&str| {
        name.starts_with("linux-image-")
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte))
    };
    names.map(str::trim).find(plain).map(str::to_owned)
}

/// What the lists of apt, whose signature it has checked, say of a package.
fn promised(shown: &str) -> Option<Descriptor> {
    let field = |name: &str| shown.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let digest = format!("sha256:{}", field("SHA256:")?).parse().ok()?;
    let size = field("Size:")?.parse().ok()?;
    Some(Descriptor { media_type: String::new(), digest, size, platform: None, annotations: None })
}

/// Copies the package to where only we write, if it is what was promised.
fn keep(from: &Path, to: &Path, promised: &Descriptor) -> Result<(), Problem> {
    // Neither followed nor waited for: its directory may be another user's.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(CWD, from, flags, Mode::empty());
    let opened = opened.map_err(|errno| failed(format!("cannot open {}: {errno}", from.display())))?;
    let unkept = |source| MachineError::Place { tried: "write", path: to.to_owned(), source };
    to.parent().map_or(Ok(()), fs::create_dir_all).map_err(unkept)?;
    let mut made = File::create_new(to).map_err(unkept)?;
    let mut checked = Verified::new(File::from(opened), promised);
    copy(&mut checked, &mut made).map_err(unkept)?;
    let same = checked.finish(promised);
    same.map_err(|error| {
        failed(format!("{} is not the package of apt's lists: {}", from.display(), causes(&error)))
    })
}

#[cfg(test)]
mod tests {
    use blastbox_wire::event::Hash;

    use super::super::workplace::tests::Place;
    use super::*;

    #[test]
    fn the_package_with_the_kernel_is_found_and_nothing_else_is_taken_for_one() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-54-cloud-amd64\n";
        assert_eq!(package(text).as_deref(), Some("linux-image-6.1.0-54-cloud-amd64"));
        assert_eq!(package("linux-image-cloud-amd64\n"), None);
        assert_eq!(package("  Depends: --help\n  Depends: linux-image-x;y\n"), None);
    }

    #[test]
    fn what_was_swapped_after_the_download_is_not_taken() {
        let place = Place::new("swapped");
        let (file, to) = (place.0.join("x.deb"), place.0.join("ours/x.deb"));
        let shown = format!(
            "Package: linux-image-x\nInstalled-Size: 13\nSize: 4\nSHA256: {}\n",
            Hash::of([b"deb!".as_slice()]).to_string().trim_start_matches("sha256:")
        );
        let promised = promised(&shown).unwrap();
        for other in ["DEB!", "deb", "deb!!"] {
            fs::write(&file, other).unwrap();
            assert!(keep(&file, &to, &promised).is_err(), "{other}");
            fs::remove_file(&to).unwrap();
        }
        fs::write(&file, "deb!").unwrap();
        keep(&file, &to, &promised).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "deb!");
        let link = place.0.join("link.deb");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(keep(&link, &place.0.join("ours/link.deb"), &promised).is_err(), "a link of another user");
    }
}
