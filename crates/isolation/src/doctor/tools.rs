//! What the stronger tiers need: KVM, gVisor, QEMU. Nothing found here is executed.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use blastbox_sys::kvm::{INSTRUCTIONS, KvmProbe};

use super::{Finding, State};

/// A program in one of the directories of PATH.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(runs)
}

pub(super) fn kvm(probe: KvmProbe) -> Finding {
    let found = |detail: String| Finding::good("kvm", "virtual machines", detail);
    match probe {
        KvmProbe::Absent => found("there is no /dev/kvm".to_owned()).bad(
            State::Missing,
            "turn virtualisation on in the firmware, or nested virtualisation on the machine around this one, and \
             load kvm_intel or kvm_amd",
        ),
        KvmProbe::NoAccess(errno) => {
            let why = std::io::Error::from_raw_os_error(errno);
            found(format!("/dev/kvm may not be opened: {why}"))
                .bad(State::Missing, "sudo usermod -aG kvm $USER, then log in again")
        }
        KvmProbe::Broken { step, errno } => {
            let why = std::io::Error::from_raw_os_error(errno);
            found(format!("/dev/kvm does not work: could not {step}: {why}"))
                .bad(State::Missing, "use a machine with hardware or nested virtualisation")
        }
        KvmProbe::Measured { per_200k } => {
            let millions = f64::from(INSTRUCTIONS) / per_200k.as_secs_f64().max(1e-9) / 1e6;
            let rate = format!("{millions:.0} million guest instructions a second");
            if probe.is_usable() {
                found(format!("/dev/kvm works, {rate}"))
            } else {
                found(format!("/dev/kvm works but is too slow to boot anything: {rate}"))
                    .bad(State::Weaker, "use a machine with hardware or nested virtualisation")
            }
        }
    }
}

pub(super) fn runsc(at: Option<PathBuf>) -> Finding {
    tool("runsc", "gVisor", at, "install runsc (https://gvisor.dev/docs/user_guide/install/)".to_owned())
}

pub(super) fn qemu(arch: &str, at: Option<PathBuf>) -> Finding {
    tool("qemu", "QEMU", at, format!("install qemu-system-{arch} with your package manager"))
}

fn tool(code: &'static str, subject: &'static str, at: Option<PathBuf>, fix: String) -> Finding {
    match at {
        Some(path) => Finding::good(code, subject, format!("found at {}", path.display())),
        None => Finding::good(code, subject, "not in PATH").bad(State::Missing, fix),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_shell_is_found_and_nonsense_is_not() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }

    #[test]
    fn kvm_that_crawls_is_weaker_and_kvm_that_runs_is_good() {
        let at = |millis| kvm(KvmProbe::Measured { per_200k: Duration::from_millis(millis) });
        assert_eq!(at(200).state, State::Weaker);
        assert!(at(200).detail.contains("1 million guest instructions"), "{:?}", at(200));
        assert_eq!(at(1).state, State::Good);
        assert_eq!(kvm(KvmProbe::Absent).state, State::Missing);
        assert_eq!(kvm(KvmProbe::NoAccess(13)).state, State::Missing);
    }
}
