//! What the stronger tiers need: KVM, gVisor, QEMU. Of what is found here, gVisor's program and QEMU are started: for their versions.

use blastbox_images::Form;
use blastbox_sys::kvm::{INSTRUCTIONS, KvmProbe};

use super::{Finding, State};
use crate::MachineEngine;
use crate::facts::{Gpu, Gvisor, Installed, Machines, Version};
use crate::tiers::gvisor::OLDEST_RUNSC;
use crate::tiers::wasm::{Flaw, Guests};

/// `open`: whether users of boxes may open the device as well.
pub(super) fn kvm(probe: KvmProbe, open: bool) -> Finding {
    let found = |detail: String| Finding::good("kvm", "virtual machines", detail);
    match probe {
        KvmProbe::Absent => found("there is no /dev/kvm".to_owned()).bad(
            State::Missing,
            "sudo modprobe kvm_intel || sudo modprobe kvm_amd; where neither loads, turn virtualisation on in the \
             firmware, or nested virtualisation on the machine around this one",
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
            if probe.is_usable() && !open {
                found(format!("/dev/kvm is fast, {rate}, and closed to the users of boxes"))
                    .bad(State::Weaker, "run blastbox with CAP_MKNOD, or as a user of the group kvm, or: sudo chmod 0666 /dev/kvm")
            } else if probe.is_usable() {
                found(format!("/dev/kvm works, {rate}"))
            } else {
                found(format!("/dev/kvm works but is too slow to boot anything: {rate}"))
                    .bad(State::Weaker, "use a machine with hardware or nested virtualisation")
            }
        }
    }
}

pub(super) fn gpu(gpu: Option<&Gpu>) -> Finding {
    let found = |detail: String| Finding::good("gpu", "GPU for boxes", detail);
    match gpu {
        None => found("/dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm are not all there to be opened".to_owned()).bad(
            State::Missing,
            "where there is an NVIDIA GPU: install NVIDIA's driver, then sudo nvidia-modprobe -u -c 0; no box needs one unless it asks",
        ),
        Some(gpu) if !gpu.has_cuda() => {
            found(format!("NVIDIA's driver {}, without libcuda.so.1 where distributions put it", gpu.driver))
                .bad(State::Weaker, "install the driver's CUDA library (Debian: apt-get install libcuda1)")
        }
        Some(gpu) => found(format!("one NVIDIA GPU for boxes, driver {}", gpu.driver)),
    }
}

pub(super) fn wasm(guests: Option<&Guests>) -> Finding {
    let found = |detail: String| Finding::good("wasm", "WebAssembly", detail);
    let fix = "make wasm, or copy its directory `wasm` beside the blastbox program";
    match guests {
        None => found("blastbox-wasm is not installed".to_owned()).bad(State::Missing, fix),
        Some(guests) => {
            let lies = match guests.names() {
                [] => "a worker without guests".to_owned(),
                names => format!("guests {}", names.join(", ")),
            };
            let left_out = match guests.left_out() {
                [] => String::new(),
                names => {
                    format!("; left out, since more lie there than a worker loads: {}", names.join(", "))
                }
            };
            let components = match guests.components() {
                [] => String::new(),
                names => format!("; components on the shelf (kernel.guest): {}", names.join(", ")),
            };
            let runs = guests.runs(Form::Component);
            let forms =
                if runs { "and components" } else { "but no components: blastbox-wasm-component is missing" };
            let at = guests.directory().display();
            let finding = found(format!("{lies} at {at}; runs modules {forms}{left_out}{components}"));
            match (runs && !guests.names().is_empty(), left_out.is_empty()) {
                (true, true) => finding,
                (true, false) => {
                    finding.bad(State::Weaker, "take guests that nobody needs out of that directory")
                }
                (false, _) => finding.bad(State::Weaker, fix),
            }
        }
    }
}

/// Whether every byte of the guests is what their manifests say.
pub(super) fn wasm_whole(guests: &Guests, flaws: std::io::Result<Vec<Flaw>>) -> Finding {
    let found = |detail: String| Finding::good("wasm_whole", "guests of the shelf", detail);
    let at = guests.directory().display();
    let flaws = match flaws {
        Ok(flaws) => flaws,
        Err(why) => {
            return found(format!("they could not be held against their manifests: {why}"))
                .bad(State::Missing, "make wasm");
        }
    };
    let broken: Vec<String> = flaws
        .iter()
        .filter_map(|flaw| match flaw {
            Flaw::Broken(name, why) => Some(format!("{name}: {why}")),
            Flaw::Unsealed(_) => None,
        })
        .collect();
    let unsealed: Vec<&str> = flaws
        .iter()
        .filter_map(|flaw| match flaw {
            Flaw::Unsealed(name) => Some(name.as_str()),
            Flaw::Broken(..) => None,
        })
        .collect();
    if !broken.is_empty() {
        let fix = "make wasm, or install the directory `wasm` anew; no box runs them meanwhile";
        return found(broken.join("; ")).bad(State::Missing, fix);
    }
    if !unsealed.is_empty() {
        let names = unsealed.join(", ");
        return found(format!("whole; each box hashes {names} once more, which takes some 0.3 s")).bad(
            State::Weaker,
            format!("{at}/blastbox-wasm-compile seal {at}, as whoever that directory belongs to"),
        );
    }
    found("whole: every byte is what their manifests say".to_owned())
}

/// What Debian calls the package, and where it is new enough.
const INSTALL: &str = "install runsc of 20240729 or newer: Debian has it from trixie on and in bookworm-backports (apt-get install \
                       -t bookworm-backports runsc), others at https://gvisor.dev/docs/user_guide/install/";

pub(super) fn runsc(gvisor: &Gvisor) -> Finding {
    let found = |detail: String| Finding::good("runsc", "gVisor", detail);
    let Some(at) = &gvisor.runsc else {
        let detail = "neither beside blastbox nor in /usr/local/bin or /usr/bin, or it or its directory is not root's alone to change";
        return found(detail.to_owned()).bad(State::Missing, INSTALL);
    };
    let at = at.display();
    match gvisor.version() {
        Version::Of(day) if *day < OLDEST_RUNSC => found(format!(
            "{at} is of {day}: too old, it cannot hand its guest a line to the host, and has no systrap"
        ))
        .bad(State::Missing, INSTALL),
        Version::Unclear(why) => {
            found(format!("the version of {at} is unclear: {why}")).bad(State::Missing, INSTALL)
        }
        Version::Of(_) if gvisor.keeper.is_none() || gvisor.agent.is_none() => {
            found(format!("{at} is there, but blastbox-gvisor or blastbox-agent is not"))
                .bad(State::Missing, "install both beside the blastbox program (`make install` does)")
        }
        Version::Of(day) => found(format!(
            "{at} of {day}, used with the platform systrap; its boxes have a GPU only where it knows the driver, and no extended \
             attributes; nobody learns \
             which calls it did not offer (--accept silent-denials)"
        )),
    }
}

/// As the tier itself looks for it.
pub(super) fn qemu(machines: &Machines) -> Finding {
    let found = |detail: String| Finding::good("qemu", "QEMU", detail);
    let bad = |detail: String| found(detail).bad(State::Missing, "sudo apt-get install qemu-system-x86");
    let upgrade = |detail: String| {
        let (least, lesser) = MachineEngine::Qemu.oldest();
        // What a distribution has is what is there already.
        let fix = format!(
            "upgrade QEMU to {least}.{lesser} or newer: Debian has it from bookworm on, Ubuntu from 23.04 on; \
             an older release has to be upgraded itself, or QEMU built from https://www.qemu.org/download/ and put there"
        );
        found(detail).bad(State::Missing, &fix)
    };
    let Some(Installed { engine, program }) = &machines.engine else {
        return bad(format!("not at {}", MachineEngine::Qemu.program().display()));
    };
    let (at, (least, lesser)) = (program.display(), engine.oldest());
    match machines.version() {
        Some((major, minor)) if (major, minor) >= engine.oldest() => {
            found(format!("{at}, version {major}.{minor}: the engine {}", engine.name()))
        }
        Some((major, minor)) => {
            upgrade(format!("{at} is version {major}.{minor}, older than {least}.{lesser}"))
        }
        None => bad(format!("{at} does not say its version")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_machine_without_its_program_is_told_the_command_that_brings_it() {
        let missing = qemu(&Machines::default());
        assert_eq!(missing.state, State::Missing);
        assert_eq!(missing.fix.as_deref(), Some("sudo apt-get install qemu-system-x86"));
    }

    #[test]
    fn a_shelf_that_is_not_whole_is_said_by_the_name_of_the_guest() {
        let guests = Guests::of(&["js", "python"]);
        let say = |flaws| wasm_whole(&guests, Ok(flaws));
        assert_eq!(say(Vec::new()).state, State::Good);
        let unsealed = say(vec![Flaw::Unsealed("python".to_owned())]);
        assert_eq!(unsealed.state, State::Weaker);
        assert!(
            unsealed.fix.as_deref().unwrap().contains("blastbox-wasm-compile seal /opt/wasm"),
            "{unsealed:?}"
        );
        let changed = Flaw::Broken("js".to_owned(), "wasm_artefact_changed: it is".to_owned());
        let broken = say(vec![Flaw::Unsealed("python".to_owned()), changed]);
        assert!(
            broken.state == State::Missing && broken.detail == "js: wasm_artefact_changed: it is",
            "{broken:?}"
        );
        assert_eq!(wasm_whole(&guests, Err(std::io::ErrorKind::NotFound.into())).state, State::Missing);
    }

    #[test]
    fn a_gvisor_that_cannot_be_used_is_missing_and_says_which_one_could() {
        let of = |version| runsc(&Gvisor::of(version));
        let good = of(Version::Of(20_240_729));
        assert_eq!(good.state, State::Good);
        for lacks in ["silent-denials", "knows the driver", "no extended attributes"] {
            assert!(good.detail.contains(lacks), "{good:?}");
        }
        for bad in [of(Version::Of(20_221_219)), of(Version::Unclear("it says nothing".to_owned()))] {
            assert_eq!(bad.state, State::Missing, "{bad:?}");
            assert!(bad.fix.as_deref().unwrap().contains("20240729"), "{bad:?}");
        }
    }

    #[test]
    fn kvm_that_crawls_is_weaker_and_kvm_that_runs_is_good() {
        let at = |millis| kvm(KvmProbe::Measured { per_200k: Duration::from_millis(millis) }, true);
        assert_eq!(at(200).state, State::Weaker);
        assert!(at(200).detail.contains("1 million guest instructions"), "{:?}", at(200));
        assert_eq!(at(1).state, State::Good);
        let closed = kvm(KvmProbe::Measured { per_200k: Duration::from_millis(1) }, false);
        assert_eq!(closed.state, State::Weaker);
        assert!(closed.fix.as_deref().unwrap().contains("chmod 0666"), "{closed:?}");
        assert_eq!(kvm(KvmProbe::Absent, true).state, State::Missing);
        assert_eq!(kvm(KvmProbe::NoAccess(13), true).state, State::Missing);
    }
}
