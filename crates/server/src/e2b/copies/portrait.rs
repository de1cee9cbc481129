//! What this face knows of a sandbox beside its box, and a copy of it must know too.

use std::collections::BTreeMap;
use std::fmt;

use blastbox_engine::keeper::{Caption, Keeper};
use serde::{Deserialize, Serialize};

use crate::e2b::envd::marks::Mark;
use crate::e2b::interpreter::copied::{self, Held, Standing};
use crate::e2b::no::No;
use crate::e2b::ports::Front;
use crate::e2b::process::table::Told;
use crate::e2b::sandbox::Sandbox;

/// Most bytes of all of it, as it is written down.
const MOST: usize = 768 * 1024;

/// What this face knows of a sandbox. Variables may be secrets, so it is never printed.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::e2b) struct Portrait {
    /// How its owner calls the snapshot: name and tag.
    pub(super) called: Option<(String, String)>,
    pub(super) envs: BTreeMap<String, String>,
    pub(super) workdir: Option<String>,
    /// Whether its ports are closed to whoever has no token for them.
    pub(super) private_ports: bool,
    /// How servers in it are spoken to.
    pub(super) front: Front,
    marks: BTreeMap<String, Mark>,
    processes: Vec<(u32, Told)>,
    contexts: Vec<Standing>,
}

impl fmt::Debug for Portrait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Portrait(…)")
    }
}

impl Portrait {
    /// As it is now. No piece of code begins in it while what comes along is held.
    pub(super) fn of(sandbox: &Sandbox, called: Option<(String, String)>) -> (Self, Held) {
        let (contexts, held) = copied::hold(&sandbox.contexts);
        let portrait = Self {
            called,
            envs: sandbox.envs.0.clone(),
            workdir: sandbox.workdir.clone(),
            private_ports: sandbox.traffic_token.is_some(),
            front: sandbox.front.clone(),
            marks: sandbox.marks.copied(),
            processes: sandbox.processes.told(),
            contexts,
        };
        (portrait, held)
    }

    /// As it was written down. What another version wrote says nothing, and may have said that ports are closed.
    pub(super) fn read(caption: Option<Caption>) -> Self {
        let Some(Caption(value)) = caption else { return Self::default() };
        serde_json::from_value(value).unwrap_or_else(|_| Self { private_ports: true, ..Self::default() })
    }

    pub(super) fn write(&self) -> Result<Caption, No> {
        let text = serde_json::to_vec(self).map_err(|_| No::defect())?;
        if text.len() > MOST {
            return Err(No::bad(format!(
                "what is kept beside the sandbox (variables, metadata of files, commands that run) has more than {MOST} bytes, \
                 which no snapshot takes"
            ))
            .coded("snapshot_beside"));
        }
        serde_json::from_slice(&text).map(Caption).map_err(|_| No::defect())
    }

    /// Gives a copy what it must know.
    pub(super) fn hang(&self, keeper: &Keeper, sandbox: &Sandbox) {
        sandbox.marks.set(self.marks.clone());
        self.processes.iter().for_each(|(exec, told)| sandbox.processes.add(*exec, told.clone()));
        copied::take_over(keeper, sandbox, &self.contexts);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_never_printed() {
        let mut portrait = Portrait { workdir: Some("/srv".to_owned()), ..Portrait::default() };
        portrait.envs.insert("KEY".to_owned(), "secret".to_owned());
        portrait.called = Some(("mine".to_owned(), "default".to_owned()));
        let caption = portrait.write().unwrap();
        assert!(!format!("{portrait:?}{caption:?}").contains("secret"));
        let again = Portrait::read(Some(caption));
        assert_eq!((again.envs["KEY"].as_str(), again.workdir.as_deref()), ("secret", Some("/srv")));
        assert_eq!(again.called, portrait.called);
    }

    #[test]
    fn one_that_says_nothing_or_something_else_is_an_empty_one_and_one_that_is_too_long_is_refused() {
        assert!(Portrait::read(None).envs.is_empty());
        let other = Portrait::read(Some(Caption(json!({ "envs": 7 }))));
        assert!(other.envs.is_empty() && other.private_ports, "what may have been closed is closed");
        let envs = BTreeMap::from([("A".to_owned(), "x".repeat(MOST))]);
        assert_eq!(Portrait { envs, ..Portrait::default() }.write().unwrap_err().status(), 400);
    }
}
