//! Releases what a scene has on the host, by its nonce alone: when it ends, and after a campaign that was killed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::stage::{DIRECTORY, PREFIX};

/// Places in which whoever writes to the host's own directories for such things leaves a file of the nonce's name.
pub(crate) const SHARED: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];
/// A nonce is this and twenty hexadecimal digits.
pub(crate) const NONCE: &str = "bbx";

/// Whether a word is a nonce. Nothing is ever looked for, ended or removed by a word that is none: "bbx" alone might stand
/// in anybody's command line.
fn is_nonce(word: &str) -> bool {
    let digits = word.strip_prefix(NONCE).unwrap_or_default();
    digits.len() == 20 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Releases what campaigns of this user have left that nobody leads any more.
pub(crate) fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let nonce = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).filter(|word| is_nonce(word));
        let Some(nonce) = nonce else { continue };
        // Never through a link; and locked as long as its campaign lives.
        let Ok(found) = open(entry.path(), DIRECTORY | OFlags::NONBLOCK, Mode::empty()) else { continue };
        let own = fstat(&found).is_ok_and(|about| about.st_uid == geteuid().as_raw());
        if own && flock(&found, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // The directory last: as long as it is there, the rest is found again.
            release(nonce);
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Ends the processes of a scene, and removes its files outside of its stage.
pub(crate) fn release(nonce: &str) {
    if !is_nonce(nonce) {
        return;
    }
    for pid in pids() {
        // Held before it is looked at, so that nobody else is ended who has got its number meanwhile.
        let Some(held) = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            continue;
        };
        let own = fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == geteuid().as_raw());
        if own && (is_named(pid, nonce) || is_told(pid, nonce)) {
            pidfd_send_signal(&held, Signal::KILL).ok();
        }
    }
    for place in SHARED {
        fs::remove_file(Path::new(place).join(nonce)).ok();
    }
}

/// Who has left a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// An attempt: the nonce is a word of the command line.
    Attempt,
    /// blastbox: the nonce is part of an option.
    Blastbox,
}

/// Processes whose command line has the nonce, each by number and name.
pub(crate) fn survivors(nonce: &str, whose: Whose) -> Vec<String> {
    let named = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        match whose {
            Whose::Attempt => words.any(|word| word == nonce.as_bytes()),
            Whose::Blastbox => {
                words.all(|word| word != nonce.as_bytes()) && String::from_utf8_lossy(&line).contains(nonce)
            }
        }
    };
    let told = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} {}", name.trim())
    };
    pids().filter(|pid| named(*pid)).map(told).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| u32::try_from(*pid).is_ok_and(|pid| pid != std::process::id()))
}

fn is_named(pid: i32, nonce: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(nonce)
}

/// Whether it is an attempt, or descends from one. Wardens are not told: they end by themselves, and clear away.
fn is_told(pid: i32, nonce: &str) -> bool {
    let told = format!("ESCAPE_NONCE={nonce}");
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    all.split(|byte| *byte == 0).any(|one| one == told.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::stage::Stage;

    /// A nonce that no other test has, of this program or of another one.
    fn nonce(number: u8) -> String {
        format!("{NONCE}{:018x}{number:02x}", std::process::id())
    }

    /// A place of the test's own.
    fn place(name: &str) -> PathBuf {
        let own = std::env::temp_dir().join(format!("sweep-{name}-{}", std::process::id()));
        fs::create_dir(&own).unwrap();
        own
    }

    /// Somebody who waits, and whom a scene has stopped.
    #[expect(clippy::disallowed_methods, reason = "what a killed campaign leaves is a process")]
    fn stopped(name: &str, told: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read word; :", name]).env("ESCAPE_NONCE", told).stdin(Stdio::piped());
        let child = command.spawn().unwrap();
        // The kernel wakes us before the new program has its command line.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !is_named(i32::try_from(child.id()).unwrap(), name) && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        rustix::process::kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        child
    }

    #[test]
    fn what_a_killed_campaign_left_goes_and_what_is_held_stays() {
        let place = place("left");
        let (kept, gone) = (nonce(1), nonce(2));
        let held = Stage::new(&place, &kept).unwrap();
        let left = place.join(format!("{PREFIX}{gone}"));
        fs::create_dir_all(left.join("stage/home")).unwrap();
        let shared = Path::new("/dev/shm").join(&gone);
        fs::write(&shared, "left").unwrap();
        let (mut by_name, mut by_word) = (stopped(&gone, ""), stopped("nobody", &gone));
        let mut of_held = stopped(&kept, &kept);
        sweep(&place);
        for child in [&mut by_name, &mut by_word] {
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        let lives = of_held.try_wait().unwrap().is_none();
        of_held.kill().unwrap();
        of_held.wait().unwrap();
        assert!(lives && held.directory.is_dir() && !left.exists() && !shared.exists());
        drop(held);
        fs::remove_dir(place).unwrap();
    }

    #[test]
    fn what_an_attempt_left_is_told_from_what_blastbox_has_not_ended_yet() {
        let nonce = nonce(5);
        let (mut left, mut own) = (stopped(&nonce, ""), stopped(&format!("ESCAPE_NONCE={nonce}"), ""));
        let found = [Whose::Attempt, Whose::Blastbox].map(|whose| survivors(&nonce, whose));
        let expected = [&left, &own].map(|child| vec![format!("{} sh", child.id())]);
        for child in [&mut left, &mut own] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn nothing_goes_that_only_looks_like_a_stage() {
        let place = place("alike");
        let (link, foreign) =
            (place.join(format!("{PREFIX}{}", nonce(3))), place.join(format!("{PREFIX}{}", nonce(4))));
        let elsewhere = place.join("elsewhere");
        fs::create_dir_all(elsewhere.join("stage")).unwrap();
        symlink(&elsewhere, &link).unwrap();
        let names = ["somebody-else", "blastbox-escape-", "blastbox-escape-bbx", "blastbox-escape-bbxBEEF"];
        for name in names {
            fs::create_dir(place.join(name)).unwrap();
        }
        if geteuid().is_root() {
            // Only root can make one that is another user's.
            fs::create_dir(&foreign).unwrap();
            std::os::unix::fs::chown(&foreign, Some(65_534), None).unwrap();
        }
        sweep(&place);
        assert!(elsewhere.join("stage").is_dir() && link.is_symlink());
        assert!(names.iter().all(|name| place.join(name).is_dir()));
        assert!(foreign.is_dir() || !geteuid().is_root(), "another user's");
        fs::remove_dir_all(place).unwrap();
    }
}
