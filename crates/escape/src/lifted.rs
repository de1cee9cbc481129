//! Test builds that lack one layer each: whether they do, and what became of an attempt without it.

use std::path::Path;

use crate::ask::{Ask, probe, words};
use crate::attempt::Attempt;
use crate::carry_out::in_box;
use crate::layer::Layer;
use crate::report::{ControlState, SecondState, Verdict};

/// A build that lacks a layer, or why there is none.
pub(crate) type Lifted = (Layer, Result<Ask, String>);

/// The word with which a warden of a test build begins.
const CONFESSION: &str = "BLASTBOX_LIFTED_LAYER";

/// Whether a warden said that it lacks these layers and no others, and whether its agent lies.
fn confesses(complaint: &str, lacks: impl Fn(Layer) -> bool, lies: bool) -> bool {
    let line = complaint.lines().find(|line| line.starts_with(CONFESSION)).unwrap_or_default();
    let says = |one: Layer| line.contains(&format!(" {} {}", one.as_str(), lacks(one)));
    Layer::ALL.into_iter().all(says) && line.ends_with(&format!(" its agent lies: {lies}"))
}

/// Whether a warden said that it lacks this layer and no other.
fn lacks(layer: Layer, complaint: &str) -> bool {
    confesses(complaint, |one| one == layer, false)
}

/// Whether a warden said that its agent lies, and that it lacks no layer.
pub(crate) fn lies(complaint: &str) -> bool {
    confesses(complaint, |_| false, true)
}

/// The builds that lack a layer. One that does not say itself that it does shows nothing: a layer that was never lifted
/// holds whatever is behind it.
pub(crate) fn lifted(place: &Path, ask: Option<&Ask>) -> Vec<Lifted> {
    let find = |layer: Layer| {
        let name = layer.as_str();
        let program = place.join(name).join("blastbox");
        let Some(ask) = ask else {
            return Err("no jail was asked for, from which to lift a layer".to_owned());
        };
        if let Some(why) = layer.needs_root().filter(|_| !rustix::process::geteuid().is_root()) {
            return Err(format!("it takes root: {why}"));
        }
        if !program.is_file() {
            return Err(format!("there is no test build without {name}"));
        }
        let mut options = ask.options.clone();
        options.extend(words(layer.narrows().iter().copied()));
        let ask = Ask { program, lifted: Some(layer), options, ..ask.clone() };
        match probe(&ask) {
            Ok(boxed) if lacks(layer, &boxed.stderr) => Ok(ask),
            Ok(_) => Err(format!("the build in {name} does not say that it lacks {name}, and nothing else")),
            Err(error) => Err(format!("the build without {name} cannot be started: {error}")),
        }
    };
    Layer::ALL.into_iter().map(|layer| (layer, find(layer))).collect()
}

/// What was stopped where it is stopped everywhere shows nothing about the layer that stopped it.
pub(crate) fn only_with_control(state: SecondState, control: &ControlState) -> SecondState {
    match (state, control) {
        (SecondState::Held(evidence), ControlState::Failed(why)) => {
            SecondState::NotTried(format!("its control did not succeed: {why} (here: {evidence})"))
        }
        (SecondState::Held(_) | SecondState::NotTried(_), ControlState::Absent(why)) => {
            SecondState::Absent(why.clone())
        }
        (state, _) => state,
    }
}

/// The same attempt in a box that lacks its first layer.
pub(crate) fn without(attempt: &Attempt, layer: Layer, lifted: Option<&[Lifted]>) -> SecondState {
    let ask = match lifted.and_then(|all| all.iter().find(|(one, _)| *one == layer)) {
        None => return SecondState::NotTried("no test build that lacks a layer was named".to_owned()),
        Some((_, Err(why))) => return SecondState::NotTried(why.clone()),
        Some((_, Ok(ask))) => ask,
    };
    let cell = in_box(attempt, ask);
    match cell.verdict {
        Verdict::Held => SecondState::Held(cell.evidence),
        // An old Landlock, or no group that counts memory, is what the policy accepts by name: it cannot hold alone what it does not know.
        Verdict::Escaped => match attempt.second.falls_with().find(|gap| ask.gaps.contains(gap)) {
            Some(gap) => SecondState::NotTried(format!("gap {gap} is accepted: {}", cell.evidence)),
            None => SecondState::Fell(cell.evidence),
        },
        Verdict::NotApplicable | Verdict::Absent | Verdict::CouldNotRun | Verdict::Broken => {
            SecondState::NotTried(cell.evidence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAYS: &str = "BLASTBOX_LIFTED_LAYER: a test build; seccomp true, landlock false, mounts false, network false, pids false, scratch false, overlay false, users false, capabilities false, processes false, descriptors false are lifted; its agent lies: false\n";

    #[test]
    fn only_a_warden_that_says_so_lacks_a_layer() {
        assert!(lacks(Layer::Seccomp, SAYS));
        assert!(!lacks(Layer::Landlock, SAYS), "another one");
        assert!(!lacks(Layer::Seccomp, ""), "a warden that is shipped says nothing");
        assert!(
            !lacks(Layer::Seccomp, &SAYS.replace("mounts false", "mounts true")),
            "and not only this one"
        );
    }

    #[test]
    fn only_a_warden_that_says_so_has_an_agent_that_lies() {
        let liar = SAYS.replace("seccomp true", "seccomp false").replace("lies: false", "lies: true");
        assert!(lies(&liar));
        assert!(!lies(&liar.replace("lies: true", "lies: false")) && !lies(SAYS) && !lies(""));
        assert!(!lies(&liar.replace("network false", "network true")), "and lacks a layer besides");
    }

    #[test]
    fn a_second_layer_does_not_hold_where_the_control_failed() {
        let held = || SecondState::Held("EPERM".to_owned());
        let failed = ControlState::Failed("EPERM".to_owned());
        assert!(matches!(only_with_control(held(), &failed), SecondState::NotTried(_)));
        assert_eq!(only_with_control(held(), &ControlState::Fired(String::new())), held());
        let absent = ControlState::Absent("no such call".to_owned());
        assert_eq!(only_with_control(held(), &absent), SecondState::Absent("no such call".to_owned()));
        let fell = SecondState::Fell(String::new());
        assert_eq!(only_with_control(fell.clone(), &absent), fell);
        assert_eq!(only_with_control(fell.clone(), &failed), fell, "what came out came out");
    }
}
