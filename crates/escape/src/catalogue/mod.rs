//! The catalogue: one room per class, a table of attempts in each.

mod control;
mod credentials;
mod files;
mod frames;
mod information;
mod kernel;
mod lifecycle;
mod network;
mod persistence;
mod replies;
mod resources;
mod sockets;
mod success;
mod words;

use crate::attempt::Attempt;

pub(crate) use success::success;
pub(crate) use words::word;

/// Every attempt, in the order of the report.
#[must_use]
pub fn all() -> Vec<Attempt> {
    [
        kernel::attempts(),
        sockets::attempts(),
        files::attempts(),
        network::attempts(),
        credentials::attempts(),
        lifecycle::attempts(),
        resources::attempts(),
        information::attempts(),
        persistence::attempts(),
        control::attempts(),
        replies::attempts(),
        frames::attempts(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::attempt::{Class, Control, Prop, Script};
    use crate::layer::Layer;

    #[test]
    fn there_are_at_least_120_and_no_two_have_one_name() {
        let all = all();
        let names: BTreeSet<String> = all.iter().map(Attempt::id).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 120, "{}", all.len());
        for class in Class::ALL {
            assert!(all.iter().any(|attempt| attempt.class == class), "{class:?}");
        }
    }

    #[test]
    fn the_documents_say_how_many_there_are() {
        let house = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["README.md", "CHANGELOG.md"] {
            let text = std::fs::read_to_string(house.join(name)).unwrap();
            let before: Vec<&str> = text.split(" break-out attempts").collect();
            assert!(before.len() > 1, "{name} says nothing of them");
            for before in before.iter().rev().skip(1) {
                let said = before.rsplit(' ').next().unwrap_or_default();
                assert_eq!(said, all().len().to_string(), "{name}: `{said} break-out attempts`");
            }
        }
    }

    #[test]
    fn each_says_what_it_stands_for_and_what_holds_it_twice() {
        for attempt in all() {
            for text in [attempt.title, attempt.stands_for, attempt.first, attempt.second.control()] {
                assert!(text.len() > 3, "{}: {text:?}", attempt.id());
            }
        }
    }

    /// What nobody shows is named with the reason why nobody does.
    #[test]
    fn every_second_layer_is_shown_by_a_test_build_or_says_why_it_is_not() {
        for attempt in all() {
            let (layer, reason) = (attempt.second.layer(), attempt.second.reason());
            assert!(layer.is_some() != reason.is_some_and(|why| why.len() > 20), "{}", attempt.id());
            // Who is named as the one that shows it instead is there, and is shown itself.
            let text = reason.unwrap_or_default();
            for word in text.split(|c: char| !(c.is_ascii_lowercase() || ".-".contains(c))) {
                let Some((class, name)) = word.trim_matches('.').split_once('.') else { continue };
                let others = all();
                let mut of_class = others.iter().filter(|one| one.class.as_str() == class).peekable();
                let is_there =
                    of_class.peek().is_none() || name.ends_with('-') || of_class.any(|one| one.name == name);
                assert!(is_there, "{}: {word}", attempt.id());
            }
        }
        let shown = all().iter().filter(|attempt| attempt.second.layer().is_some()).count();
        assert!(shown >= 190, "{shown}");
    }

    /// What a test build lifts is what the catalogue names first, and what is left is something else: a proof that lifts
    /// another layer than the one that is named would show nothing about the two.
    #[test]
    fn what_is_lifted_is_what_is_named_first_and_the_next_one_is_another() {
        for attempt in all() {
            let (Some(layer), text) = (attempt.second.layer(), attempt.second.control()) else { continue };
            let words: &[&str] = match layer {
                Layer::Seccomp => &["filter"],
                Layer::Landlock => &["Landlock"],
                Layer::Mounts => &["root of", "is in a box"],
                Layer::Network => &["network namespace"],
                Layer::Pids => &["limit of processes"],
                Layer::Scratch => &["scratch space"],
                Layer::Overlay => &["layer"],
                Layer::Users => &["another user"],
                Layer::Capabilities => &["no capability"],
                Layer::Processes => &["process ids of", "pid 1", "processes of the box alone"],
                Layer::Descriptors => &["the agent closes"],
            };
            let (id, first) = (attempt.id(), attempt.first);
            assert!(
                words.iter().any(|word| first.contains(word)),
                "{id}: {layer:?} is lifted, first is {first}"
            );
            assert!(!words.iter().any(|word| text.contains(word)), "{id}: {text} is what was lifted");
            // Its stage lets everybody pass who knows its name, and every user of the host reads command lines.
            assert!(layer != Layer::Mounts || !attempt.has(Prop::Workspace), "{id}");
        }
    }

    /// Outside of a box what stands for pid 1 is a process that was started for it. One that is not there would be the
    /// attempt itself, and never the host's own first process.
    #[test]
    fn whoever_goes_for_pid_1_is_given_a_process_to_go_for() {
        for attempt in all() {
            let (Script::Line(text) | Script::Python(text) | Script::Shell(text)) = attempt.script else {
                continue;
            };
            let named = text.contains("PID_1") || text.contains("ESCAPE_DECOY");
            assert!(!named || attempt.has(Prop::Decoy), "{}", attempt.id());
        }
    }

    /// Whatever runs outside of a box was looked at: it is bounded, and changes nothing of the host's that outlives it.
    #[test]
    fn no_plain_process_is_run_that_is_not_on_the_list() {
        let reviewed: BTreeSet<&str> = include_str!("../../tests/outside.txt")
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .collect();
        let outside = |attempt: &Attempt| matches!(attempt.control, Control::Plain | Control::PlainRoot);
        let run: Vec<String> = all().iter().filter(|attempt| outside(attempt)).map(Attempt::id).collect();
        let run: BTreeSet<&str> = run.iter().map(String::as_str).collect();
        let new: Vec<_> = run.difference(&reviewed).collect();
        let old: Vec<_> = reviewed.difference(&run).collect();
        assert!(
            new.is_empty(),
            "look at it as its control runs it, then add it to tests/outside.txt: {new:?}"
        );
        assert!(old.is_empty(), "no control of this name runs outside of a box: {old:?}");
    }
}
