//! Places at which a test ends the agent of a machine, as if it were killed there: in a guest it is the first process, and its end is the
//! end of the machine.
//!
//! Only an agent that was built with the feature `failpoints` has them (`make mortal`), and no release is: there the functions below are
//! empty, and nothing in a box is looked at for them. Which place it is says the environment of a command; or the image, for what comes
//! before any command.

use blastbox_wire::agent::HostFrame;

/// This process is at a place with this name.
#[inline]
pub(crate) fn reach(_point: &str) {
    #[cfg(feature = "failpoints")]
    armed::reach(_point);
}

/// The host has said this, and nothing was done about it yet. A command may choose the place.
#[inline]
pub(crate) fn hear(_frame: &HostFrame) {
    #[cfg(feature = "failpoints")]
    armed::hear(_frame);
}

/// A command has printed so much by now: what came first has reached the host.
#[inline]
pub(crate) fn printed(_bytes: u64) {
    #[cfg(feature = "failpoints")]
    if _bytes > armed::MUCH {
        armed::reach("output-flowing");
    }
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::sync::{Mutex, OnceLock, PoisonError};

    use blastbox_wire::agent::{FileAsk, HostFrame};

    /// More than waits in this process and in the channel at once.
    pub(super) const MUCH: u64 = 4 << 20;
    const NAME: &[u8] = b"BLASTBOX_FAILPOINT=";
    /// In an image.
    const FILE: &str = "/etc/blastbox-failpoint";

    static CHOSEN: Mutex<Option<String>> = Mutex::new(None);

    fn is_chosen(point: &str) -> bool {
        static OF_IMAGE: OnceLock<Option<String>> = OnceLock::new();
        let of_image = OF_IMAGE.get_or_init(|| std::fs::read_to_string(FILE).ok());
        let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.as_deref().or(of_image.as_deref().map(str::trim)) == Some(point)
    }

    pub(super) fn reach(point: &str) {
        if is_chosen(point) {
            blastbox_sys::fork::leave(9);
        }
    }

    pub(super) fn hear(frame: &HostFrame) {
        match frame {
            HostFrame::Begin { .. } => reach("begun"),
            HostFrame::Exec(spec) => {
                if let Some(point) = spec.environment.iter().find_map(|one| one.strip_prefix(NAME)) {
                    let point = String::from_utf8_lossy(point).into_owned();
                    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).replace(point);
                }
                reach("exec-asked");
            }
            HostFrame::Stdin { .. } => reach("input-given"),
            HostFrame::File { ask: FileAsk::Begin { .. }, .. } => reach("file-asked"),
            HostFrame::File { ask: FileAsk::Data { .. }, .. } => reach("file-given"),
            HostFrame::Sleep => reach("sleep-asked"),
            HostFrame::Resync { .. } => reach("copy-greeted"),
            HostFrame::Farewell => reach("farewell-heard"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// One that is not named there is one that no test dies at.
    #[test]
    fn every_place_in_the_sources_is_one_that_a_test_dies_at() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut named = BTreeSet::new();
        for file in ["failpoint.rs", "asleep.rs", "exec.rs", "execs.rs", "session.rs"] {
            let text = fs::read_to_string(home.join("src").join(file)).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap_or_default().replace("Breach(", "");
            let places = text.split("reach(\"").skip(1).filter_map(|rest| rest.split('"').next());
            named.extend(places.map(str::to_owned));
        }
        let test = fs::read_to_string(home.join("../../tests/tests/agent_crash.rs")).unwrap();
        let missing: Vec<_> = named.iter().filter(|name| !test.contains(&format!("{name}\""))).collect();
        assert!(named.len() >= 15 && missing.is_empty(), "{missing:?} of {named:?}");
    }
}
