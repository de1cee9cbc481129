//! What a test sees and makes on the host, outside every box.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Caller;
use crate::held::PATIENCE;

/// Processes of this host with `marker` in their command line: the marker is an argument that the test invented.
pub fn processes_naming(marker: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("list processes");
    let mut found: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(marker)
        })
        .collect();
    found.sort_unstable();
    found
}

/// Waits until something holds, within the bound of the rig. Returns whether it does.
pub fn wait_until(holds: impl FnMut() -> bool) -> bool {
    look_until(Duration::from_millis(5), holds)
}

/// The same for what costs something to look at: a program that is started for it, or a command in a machine.
pub fn wait_slowly(holds: impl FnMut() -> bool) -> bool {
    look_until(Duration::from_millis(150), holds)
}

fn look_until(pause: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(pause);
    }
    true
}

/// The digest of a file.
#[expect(clippy::disallowed_methods, reason = "a program of the host")]
pub(crate) fn digest(file: &Path) -> Option<String> {
    let said = std::process::Command::new("/usr/bin/sha256sum").arg(file).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    text.split_whitespace().next().filter(|word| word.len() == 64).map(str::to_owned)
}

/// Compiles C into a static program in the caller's place. `None`: this host has no compiler, or none for such a
/// program; the test then skips itself.
pub fn cc(caller: &Caller, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let compiler = ["/usr/bin/cc", "/usr/bin/gcc"].map(Path::new).into_iter().find(|path| path.exists())?;
    let text = caller.file(&format!("{name}.c"), source);
    let made = caller.place().join(name);
    let words = [text.as_os_str(), "-o".as_ref(), made.as_os_str(), "-static".as_ref(), "-O1".as_ref()];
    let ended = caller.program(compiler, words.into_iter().chain(flags.iter().map(AsRef::as_ref))).end();
    (ended.code == 0).then_some(made)
}

/// Fills a directory: names that end in `/` are directories, the rest files with their text.
pub fn fill_with(caller: &Caller, directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = directory.join(name);
        if name.ends_with('/') {
            std::fs::create_dir(&path).expect("make a directory");
        } else {
            std::fs::write(&path, text).expect("write a file");
        }
        caller.own(&path);
    }
}
